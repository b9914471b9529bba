"""Run the `prepare` of a module to its end, for those who run the module without a daemon.

A daemon remembers that it is done (`supervision.preparation`); here it is done each time.
The client that removes a container (`containers`) is run in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import trio

from protocol.descriptor.model import Descriptor
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.process.opening import Opening
from supervisor.runtime.process.program import SpawnError, of_prepare
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.process.unspoken import Unspoken
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.taps import Taps


class Unprepared(NamedTuple):
    """What went wrong, and the end of what was printed: with a compiler, that is the reason."""

    words: str
    printed: tuple[str, ...] = ()


async def prepare_once(
    descriptor: Descriptor, environment: Mapping[str, str], custody: Custody, log_files: LogFiles
) -> Unprepared | None:
    """Prepare a module, within its `prepare_s`; returns what went wrong, None if nothing did."""
    instance = f"{descriptor.name}#0"  # beside those that serve
    timeouts = descriptor.supervision.timeouts
    opening = Opening(b"", closes_stdin=True)
    try:
        process = await spawn(
            of_prepare(descriptor), environment, instance, custody, opening, one_output=True
        )
    except SpawnError as error:
        return Unprepared(f"it could not be started: {error}")
    incarnation = Incarnation(
        instance,
        process,
        Dialogue(instance, Unspoken(), Receiver(), Deadlines(), Taps()),
        ModuleLog(descriptor.name, log_files, time.time),
        exit_s=timeouts.exit_s,
        stop_s=timeouts.stop_s,
    )
    overdue = False

    async def bound() -> None:
        nonlocal overdue
        await trio.sleep(timeouts.prepare_s)
        overdue = True
        incarnation.stop(StopStep.TERMINATE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bound)
        ended = await incarnation.run()
        nursery.cancel_scope.cancel()
    if overdue:
        words = f"it took longer than {timeouts.prepare_s:g} s (prepare_s)"
        return Unprepared(words, tuple(incarnation.stderr.tail()))
    if not ended.abnormal:
        return None
    said = incarnation.stderr.tail()
    return Unprepared(f"it {ended.words}", tuple(said))
