"""The bytes of an asset: whole, in parts, and never as a page of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import pytest

from tests.faces.http.client import Client
from tests.faces.http.test_routes import asking

WHOLE = bytes(range(256)) * 4096


@asynccontextmanager
async def handed_over(
    folder: Path, media: str = "image/png", content: bytes = WHOLE
) -> AsyncIterator[Client]:
    """Have a module hand over the file `pic` with these bytes, as `one`."""
    (folder / "pic").write_bytes(content)
    async with asking() as client:
        known = {"assetId": "one", "kind": "image", "mediaType": media}
        events: list[dict[str, Any]] = [
            {"type": "asset", **known, "path": str(folder / "pic")},
            {"type": "done", "ok": True},
        ]
        lines = [json.dumps({"version": "0", **one}) for one in events]
        body = {"op": "say", "args": {"lines": lines}}
        assert (await client.ask("POST", "/api/v1/modules/m/invoke", body)).status == 200
        yield client


PATH = "/api/v1/assets/one/content"


async def test_an_asset_is_read_whole(tmp_path: Path) -> None:
    async with handed_over(tmp_path) as client:
        known = (await client.ask("GET", "/api/v1/assets/one")).json
        listed = (await client.ask("GET", "/api/v1/assets?module=m")).json
        assert [one["asset"] for one in listed["assets"]] == [known["asset"]]
        reply = await client.ask("GET", PATH)
        assert (reply.status, reply.body == WHOLE) == (200, True)
        assert reply.headers["content-type"] == "image/png"
        assert reply.headers["etag"] == f'"{known["sha256"]}"'
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
        head = await client.ask("HEAD", PATH)
        assert (head.headers["content-length"], head.body) == (str(len(WHOLE)), b"")
        seen = [("If-None-Match", reply.headers["etag"])]
        again = await client.ask("GET", PATH, headers=seen)
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
    said: str, status: int, part: tuple[int, int] | None, tmp_path: Path
) -> None:
    async with handed_over(tmp_path) as client:
        reply = await client.ask("GET", PATH, headers=[("Range", said)])
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
async def test_what_could_run_is_a_download(media: str, shown: str, tmp_path: Path) -> None:
    async with handed_over(tmp_path, media) as client:
        assert (await client.ask("GET", PATH)).headers["content-disposition"] == shown


async def test_a_file_that_is_another_one_by_now_is_not_given(tmp_path: Path) -> None:
    async with handed_over(tmp_path) as client:
        (tmp_path / "pic").write_bytes(b"else")
        reply = await client.ask("GET", PATH)
        assert (reply.status, reply.json["code"]) == (409, "CONFLICT")


async def test_a_file_that_changes_while_it_is_read_is_cut_short(tmp_path: Path) -> None:
    # More than a client that does not read has waiting for it.
    async with handed_over(tmp_path, content=WHOLE * 32) as client:
        await client.send("GET", PATH)
        assert (await client.head()).status == 200
        (tmp_path / "pic").write_bytes(b"else")
        with pytest.raises(h11.RemoteProtocolError):
            await client.rest()
