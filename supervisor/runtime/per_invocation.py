"""A process per invocation: readiness means that the command could be run.

A run's verdict waits for its process's exit (Spec 001 5.3), except where the host has put an end
to it: then the caller is answered at once, and the process is seen to its end afterwards.
"""

from __future__ import annotations

from typing import Any, assert_never

import trio

from protocol.connection import (
    Answered,
    EventReceived,
    ModuleLog,
    Notice,
    Quarantined,
    Received,
    Request,
    Stray,
    Violated,
    Warned,
)
from protocol.dialects import DIALECTS
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.json_line import Fault
from protocol.replies import Operation
from supervisor.policy.verdict import Exit, Said, Stopped, on_invocation
from supervisor.runtime.call import Awaited, Call
from supervisor.runtime.deadlines import Timer
from supervisor.runtime.incarnation import Incarnation, Rung
from supervisor.runtime.life import Ended, Instance, Owner, Setting
from supervisor.runtime.process import check_program, spawn
from supervisor.runtime.program import SpawnError


class PerInvocationLife:
    """The readiness of a per-invocation module, and the processes it runs at the moment."""

    def __init__(self, setting: Setting, owner: Owner) -> None:
        self.id = setting.descriptor.name
        self._setting = setting
        self._owner = owner
        self._runs: set[Run] = set()
        self._ending = trio.Event()
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
            try:
                self._owner.started(self)
                await self._ending.wait()
                await self._retire()
            finally:
                self._ending.set()  # cancelled, it takes no more calls either
            # The nursery stays open until each run has seen its process to the end.
        return Ended("stopped", "was stopped", Exit(exit_code=0))

    def is_alive(self) -> bool:
        """Return True: readiness has no process that could have died."""
        return True

    def can_take(self) -> bool:
        """Whether one more process may run."""
        concurrency = self._setting.descriptor.supervision.concurrency
        return (
            self._nursery is not None
            and not self._ending.is_set()
            and len(self._runs) < concurrency
        )

    def take(self, call: Call) -> None:
        """Run a process for a call."""
        assert self._nursery is not None  # noqa: S101 - can_take said so
        run = Run(self._setting, call)
        self._runs.add(run)
        call.server = run
        call.heard_at = trio.current_time()
        self._nursery.start_soon(self._serve, run)

    def end(self, *, abrupt: bool) -> None:
        """Take no more calls; see `Life`."""
        self._ending.set()
        if abrupt:
            self._abrupt.set()
        if abrupt or not self._runs:
            self._drained.set()

    def hurry(self) -> None:
        """Kill all processes."""
        self.end(abrupt=True)
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(Rung.KILL)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        """Answer for the module where its dialect cannot be asked; else run a process that does.

        DESIGN 5.2: a probe must never run a Spec 001 tool.
        """
        descriptor = self._setting.descriptor
        if DIALECTS[descriptor.transport.protocol].answers_probes:
            return await self._ask_process(operation, timeout_s)
        if operation is Operation.HEALTH:
            return await self._check()
        return Success(
            {
                "name": descriptor.name,
                "version": descriptor.version,
                "kind": str(descriptor.kind),
                "capabilities": list(descriptor.capabilities),
                "inputs": descriptor.inputs or {},
                "outputs": descriptor.outputs or {},
            }
        )

    def instances(self) -> list[Instance]:
        """Return the processes that run now."""
        return [shown for run in self._runs if (shown := run.instance()) is not None]

    async def _check(self) -> Outcome:
        host = self._setting.host
        try:
            # In a thread: a folder on a slow disk is not to hold up the neighbours.
            await trio.to_thread.run_sync(
                check_program, self._setting.descriptor, host.environment, self.id
            )
        except SpawnError as error:
            return Failure.because(Reason.SPAWN_FAILED, f"could not be started: {error}")
        return Success({"status": "ok"})

    async def _ask_process(self, operation: Operation, timeout_s: float) -> Outcome:
        awaited = Awaited()
        call = Call(Request(self._setting.host.next_request_id(), operation), awaited)
        if self._nursery is None or self._ending.is_set():
            return self._setting.host.stopping(self.id, {})
        self.take(call)
        words = f"{self.id} gave no answer to {operation} in {timeout_s:g} s"
        try:
            with trio.move_on_after(timeout_s):
                return await awaited.wait()
        finally:
            # Also if nobody waits any more: a probe's process has no other bound.
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
            if not self._runs and self._ending.is_set():
                self._drained.set()
        self._owner.capacity_freed(self)

    async def _retire(self) -> None:
        if not self._abrupt.is_set():
            with trio.move_on_after(self._setting.descriptor.supervision.timeouts.stop_s):
                await self._drained.wait()
        for run in tuple(self._runs):
            run.call.settle(self._setting.host.stopping(run.id, run.evidence()))
            run.stop(Rung.TERMINATE)


