"""The bytes of an asset: whole, in parts, and never as a page of ours."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import h11
import pytest

from tests.faces.http.client import Client, Reply
from tests.faces.http.test_routes import asking
from tests.faces.running import Running

WHOLE = bytes(range(256)) * 4096


class Asset(NamedTuple):
    """The file `pic`, which a module has handed over, and a client of the daemon that has it."""

    client: Client
    path: str

    async def read(self, method: str = "GET", **more: Any) -> Reply:
        return await self.client.ask(method, f"{self.path}/content", **more)


async def hand_over(
    client: Client, folder: Path, media: str = "image/png", content: bytes = WHOLE
) -> Asset:
    (folder / "pic").write_bytes(content)
    named = uuid.uuid4().hex
    known = {"assetId": named, "kind": "image", "mediaType": media}
    events: list[dict[str, Any]] = [
        {"type": "asset", **known, "path": str(folder / "pic")},
        {"type": "done", "ok": True},
    ]
    lines = [json.dumps({"version": "0", **one}) for one in events]
    body = {"op": "say", "args": {"lines": lines}}
    assert (await client.ask("POST", "/api/v1/modules/m/invoke", body)).status == 200
    return Asset(client, f"/api/v1/assets/{named}")


async def test_an_asset_is_read_whole(tmp_path: Path) -> None:
    async with asking() as client:
        asset = await hand_over(client, tmp_path)
        known = (await client.ask("GET", asset.path)).json
        listed = (await client.ask("GET", "/api/v1/assets?module=m")).json
        assert [one["asset"] for one in listed["assets"]] == [known["asset"]]
        reply = await asset.read()
        assert (reply.status, reply.body == WHOLE) == (200, True)
        assert reply.headers["content-type"] == "image/png"
        assert reply.headers["etag"] == f'"{known["sha256"]}"'
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
        head = await asset.read("HEAD")
        assert (head.headers["content-length"], head.body) == (str(len(WHOLE)), b"")
        seen = [("If-None-Match", reply.headers["etag"])]
        again = await asset.read(headers=seen)
        assert (again.status, again.body) == (304, b"")
        assert (await client.ask("GET", "/api/v1/health")).status == 200


@pytest.mark.parametrize(
    ("said", "status", "part"),
    [
        ("bytes=0-9", 206, (0, 10)),
        ("bytes=1048570-", 206, (1048570, 6)),
        ("bytes=1048570-2000000", 206, (1048570, 6)),
        ("bytes=-5", 206, (1048571, 5)),
        ("bytes=-9999999", 200, (0, 1048576)),
        ("bytes=9-0", 200, (0, 1048576)),
        ("bytes=0-1,3-4", 200, (0, 1048576)),
        ("lines=1-2", 200, (0, 1048576)),
        ("bytes=1048576-", 416, None),
        ("bytes=-0", 400, None),
    ],
)
async def test_a_part_of_it_is_read(
    said: str, status: int, part: tuple[int, int] | None, tmp_path: Path, shared: Running
) -> None:
    async with shared.unix() as client:
        asset = await hand_over(client, tmp_path)
        reply = await asset.read(headers=[("Range", said)])
        assert reply.status == status
        if part is None:
            assert reply.headers.get("content-range", "bytes */1048576") == "bytes */1048576"
            return
        offset, length = part
        assert reply.body == WHOLE[offset : offset + length]
        if status == 206:
            span = f"bytes {offset}-{offset + length - 1}/1048576"
            assert reply.headers["content-range"] == span


@pytest.mark.parametrize(
    ("media", "shown"),
    [
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("image/png+xml", "attachment"),
        ("audio/mpeg+xml", "attachment"),
        ("text/plain; charset=utf-8", "inline"),
    ],
)
async def test_what_could_run_is_a_download(
    media: str, shown: str, tmp_path: Path, shared: Running
) -> None:
    async with shared.unix() as client:
        asset = await hand_over(client, tmp_path, media)
        assert (await asset.read()).headers["content-disposition"] == shown


async def test_a_file_that_is_another_one_by_now_is_not_given(
    tmp_path: Path, shared: Running
) -> None:
    async with shared.unix() as client:
        asset = await hand_over(client, tmp_path)
        (tmp_path / "pic").write_bytes(b"else")
        reply = await asset.read()
        assert (reply.status, reply.json["code"]) == (409, "CONFLICT")


async def test_a_file_that_changes_while_it_is_read_is_cut_short(
    tmp_path: Path, shared: Running
) -> None:
    async with shared.unix() as client:
        # More than a client that does not read has waiting for it.
        asset = await hand_over(client, tmp_path, content=WHOLE * 32)
        await client.send("GET", f"{asset.path}/content")
        assert (await client.head()).status == 200
        (tmp_path / "pic").write_bytes(b"else")
        with pytest.raises(h11.RemoteProtocolError):
            await client.rest()
