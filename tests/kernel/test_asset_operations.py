from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Failure
from protocol.host_events import RegisteredAsset
from supervisor.kernel.assets import files as asset_files
from supervisor.kernel.kernel import AssetOptions, Kernel, RefusedError
from supervisor.kernel.operations import assets as asset_reading
from supervisor.policy.principals import Principal
from tests.factories import actor, open_files
from tests.kernel.conftest import begin, daemon_with, run_op
from tests.kernel.remembering import Remembering
from tests.kernel.test_assets import DONE, asset, say

LONG_S = 10_000.0
BOB = Principal("bob", "test")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asset_reading, "READ_CHECK_S", LONG_S)


class World:
    """A daemon with one asset: the file `real`, under the name `file`."""

    def __init__(self, folder: Path, daemon: Kernel, recorder: Remembering, named: str) -> None:
        self.real = folder / "real"
        self.link = folder / "file"
        self.daemon = daemon
        self.recorder = recorder
        self.named = named

    async def run(self, op: str, **args: Any) -> Any:
        return await run_op(self.daemon, op, args, self.emit)

    async def refused(self, op: str, **args: Any) -> tuple[str, str]:
        with pytest.raises(RefusedError) as caught:
            await self.run(op, **args)
        return caught.value.failure.details["reason"], caught.value.failure.message

    @staticmethod
    async def emit(event: Any) -> None:
        raise AssertionError(event)


@asynccontextmanager
async def world(folder: Path, *, copy: bool = False) -> AsyncIterator[World]:
    (folder / "real").write_text("content")
    (folder / "file").symlink_to("real")
    recorder = Remembering()
    async with daemon_with(
        folder, actor(folder), recorder=recorder, asset_options=AssetOptions(copy=copy)
    ) as daemon:
        asker = say(daemon, asset("file", "chart", metadata={"n": 1}), DONE, session="s-1")
        assert (await asker.response()).ok
        (event,) = asker.events
        assert isinstance(event, RegisteredAsset)
        yield World(folder, daemon, recorder, event.registered.id)