class Run:
    """One process serving one call."""

    def __init__(self, setting: Setting, call: Call) -> None:
        self.id = setting.next_instance()
        self.call = call
        self._setting = setting
        self._timeouts = setting.descriptor.supervision.timeouts
        self._what = f"{setting.descriptor.name}.{call.request.op or call.request.operation}"
        self._answer: Outcome | None = None
        self._fault: Fault | None = None
        self._incarnation: Incarnation | None = None
        self._stopped: Stopped | None = None
        self._stop_at: Rung | None = None
        self._exit_timer: Timer | None = None

    async def run(self) -> Ended | None:
        """Spawn, speak, judge; whatever happens, the call is settled then.

        Returns the process's end if that was a bad one, and its own: not that the host stopped it.
        """
        try:
            exit_ = await self._run()
        finally:
            # The daemon itself is ending without waiting, or there was a mistake of ours.
            self.call.settle(self._setting.host.stopping(self.id, self.evidence()))
        if exit_ is None or not exit_.abnormal:
            return None
        if exit_.stopped_by_host and exit_.breach is None:
            return None
        return Ended(str(exit_.reason), exit_.words, exit_)

    async def _run(self) -> Exit | None:
        setting = self._setting
        if self.call.settled:
            return None
        try:
            process = await spawn(
                setting.descriptor, setting.host.environment, self.id, setting.host.custody
            )
        except SpawnError as error:
            words = f"{self._what} could not be started: {error}"
            self.call.settle(Failure.because(Reason.SPAWN_FAILED, words, instance=self.id))
            return None
        connection = DIALECTS[setting.descriptor.transport.protocol].connect(setting.descriptor)
        self._incarnation = incarnation = Incarnation(
            self.id,
            process,
            connection,
            setting.log,
            exit_s=self._timeouts.exit_s,
            stop_s=self._timeouts.stop_s,
        )
        if self._stop_at is None:
            connection.send_request(self.call.request)
        else:
            incarnation.stop(self._stop_at)
        try:
            with setting.host.sampler.watching(incarnation, setting.descriptor.supervision.limits):
                exit_ = await incarnation.run(self)
        finally:
            if self._exit_timer is not None:
                self._exit_timer.cancel()
        said = Said(self._answer, self._fault)
        self.call.settle(on_invocation(said, exit_, self._stopped, self._what))
        return exit_

    def stop(self, rung: Rung) -> None:
        """Stop the process; before it exists, as soon as it does."""
        if self._incarnation is None:
            self._stop_at = rung
        else:
            self._incarnation.stop(rung)

    def instance(self) -> Instance | None:
        """Return the process as `status` shows it, once there is one."""
        incarnation = self._incarnation
        if incarnation is None:
            return None
        return Instance(self.id, incarnation.pid, incarnation.uptime_s, 1)

    # What the process says (incarnation.Receiver).

    def receive(self, received: list[Received]) -> None:
        """Take what was read; all of it is this call's."""
        call = self.call
        call.heard_at = trio.current_time()
        for item in received:
            match item:
                case EventReceived():
                    if not call.settled:
                        call.listener.event(item.event, call)
                case Answered():
                    self._answer = item.outcome
                    self._expect_exit()
                    if item.fault is not None:
                        self._violated(item.fault)
                case Warned():
                    call.warn(item.notice)
                case Violated():
                    self._violated(item.fault)
                case Stray() | Quarantined() | ModuleLog():
                    self._setting.keep(self.id, item)
                    self._warn_of(item)
                case _:
                    assert_never(item)

    def congested(self) -> bool:
        """Whether the listener cannot keep up; nobody listens to a settled call."""
        return not self.call.settled and self.call.listener.congested()

    def stdout_closed(self) -> None:
        """Its exit is what is left to wait for."""
        self._expect_exit()

    def stdin_broken(self) -> None:
        """Do nothing: a tool need not read its input (Spec 001 section 6)."""

    # What becomes of the call (call.Server).

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """Stop the process of a call that the host has settled itself."""
        del call
        self._stopped = stopped
        self.stop(Rung.TERMINATE)
        self.nudge()

    def evidence(self) -> dict[str, Any]:
        """Return what is known about the process, for `details`."""
        incarnation = self._incarnation
        return {"instance": self.id} if incarnation is None else incarnation.evidence()

    def nudge(self) -> None:
        """Have a paused reader look again."""
        if self._incarnation is not None:
            self._incarnation.nudge()

    def _violated(self, fault: Fault) -> None:
        self._fault = fault
        # A line that the end of the output cut off: the process is ending as it is.
        if fault.reason is not Reason.TRUNCATED_LINE:
            self._expect_exit()
            self.stop(Rung.TERMINATE)

    def _warn_of(self, item: Stray | Quarantined | ModuleLog) -> None:
        match item:
            case Stray():
                words = "a line after the answer was not accepted"
                self.call.warn(Notice("after_done", words, item.excerpt))
            case Quarantined():
                self.call.warn(Notice.of(item.fault))
            case ModuleLog():
                pass

    def _expect_exit(self) -> None:
        if self._exit_timer is None:
            deadlines = self._setting.host.deadlines
            self._exit_timer = deadlines.after(self._timeouts.exit_s, self._exit_overdue)

    def _exit_overdue(self) -> None:
        if self._fault is not None:
            outcome: Outcome = self._fault.failure(**self.evidence())
        elif self._answer is None:
            words = f"{self._what}: its process closed its stdout without `done` and kept running"
            outcome = Failure.because(Reason.MISSING_DONE, words, **self.evidence())
        else:
            words = (
                f"{self._what}: its process still ran {self._timeouts.exit_s:g} s after its answer"
            )
            outcome = Failure.because(Reason.EXIT_DEADLINE, words, **self.evidence())
        self.call.settle(outcome)
        self.stop(Rung.TERMINATE)
        self.nudge()
