"""The `prepare` of a module: a command that is done once before its first start.

It fetches, or builds. That it went well is noted under a digest of what the descriptor says of both
commands, and of nothing else: a start that fails later, or takes too long, does not have it done
again. In a daemon a worker does it (`preparing`); for those who run the module without one it is
done each time (`prepare_once`). The client that removes a container (`containers`) is run in the
same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import trio

from protocol.connection import Connection
from protocol.descriptor.model import Descriptor
from protocol.framing import Outgoing
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.process.process import Opening
from supervisor.runtime.process.program import SpawnError, of_prepare
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.notes import digest_of
from supervisor.runtime.taps import Taps

if TYPE_CHECKING:
    from supervisor.runtime.supervision.life import Ended, Setting

PREPARED = "prepared"
"""The reason of a good end."""


class Unspoken(Connection):
    """The connection of a process that nobody speaks with."""

    closes_stdin = True

    def __init__(self) -> None:
        self.outgoing = Outgoing()


async def begin_prepare(
    descriptor: Descriptor,
    environment: Mapping[str, str],
    instance: str,
    custody: Custody,
    *,
    module_log: ModuleLog,
    deadlines: Deadlines,
    parting: Callable[[], bool] = lambda: False,
) -> Incarnation:
    """Start what prepares a module; raises `SpawnError`.

    What it prints is stderr, both streams in one; its stdin is empty.
    """
    opening = Opening(b"", closes_stdin=True)
    process = await spawn(
        of_prepare(descriptor), environment, instance, custody, opening, one_output=True
    )
    dialogue = Dialogue(instance, Unspoken(), Receiver(), deadlines, Taps())
    timeouts = descriptor.supervision.timeouts
    return Incarnation(process, dialogue, module_log, timeouts, parting=parting)


class Unprepared(NamedTuple):
    """What went wrong, and the end of what was printed: with a compiler, that is the reason."""

    words: str
    printed: tuple[str, ...] = ()


async def prepare_once(
    descriptor: Descriptor, environment: Mapping[str, str], custody: Custody, log_files: LogFiles
) -> Unprepared | None:
    """Prepare a module, within its `prepare_s`; returns what went wrong, None if nothing did."""
    instance = f"{descriptor.name}#0"  # beside those that serve
    prepare_s = descriptor.supervision.timeouts.prepare_s
    module_log = ModuleLog(descriptor.name, log_files, time.time)
    try:
        incarnation = await begin_prepare(
            descriptor, environment, instance, custody, module_log=module_log, deadlines=Deadlines()
        )
    except SpawnError as error:
        return Unprepared(f"it could not be started: {error}")
    overdue = False

    async def bound() -> None:
        nonlocal overdue
        await trio.sleep(prepare_s)
        overdue = True
        incarnation.stop(StopStep.TERMINATE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bound)
        ended = await incarnation.run()
        nursery.cancel_scope.cancel()
    if not (overdue or ended.abnormal):
        return None
    words = f"it took longer than {prepare_s:g} s (prepare_s)" if overdue else f"it {ended.words}"
    return Unprepared(words, tuple(incarnation.stderr.tail()))


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
