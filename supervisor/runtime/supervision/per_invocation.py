"""A process per invocation: readiness means that the command could be run.

With `warm`, some processes wait for their request beforehand. The end of one that waits ends the
life, as a crash: no more calls are taken, those in flight keep their own deadlines.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from protocol.connection import Request
from protocol.dialects import DIALECTS
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation, completed
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, Stopped
from supervisor.runtime.process.incarnation import StopStep
from supervisor.runtime.process.preflight import obstacle
from supervisor.runtime.supervision.call import Awaited, Call
from supervisor.runtime.supervision.life import Ended, Instance, Life, Setting
from supervisor.runtime.supervision.run import Run
from supervisor.runtime.supervision.warm_processes import WarmProcesses

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker


class PerInvocationLife(Life):
    """The readiness of a per-invocation module, and the processes it runs at the moment."""

    def __init__(self, setting: Setting, owner: Worker) -> None:
        self.id = setting.descriptor.name
        self._setting = setting
        self._owner = owner
        self._runs: set[Run] = set()
        self._warm: WarmProcesses | None = None
        if setting.descriptor.supervision.warm:
            self._warm = WarmProcesses(setting, self._crash)
        self._crashed: Ended | None = None
        self._closed = False
        self._retiring = trio.Event()
        self._abrupt = trio.Event()
        self._drained = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> Ended:
        """Be ready until told to end, then until the last process is gone."""
        outcome = await self._check()
        if isinstance(outcome, Failure):
            return Ended("spawn_failed", outcome.message)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if self._warm is not None:
                nursery.start_soon(self._warm.run)
            try:
                self._owner.happened(self, Input.STARTED, "its command can be run")
                await self._retiring.wait()
                await self._retire()
            finally:
                self._closed = True  # cancelled, it takes no more calls either
            # The nursery stays open until each run has seen its process to the end.
        return self._crashed or Ended("stopped", "was stopped", Exit(exit_code=0))

    def is_alive(self) -> bool:
        """Whether no process has died that nothing was asked of."""
        return self._crashed is None

    def can_take(self) -> bool:
        concurrency = self._setting.descriptor.supervision.concurrency
        return self._nursery is not None and not self._closed and len(self._runs) < concurrency

    @property
    def load(self) -> int:
        return len(self._runs)

    @property
    def oldest(self) -> tuple[str, float] | None:
        calls = sorted((run.call.begun_at, run.call.request.op) for run in self._runs)
        return (calls[0][1], calls[0][0]) if calls else None

    def take(self, call: Call) -> None:
        assert self._nursery is not None  # noqa: S101 - can_take said so
        run = Run(self._setting, call, self._warm)
        self._runs.add(run)
        call.server = run
        if self._warm is None:
            self._setting.overhear(run.id, call)
        call.heard_at = call.begun_at = trio.current_time()
        self._nursery.start_soon(self._serve, run)

    def end(self, *, abrupt: bool) -> None:
        self._close()
        self._retiring.set()
        if abrupt:
            self._abrupt.set()
        if abrupt or not self._runs:
            self._drained.set()

    def hurry(self) -> None:
        self.end(abrupt=True)
        if self._warm is not None:
            self._warm.kill()
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(StopStep.KILL)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        """Answer for the module where its dialect cannot be asked; else run a process that does.

        docs/protocol.md: a probe must never run a Spec 001 tool.
        """
        descriptor = self._setting.descriptor
        if DIALECTS[descriptor.transport.protocol].answers_probes:
            return await self._ask_process(operation, timeout_s)
        if operation is Operation.HEALTH:
            return await self._check()
        return completed(operation, Success({}), descriptor)

    def instances(self) -> list[Instance]:
        """Return the running processes, then those that wait for a request."""
        running = [shown for run in self._runs if (shown := run.instance()) is not None]
        return running if self._warm is None else [*running, *self._warm.instances()]

    async def _check(self) -> Outcome:
        host = self._setting.host
        # In a thread: a folder on a slow disk is not to hold up the neighbours.
        descriptor = self._setting.descriptor
        look = partial(obstacle, descriptor, host.environment)
        found = await host.custody.blocking.run(f"finding the program of {descriptor.name}", look)
        if found is not None:
            return Failure.because(Reason.SPAWN_FAILED, f"could not be started: {found.words}")
        return Success({"status": "ok"})

    async def _ask_process(self, operation: Operation, timeout_s: float) -> Outcome:
        awaited = Awaited()
        call = Call(Request(self._setting.host.next_request_id(), operation), awaited)
        if self._nursery is None or self._closed:
            return self._setting.host.stopping(self.id, {})
        self.take(call)
        words = f"{self.id} gave no answer to {operation} in {timeout_s:g} s"
        try:
            with trio.move_on_after(timeout_s):
                return await awaited.wait()
        finally:
            # Also if the caller is cancelled: a probe's process has no other bound.
            if call.server is not None and not call.settled:
                call.settle(Failure.because(Reason.DEADLINE, words, **call.server.evidence()))
                call.server.give_up(call, Stopped(Reason.DEADLINE, words))
        return await awaited.wait()

    async def _serve(self, run: Run) -> None:
        try:
            ended = await run.run()
            if ended is not None:
                self._owner.run_failed(self, ended)
        finally:
            self._runs.discard(run)
            if not self._runs and self._closed:
                self._drained.set()
                self._retiring.set()
        self._owner.capacity_freed(self)

    def _close(self) -> None:
        self._closed = True
        if self._warm is not None:
            self._warm.close()

    def _crash(self, ended: Ended) -> None:
        if self._closed:
            return
        self._crashed = ended
        self._close()
        self._owner.run_failed(self, ended)
        if not self._runs:
            self._retiring.set()
            self._drained.set()

    async def _retire(self) -> None:
        if not self._abrupt.is_set():
            with trio.move_on_after(self._setting.descriptor.supervision.timeouts.stop_s):
                await self._drained.wait()
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(StopStep.TERMINATE)
