"""A watch over descriptor files, and what was read whenever it said so."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from supervisor.policy.findings import Reading, version_of
from supervisor.runtime.files.inotify import Inotify
from supervisor.runtime.files.sources import Sources
from supervisor.runtime.files.watch import Watch, WatchState
from supervisor.runtime.threads import Threads

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
        self.files = Sources.of_directories(directories)
        self.state = WatchState()
        self.reading = self.files.read({})
        self._send, self._receive = trio.open_memory_channel[Reading](math.inf)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.reading.descriptors]

    async def reload(self, *, if_needed: bool) -> None:
        reading = await trio.to_thread.run_sync(
            self.files.read, {one.name: one for one in self.reading.descriptors}
        )
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
    watch = Watch(watched.files, watched.state, Threads(), open_queue)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run, watched.reload)
        yield watched
        nursery.cancel_scope.cancel()


def programs(reading: Reading, name: str) -> Mapping[str, str]:
    """Return the digests of a module's watched program files."""
    (one,) = (one for one in reading.descriptors if one.name == name)
    return reading.programs[version_of(one)]


def named(*names: str) -> Callable[[Reading], bool]:
    return lambda reading: [one.name for one in reading.descriptors] == list(names)


async def wait_for(watched: Watched, *names: str) -> None:
    """Wait until these are what was read, whoever asked for the reading."""
    with trio.fail_after(BOUND_S):
        while watched.names != list(names):
            await watched.next()
