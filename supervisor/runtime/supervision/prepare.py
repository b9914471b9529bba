"""The `prepare` of a module: a command that is run to its end once before the first start.

It fetches, or builds. What it prints, on both streams, goes to the module's log. It has `prepare_s`
and ends as any process does. That it went well is noted under a digest of what the descriptor says
of both commands, and of nothing else: a start that fails later, or takes too long, does not have it
done again.

In a daemon a worker prepares (`PreparingLife`), and the other workers of the descriptor wait for
it; for those who run a module without a daemon it is done each time (`prepare_once`). The client
that removes a container (`containers`) is run in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from protocol.connection import Connection
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Outcome, Reason
from protocol.framing import Outgoing
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.process.incarnation import Incarnation, Receiver, StopStep
from supervisor.runtime.process.program import SpawnError, of_prepare
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.life import PREPARED, Instance, Life, LifeEnd, Setting
from supervisor.runtime.supervision.notes import digest_of
from supervisor.runtime.taps import Taps

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker


def _connect(
    descriptor: Descriptor,
    instance: str,
    module_log: ModuleLog,
    deadlines: Deadlines,
    parting: Callable[[], bool] = lambda: False,
) -> Incarnation:
    connection = Connection()
    connection.outgoing, connection.closes_stdin = Outgoing(), True
    return Incarnation(
        instance,
        connection,
        Receiver(),
        module_log=module_log,
        timeouts=descriptor.supervision.timeouts,
        deadlines=deadlines,
        taps=Taps(),
        parting=parting,
    )


async def _spawn(
    process: Incarnation,
    descriptor: Descriptor,
    environment: Mapping[str, str],
    registry: ProcessRegistry,
) -> Sequence[str]:
    """Start what prepares a module, with an empty stdin; raises `SpawnError`.

    Returns the names in `pass_env` for which it got no value.
    """
    process.take_opening()
    wanted = (of_prepare(descriptor), environment, process.instance, registry, process.opening)
    spawned = await spawn(*wanted, one_output=True)
    process.spawned(spawned)
    return spawned.unset_variables


class Unprepared(NamedTuple):
    """What went wrong, and the end of what was printed: with a compiler, that is the reason."""

    words: str
    printed: tuple[str, ...] = ()


async def prepare_once(
    descriptor: Descriptor,
    environment: Mapping[str, str],
    registry: ProcessRegistry,
    log_files: LogFiles,
) -> Unprepared | None:
    """Prepare a module, within its `prepare_s`; returns what went wrong, None if nothing did."""
    instance = f"{descriptor.name}#0"  # beside those that serve
    prepare_s = descriptor.supervision.timeouts.prepare_s
    module_log = ModuleLog(descriptor.name, log_files, time.time)
    process = _connect(descriptor, instance, module_log, Deadlines())
    try:
        await _spawn(process, descriptor, environment, registry)
    except SpawnError as error:
        return Unprepared(f"it could not be started: {error}")
    overdue = False

    async def bound() -> None:
        nonlocal overdue
        await trio.sleep(prepare_s)
        overdue = True
        process.stop(StopStep.TERMINATE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bound)
        exit_ = await process.run()
        nursery.cancel_scope.cancel()
    if not (overdue or exit_.abnormal):
        return None
    words = f"it took longer than {prepare_s:g} s (prepare_s)" if overdue else f"it {exit_.words}"
    return Unprepared(words, tuple(process.stderr.tail()))


class PreparingLife(Life):
    """A worker while its program is prepared: by a process of its own, or by another worker's."""

    def __init__(self, setting: Setting, owner: Worker) -> None:
        super().__init__(setting, owner)
        host = setting.host
        self._process = _connect(
            setting.descriptor, self.id, setting.log, host.deadlines, lambda: host.shutting_down
        )
        self._waiting: trio.CancelScope | None = None
        self._is_stopped = False

    async def run(self) -> LifeEnd:
        """Prepare, unless another worker does, or has done meanwhile."""
        setting, shared = self._setting, self._setting.preparation
        while is_unprepared(setting) and not self._is_stopped:
            if shared.over is not None:
                with trio.CancelScope() as self._waiting:
                    await shared.over.wait()
                    if shared.failure is not None:
                        return shared.failure
                continue
            shared.over = over = trio.Event()
            shared.failure = None
            try:
                ended = await self._prepare()
                # A failure counts for all workers; that this one was stopped does not: the next
                # one begins anew.
                if ended.reason != PREPARED and not self._is_stopped:
                    shared.failure = ended
            finally:
                shared.over = None
                over.set()
            return ended
        if self._is_stopped:
            return LifeEnd("stopped", "was stopped before it was prepared")
        return LifeEnd(PREPARED, "is prepared")

    async def _prepare(self) -> LifeEnd:
        setting, host, process = self._setting, self._setting.host, self._process
        try:
            unset = await _spawn(process, setting.descriptor, host.environment, host.registry)
        except SpawnError as error:
            return LifeEnd("spawn_failed", f"could not be prepared: {error}")
        setting.unset_variables[:] = unset
        timer = host.deadlines.after(self._timeouts.prepare_s, self._overdue)
        try:
            with host.sampler.watching(process, setting.descriptor.supervision.limits):
                exit_ = await process.run()
        finally:
            timer.cancel()
        if exit_.abnormal or self._is_stopped:
            program = setting.descriptor.transport.prepare[0]
            words = f"could not be prepared: {program} {exit_.words}{exit_.remark}"
            return LifeEnd(str(exit_.reason), words, exit_)
        note = {"prepared": setting.descriptor.name, "ts": round(host.wall_clock(), 3)}
        host.notes.put(_digest(setting.descriptor), note)
        return LifeEnd(PREPARED, f"was prepared in {exit_.uptime_s:.3g} s", exit_)

    def _overdue(self) -> None:
        words = f"was not prepared within {self._timeouts.prepare_s:g} s"
        failure = LifeEnd(str(Reason.START_DEADLINE), words)
        self._owner.happened(self, Input.START_FAILED, words, failure)

    def end(self, *, abrupt: bool) -> None:
        del abrupt
        self._stop(StopStep.TERMINATE)

    def hurry(self) -> None:
        self._stop(StopStep.KILL)

    def _stop(self, step: StopStep) -> None:
        self._is_stopped = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._process.stop(step)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        del operation, timeout_s
        return Failure.because(Reason.NOT_READY, f"{self.id} is being prepared")

    def instances(self) -> list[Instance]:
        one = self._process
        if one.pid is None:
            return []
        said = one.stderr.tail()
        return [Instance(self.id, one.pid, one.uptime_s, 0, last_line=said[-1] if said else None)]


def is_unprepared(setting: Setting) -> bool:
    if not setting.descriptor.transport.prepare:
        return False
    return setting.host.notes.find(_digest(setting.descriptor)) is None


def forget_prepared(setting: Setting) -> None:
    setting.host.notes.put(_digest(setting.descriptor), None)


def _digest(descriptor: Descriptor) -> str:
    transport = descriptor.transport
    folder = module_folder(descriptor)
    return digest_of("prepare", transport.command, transport.prepare, folder, transport.env)
