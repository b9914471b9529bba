"""Whether the program of a module is prepared, and what its workers share while it is not.

A descriptor's `prepare` is a command that is done once before the first start: it fetches, or
builds. That it went well is noted under a digest of what the descriptor says of both commands, and
of nothing else: a start that fails later, or takes too long, does not have it done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from protocol.descriptor.model import Descriptor
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.supervision.notes import digest_of

if TYPE_CHECKING:
    from supervisor.runtime.supervision.life import Ended, Setting

PREPARED = "prepared"
"""The reason of a good end."""


class Preparation:
    """The one run of `prepare` that there is at a time, for all workers of a descriptor."""

    def __init__(self) -> None:
        self.is_running = False
        self._over = trio.Event()
        self._failure: Ended | None = None

    def begin(self) -> None:
        self.is_running = True
        self._over, self._failure = trio.Event(), None

    def end(self, failure: Ended | None) -> None:
        """Let the other workers go on; if the run failed, all fail with it."""
        self.is_running = False
        self._failure = failure
        self._over.set()

    async def wait(self) -> Ended | None:
        """Wait for the end of the run; returns how it failed, if it did."""
        await self._over.wait()
        return self._failure


def is_unprepared(setting: Setting) -> bool:
    if not setting.descriptor.transport.prepare:
        return False
    return setting.host.notes.find(_digest(setting.descriptor)) is None


def note_prepared(setting: Setting) -> None:
    note = {"prepared": setting.descriptor.name, "ts": round(setting.host.wall_clock(), 3)}
    setting.host.notes.put(_digest(setting.descriptor), note)


def forget_prepared(setting: Setting) -> None:
    setting.host.notes.put(_digest(setting.descriptor), None)


def _digest(descriptor: Descriptor) -> str:
    transport = descriptor.transport
    folder = module_folder(descriptor)
    return digest_of("prepare", transport.command, transport.prepare, folder, transport.env)
