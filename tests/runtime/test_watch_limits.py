"""The watch where the kernel gives less: no watches, no queue, a queue that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from supervisor.runtime.files import watch as watch_module
from supervisor.runtime.files.inotify import Inotify, Mask
from tests.factories import open_files, opened_since
from tests.runtime.watching import document, programs, wait_for, watching


class Unwilling(Inotify):
    """A kernel whose limit of watches is reached."""

    def add(self, directory: str, mask: Mask) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory)


def no_queue() -> Inotify:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("open_queue", [Unwilling, no_queue])
async def test_without_watches_the_files_are_polled_and_that_is_said(
    tmp_path: Path, open_queue: Callable[[], Inotify], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "POLL_S", 0.01)
    (tmp_path / "b.json").write_text(document("b", watch=True))
    async with watching(tmp_path, open_queue=open_queue) as watched:
        assert watched.state.mode == "polling"
        assert "the kernel gives no watch" in str(watched.state.reason)
        (tmp_path / "a.json").write_text(document("a"))
        await wait_for(watched, "a", "b")
        (tmp_path / "run.sh").write_text("1")
        await watched.until(lambda one: len(programs(one, "b")) == 1)
        (tmp_path / "a.json").unlink()
        await wait_for(watched, "b")


async def test_what_changes_far_up_is_found_by_the_next_reading_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "RESCAN_S", 0.01)
    folder = tmp_path / "1" / "2" / "modules"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(document("a"))
    async with watching(folder) as watched:
        (tmp_path / "1").rename(tmp_path / "0")
        await watched.until(lambda one: bool(one.bad))
        (tmp_path / "0").rename(tmp_path / "1")
        await wait_for(watched, "a")


async def test_a_wait_that_is_cancelled_has_taken_no_event(tmp_path: Path) -> None:
    queue = Inotify()
    queue.add(str(tmp_path), Mask.CREATE)
    (tmp_path / "a.json").touch()
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.events()
    assert scope.cancelled_caught
    assert [one.name for one in await queue.events()] == ["a.json"]
    queue.close()


async def test_a_watch_gives_back_its_descriptor(tmp_path: Path) -> None:
    async with watching(tmp_path):
        pass
    before = open_files()
    async with watching(tmp_path):
        pass
    assert not opened_since(before)


def queue_limit() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


async def test_an_overflowed_queue_counts_as_a_change(tmp_path: Path) -> None:
    limit = queue_limit()
    if limit > 100_000:
        pytest.skip("the queue is too long to be filled")
    async with watching(tmp_path) as watched:
        for _ in range(limit):  # two events each, none of which matters
            (tmp_path / "x").touch()
            (tmp_path / "x").unlink()
        await watched.next()
