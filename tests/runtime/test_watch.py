"""The watch over descriptor files: which changes are noticed, and what is made of them.

A change counts as noticed when `reload` is called; nothing here waits for a time.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor import Descriptor
from supervisor.policy.findings import Reading
from supervisor.runtime import directory, file_digest
from supervisor.runtime import watch as watch_module
from supervisor.runtime.directory import DescriptorFiles
from supervisor.runtime.inotify import Inotify, Mask
from supervisor.runtime.watch import Watch, WatchState
from supervisor.runtime.watched_paths import Interests, steps

BOUND_S = 60


def document(name: str, **supervision: Any) -> str:
    return json.dumps(
        {
            "name": name,
            "kind": "tool",
            "capabilities": [],
            "transport": {"type": "stdio", "command": ["./run.sh", "data.txt", "--flag"]},
            "supervision": supervision,
        }
    )


class Watched:
    """Files, and what was read of them whenever the watch said so."""

    def __init__(self, *directories: Path) -> None:
        self.files = DescriptorFiles(directories)
        self.state = WatchState()
        self.reading = self.files.read({})
        self._send, self._receive = trio.open_memory_channel[Reading](math.inf)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.reading.descriptors]

    def current(self) -> Mapping[str, Descriptor]:
        return {one.name: one for one in self.reading.descriptors}

    async def reload(self, *, if_needed: bool) -> None:
        reading = await trio.to_thread.run_sync(self.files.read, self.current())
        if not if_needed or reading != self.reading:
            self._send.send_nowait(reading)
        self.reading = reading

    async def next(self) -> Reading:
        with trio.fail_after(BOUND_S):
            return await self._receive.receive()

    async def until(self, holds: Callable[[Reading], bool]) -> None:
        """Wait for a reading; what is written in several steps may be read in between."""
        with trio.fail_after(BOUND_S):
            while not holds(await self._receive.receive()):
                pass


@asynccontextmanager
async def watching(
    *directories: Path, open_queue: Callable[[], Inotify] = Inotify
) -> AsyncIterator[Watched]:
    watched = Watched(*directories)
    watch = Watch(watched.files, watched.current, watched.state, open_queue)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run, watched.reload)
        yield watched
        nursery.cancel_scope.cancel()


def named(*names: str) -> Callable[[Reading], bool]:
    return lambda reading: [one.name for one in reading.descriptors] == list(names)


async def test_files_that_come_change_and_go_are_noticed(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        assert watched.state.mode == "inotify"
        (tmp_path / "a.json").write_text(document("a"))
        await watched.until(named("a"))
        (tmp_path / "a.json").write_text(document("b"))
        await watched.until(named("b"))
        (tmp_path / "a.json").rename(tmp_path / "z.json")
        await watched.until(lambda one: one.descriptors[0].source == str(tmp_path / "z.json"))
        (tmp_path / "z.json").unlink()
        await watched.until(named())


async def test_many_files_are_one_change(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        for number in range(200):
            (tmp_path / f"{number:03}.json").write_text(document(f"m{number:03}"))
        reading = await watched.next()
        if len(reading.descriptors) < 200:  # a machine that is very slow may take two
            reading = await watched.next()
        assert len(reading.descriptors) == 200


async def test_a_file_that_becomes_readable_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(document("a"))
    async with watching(tmp_path) as watched:
        (tmp_path / "a.json").chmod(0o640)
        await watched.next()


@pytest.mark.parametrize("name", ["notes.txt", ".hidden.json", "core", ".a.json.swp"])
async def test_other_files_do_not_matter(tmp_path: Path, name: str) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / name).write_text("x")
        (tmp_path / name).unlink()
        (tmp_path / "a.json").write_text(document("a"))
        # The queue is in order: had the first one counted, its reading would be here, too.
        await watched.next()
        assert watched.names == ["a"]


async def test_a_new_folder_and_its_module_json_are_noticed(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "module.json").write_text(document("a"))
        await wait_for(watched, "a")
        (tmp_path / "a" / "module.json").write_text(document("b"))
        await wait_for(watched, "b")
        (tmp_path / "a" / "module.json").unlink()
        await wait_for(watched)


async def wait_for(watched: Watched, *names: str) -> None:
    """Wait until these are what was read, whoever asked for the reading."""
    with trio.fail_after(BOUND_S):
        while watched.names != list(names):
            await watched.next()


async def test_the_target_of_a_link_is_watched_through_every_step(tmp_path: Path) -> None:
    # As Kubernetes mounts a ConfigMap: a.json -> ..data/a.json, ..data -> ..1.
    folder = tmp_path / "modules"
    for version in ("1", "2"):
        (folder / f"..{version}").mkdir(parents=True)
        (folder / f"..{version}" / "a.json").write_text(document(f"v{version}"))
    (folder / "..data").symlink_to("..1")
    (folder / "a.json").symlink_to("..data/a.json")
    async with watching(folder) as watched:
        assert watched.names == ["v1"]
        (folder / "..new").symlink_to("..2")
        (folder / "..new").rename(folder / "..data")
        await wait_for(watched, "v2")
        (folder / "..2" / "a.json").write_text(document("v3"))
        await wait_for(watched, "v3")


async def test_a_directory_behind_a_link_may_be_exchanged(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.json").write_text(document(f"v{version}"))
    (tmp_path / "current").symlink_to("1")
    async with watching(tmp_path / "current") as watched:
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").rename(tmp_path / "current")
        await wait_for(watched, "v2")
        (tmp_path / "2" / "a.json").write_text(document("v3"))
        await wait_for(watched, "v3")


async def test_a_link_to_a_folder_is_a_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "modules", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "module.json").write_text(document("a"))
    async with watching(folder) as watched:
        (folder / "a").symlink_to(other)
        await wait_for(watched, "a")
        (other / "module.json").write_text(document("b"))
        await wait_for(watched, "b")
        (folder / "a").unlink()
        await wait_for(watched)


async def test_a_directory_that_is_deleted_is_missed_and_seen_again(tmp_path: Path) -> None:
    folder = tmp_path / "parent" / "modules"
    folder.mkdir(parents=True)
    async with watching(folder) as watched:
        folder.rmdir()
        folder.parent.rmdir()
        await watched.until(lambda one: bool(one.bad))
        folder.parent.mkdir()
        folder.mkdir()
        (folder / "a.json").write_text(document("a"))
        await wait_for(watched, "a")
        assert watched.reading.bad == ()


async def test_a_directory_whose_parent_is_renamed_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "1" / "2" / "modules"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(document("a"))
    async with watching(folder) as watched:
        (tmp_path / "1").rename(tmp_path / "0")
        await watched.until(lambda one: bool(one.bad))
        (tmp_path / "0").rename(tmp_path / "1")
        await wait_for(watched, "a")


async def test_a_watched_program_is_one_more_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(document("a", watch=True))
    async with watching(tmp_path) as watched:
        assert watched.reading.programs == {"a": {}}
        (tmp_path / "run.sh").write_text("1")
        await watched.until(lambda one: str(tmp_path / "run.sh") in one.programs["a"])
        before = watched.reading.programs["a"]
        (tmp_path / "run.sh").write_text("2")
        await watched.until(lambda one: one.programs["a"].keys() == before.keys())
        assert watched.reading.programs["a"] != before
        (tmp_path / "data.txt").write_text("3")
        await watched.until(lambda one: len(one.programs["a"]) == 2)


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
        await watched.until(lambda one: len(one.programs["b"]) == 1)
        (tmp_path / "a.json").unlink()
        await wait_for(watched, "b")


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


async def test_a_watch_gives_back_its_descriptor(tmp_path: Path) -> None:
    async with watching(tmp_path):
        pass
    before = open_files()
    async with watching(tmp_path):
        pass
    assert open_files() == before


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


def test_a_path_is_walked_as_the_kernel_does(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    (root / "loop").symlink_to("loop")
    walked = list(steps(f"{root}/link/../real/missing/file"))
    assert walked[-4:] == [
        (str(root), "link"),
        (str(root), "real"),
        (str(root), "real"),
        (f"{root}/real", "missing"),
    ]
    assert len(list(steps(f"{root}/loop/x"))) < 100


def test_interests_of_a_directory_are_one(tmp_path: Path) -> None:
    interests = Interests()
    interests.add_folder(str(tmp_path))
    interests.add_file(str(tmp_path), "x")
    interest = interests.by_directory[str(tmp_path)]
    assert interest.descriptors
    assert interest.content
    assert interest.names == {"x"}


class Counted:
    """How often a file's bytes are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read_bytes = directory.read_bytes

        def counted(path: Path) -> bytes:
            self.paths.append(path.name)
            return read_bytes(path)

        monkeypatch.setattr(directory, "read_bytes", counted)

    def since(self) -> list[str]:
        paths, self.paths = self.paths, []
        return paths


HOUR_NS = 3600 * 10**9


def test_a_file_whose_signature_is_the_same_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(document(name))
    files = DescriptorFiles([tmp_path])
    first = files.read({})
    assert counted.since() == ["a.json", "b.json"]
    files.read({})
    assert counted.since() == ["a.json", "b.json"]  # written too short a time ago to be trusted
    monkeypatch.setattr(file_digest, "SETTLED_NS", -HOUR_NS)
    files.read({})
    counted.since()
    assert files.read({}).descriptors == first.descriptors
    assert counted.since() == []
    os.utime(tmp_path / "a.json")
    second = files.read({})
    assert counted.since() == ["a.json"]
    assert second.descriptors[0] is first.descriptors[0]  # equal bytes are not parsed again


def test_a_pipe_or_a_loop_in_the_directory_is_bad_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("b.json")
    (tmp_path / "c.json").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    reading = DescriptorFiles([tmp_path]).read({})
    assert [Path(one.descriptor).name for one in reading.bad] == ["a.json", "b.json", "c.json"]