async def test_assets_are_listed_by_session_module_and_request(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        second = await say(it.daemon, asset("file", "map"), DONE).response()
        every = await it.run("asset.list")
        assert [one["asset_id"] for one in every["assets"]] == ["chart", "map"]
        assert "metadata" not in every["assets"][0]
        for args, expected in (
            ({"session_id": "s-1"}, ["chart"]),
            ({"module": "m"}, ["chart", "map"]),
            ({"request_id": second.request_id}, ["map"]),
            ({"module": "n"}, []),
            ({"session_id": "s-1", "request_id": second.request_id}, []),
        ):
            found = await it.run("asset.list", **args)
            assert [one["asset_id"] for one in found["assets"]] == expected


async def test_an_asset_is_found_by_its_id_its_beginning_or_the_modules_name_for_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        for named in (it.named, it.named[:6], "chart"):
            shown = await it.run("asset.show", asset=named)
            assert (shown["asset"], shown["metadata"]) == (it.named, {"n": 1})
        await say(it.daemon, asset("real", "chart"), DONE).response()
        assert (await it.run("asset.show", asset="chart"))["asset"] != it.named
        for named in ("", "nobody", it.named[:2]):
            reason, words = await it.refused("asset.show", asset=named)
            assert reason == "unknown_asset"
            assert f"there is no asset {named!r}" in words


@pytest.mark.clause("N001-4.3-e")
async def test_nothing_is_open_until_somebody_asks_and_then_only_for_a_look(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert str(it.real) not in open_files().values()
        assert it.recorder.of("artifact:read") == []
        result = await it.run("asset.read", asset=it.named)
        assert result["path"] == str(it.link)
        assert result["verified"] == ["size", "sha256"]
        assert str(it.real) not in open_files().values()
        (entry,) = it.recorder.of("artifact:read")
        assert (entry["status"], entry["data"]["asset"]) == ("ok", it.named)
        assert entry["data"]["uri"] == f"file://{it.link}"


async def test_the_journal_has_who_read_an_asset_and_not_who_wrote_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        own, response = it.daemon.sessions.new(BOB).id, None
        content = {"op": "asset.read", "args": {"asset": it.named}, "session_id": own}
        for named in (content, {**content, "session_id": "s-2"}):
            response = await begin(it.daemon, "supervisor", "invoke", named, BOB).response()
        assert response is not None
        assert isinstance(response.outcome, Failure)
        assert response.outcome.details["reason"] == "unknown_session"
        (wrote,), (read,) = (it.recorder.of(f"artifact:{one}") for one in ("write", "read"))
    assert (wrote["session_id"], wrote["by"]["name"]) == ("s-1", "ada")
    assert (read["session_id"], read["by"]["name"]) == (own, "bob")
    assert read["request_id"] != wrote["request_id"]
    assert "span_id" not in read
    assert read["data"]["asset"] == wrote["data"]["asset"]


async def test_a_file_that_was_only_touched_is_still_the_same(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        os.utime(it.real, ns=(1, 1))
        assert (await it.run("asset.read", asset=it.named))["path"] == str(it.link)


def vanish(it: World) -> None:
    it.real.unlink()


def grow(it: World) -> None:
    it.real.write_text("content and more")


def rewrite(it: World) -> None:
    before = it.real.stat()
    it.real.write_text("tnetnoc")
    os.utime(it.real, ns=(before.st_atime_ns, before.st_mtime_ns))


def lead_elsewhere(it: World) -> None:
    other = it.real.with_name("other")
    other.write_text("content")
    it.link.unlink()
    it.link.symlink_to("other")


def become_a_fifo(it: World) -> None:
    it.real.unlink()
    os.mkfifo(it.real)


CHANGES = [
    (vanish, "cannot be read: No such file"),
    (grow, "it has 16 bytes, it had 7"),
    (rewrite, "its SHA-256 is "),
    (lead_elsewhere, "its path now leads to "),
    (become_a_fifo, "is not a regular file"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
async def test_a_file_that_is_not_what_it_was_is_refused_with_what_changed(
    tmp_path: Path, change: Callable[[World], None], words: str
) -> None:
    async with world(tmp_path) as it:
        change(it)
        reason, message = await it.refused("asset.read", asset=it.named)
        assert reason == "asset_changed"
        assert words in message
        (entry,) = it.recorder.of("artifact:read")
        assert entry["status"] == "error"
        assert entry["error"]["code"] == "bad_request"


@pytest.mark.parametrize(("change", "words"), CHANGES)
async def test_a_copy_stands_in_for_a_file_that_is_not_what_it_was(
    tmp_path: Path, change: Callable[[World], None], words: str
) -> None:
    async with world(tmp_path, copy=True) as it:
        change(it)
        result = await it.run("asset.read", asset=it.named)
        assert result["path"] == result["copy"]
        assert await trio.Path(result["path"]).read_text() == "content"
        assert words in "".join(result["original"].values())


async def test_a_copy_that_is_gone_too_is_named(tmp_path: Path) -> None:
    async with world(tmp_path, copy=True) as it:
        it.real.unlink()
        await trio.Path((await it.run("asset.read", asset=it.named))["path"]).unlink()
        reason, message = await it.refused("asset.read", asset=it.named)
        assert reason == "asset_changed"
        assert "its copy: " in message


async def test_without_a_digest_the_time_of_the_last_change_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asset_files._look, "__kwdefaults__", {"limit_bytes": 0})

    async def never(*args: Any) -> Any:
        raise asset_files.AssetFileError("not now")

    monkeypatch.setattr(asset_files.AssetChecks, "read", never)
    async with world(tmp_path) as it:
        assert (await it.run("asset.read", asset=it.named))["verified"] == ["size", "mtime"]
        os.utime(it.real, ns=(1, 1))
        reason, message = await it.refused("asset.read", asset=it.named)
        assert reason == "asset_changed"
        assert "it was written to since" in message


async def test_a_file_system_that_hangs_is_told_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(*args: Any) -> Any:
        release.wait(60)

    async with world(tmp_path) as it:
        monkeypatch.setattr(asset_reading, "READ_CHECK_S", 0.05)
        monkeypatch.setattr(asset_reading, "_read", hang)
        try:
            reason, message = await it.refused("asset.read", asset=it.named)
        finally:
            release.set()
        assert reason == "asset_changed"
        assert "could not be looked at in 0.05 s" in message
