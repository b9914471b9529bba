"""One process that serves one call, from spawn to gone.

The verdict waits for the process's exit (Spec 001 5.3), except where the host has put an end to it:
then the caller is answered at once, and the process is seen to its end afterwards.
"""

from __future__ import annotations

import shlex
from typing import Any, assert_never

import trio
from msgspec.structs import replace

from protocol.connection import (
    Alive,
    Answered,
    Asked,
    Described,
    EventReceived,
    Events,
    HostCalled,
    ModuleLog,
    Notice,
    Notified,
    OfProcess,
    OutOfStep,
    Quarantined,
    Ready,
    Received,
    ResourceUpdated,
    StartAgain,
    StartFailed,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.errors import Failure, Outcome, Reason
from protocol.events import CallEvent, ErrorEvent
from protocol.json_line import Fault
from protocol.problem import without_password
from protocol.replies import read_error
from supervisor.policy.verdict import Exit, Said, Stopped, on_invocation
from supervisor.runtime.files.module_log import NOTED
from supervisor.runtime.process.dialogue import Receiver
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.process.opening import Opening
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.beginning import begin_dialogue, incarnate
from supervisor.runtime.supervision.call import Call, Server
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.life import HELD, Ended, Instance, Setting
from supervisor.runtime.supervision.warm_processes import WarmProcess, WarmProcesses

RAN_CHARS = 500
"""Of the command line that a failure shows."""


class Run(Receiver, Server):
    def __init__(self, setting: Setting, call: Call, warm: WarmProcesses | None = None) -> None:
        """With `warm`, one of these processes serves the call, if there is one."""
        self.id = setting.next_instance() if warm is None else setting.descriptor.name
        self.call = call
        self._setting = setting
        self._warm = warm
        self._timeouts = setting.descriptor.supervision.timeouts
        self._what = f"{setting.descriptor.name}.{call.request.op or call.request.operation}"
        self._said = Said()
        self._ran = ""
        """The command line, if it is made of the request's args."""
        self._incarnation: Incarnation | None = None
        self._stopped: Stopped | None = None
        self._stop_at: StopStep | None = None
        self._opening: Opening | None = None
        self._exit_timer: Timer | None = None

    async def run(self) -> Ended | None:
        """Spawn, speak, judge; whatever happens, the call is settled then.

        Returns the process's end if that was a bad one, and its own: not that the host stopped it.
        """
        try:
            exit_ = await self._run()
        finally:
            if self._exit_timer is not None:
                self._exit_timer.cancel()
            # The daemon itself is ending without waiting, or there was a mistake of ours.
            self.call.settle(self._setting.host.stopping(self.id, self.evidence()))
        if exit_ is None or self._said.bears(exit_):
            return None
        if exit_.stopped_by_host and exit_.breach is None:
            return None
        return Ended(str(exit_.reason), f"{exit_.words}{exit_.remark}", exit_)

    async def _run(self) -> Exit | None:
        if self._warm is not None and not self.call.settled:
            await self._warm.refresh()
        if self.call.settled:
            return None
        process = None if self._warm is None else self._warm.take()
        if process is not None:
            return await self._run_warm(process)
        return await self._run_cold()

    async def _run_warm(self, process: WarmProcess) -> Exit:
        self._name(process.id)
        self._incarnation = process.incarnation
        exit_ = await process.serve(self.call, self)
        return self._judge(exit_)

    async def _run_cold(self) -> Exit | None:
        setting = self._setting
        if self._warm is not None:
            self._name(setting.next_instance())
        dialogue = begin_dialogue(setting, self.id, self)
        dialogue.ask(self.call.request)
        self.call.mark = dialogue.mark
        if self._said.answer is not None:  # it takes no process to say so
            dialogue.end()
            self.call.settle(self._said.answer)
            return None
        self._opening = dialogue.opening()
        if setting.descriptor.transport.protocol == "exec":
            ran = shlex.join((*setting.descriptor.transport.command, *dialogue.arguments))
            self._ran = without_password(ran)[:RAN_CHARS]
        try:
            incarnation = await incarnate(
                setting, dialogue, self._opening, self.call.request.traceparent
            )
        except SpawnError as error:
            dialogue.end()  # what was asked may have set its waits off
            words = f"{self._what} could not be started: {error}"
            self.call.settle(Failure.because(Reason.SPAWN_FAILED, words, instance=self.id))
            return None
        self._incarnation = incarnation
        if self._stop_at is not None:
            incarnation.stop(self._stop_at)
        with setting.host.sampler.watching(incarnation, setting.descriptor.supervision.limits):
            exit_ = self._judge(await incarnation.run())
        return await incarnation.remove_container(exit_)

    def _name(self, instance: str) -> None:
        self.id = instance
        self._setting.overhear(instance, self.call)

    def _judge(self, exit_: Exit) -> Exit:
        outcome = on_invocation(self._said, exit_, self._stopped, self._what)
        if isinstance(outcome, Failure) and self._ran:
            outcome = replace(outcome, details={**outcome.details, "ran": self._ran})
        self.call.settle(outcome)
        return exit_

    def stop(self, rung: StopStep) -> None:
        """Stop the process; before it exists, as soon as it does."""
        if self._incarnation is None:
            self._stop_at = rung if self._stop_at is None else max(rung, self._stop_at)
            if self._opening is not None:
                self._opening.withheld = True
        else:
            self._incarnation.stop(rung)

    def instance(self) -> Instance | None:
        incarnation = self._incarnation
        if incarnation is None:
            return None
        state = HELD if incarnation.is_held else None
        return Instance(self.id, incarnation.pid, incarnation.uptime_s, 1, state)

    # What the process says; that it closes its stdin says nothing: a tool need not read its input
    # (Spec 001 section 6).

    def receive(self, events: Events) -> None:
        call = self.call
        call.heard_at = trio.current_time()
        noted: list[CallEvent] = []
        for item in events:
            match item:
                case EventReceived():
                    if type(item.event) in NOTED:
                        noted.append(item.event)
                    if not call.settled:
                        call.listener.event(item.event, call, item.line)
                case _:
                    self._receive_other(item)
        if noted:
            self._note(noted)

    def _receive_other(self, item: Received) -> None:
        match item:
            case Answered():
                self._said = replace(self._said, answer=item.outcome, codes=item.codes)
                self._expect_exit(self._timeouts.linger_s)
                if item.fault is not None:
                    self._violated(item.fault)
            case Warned():
                self.call.warn(item.notice)
            case Violated():
                self._violated(item.fault)
            case HostCalled():
                # A process that can be told nothing after its request cannot be answered.
                self._setting.counters.late_lines += 1
            case Asked() | Unanswered():
                pass  # it serves this call and no other, and its exit says how
            case EventReceived():
                raise AssertionError
            case _:
                self._of_process(item)

    def _note(self, events: list[CallEvent]) -> None:
        self._setting.log.events(self.id, events)
        last = next((one for one in reversed(events) if isinstance(one, ErrorEvent)), None)
        if last is not None:
            self._said = replace(self._said, error=read_error(last))

    def _of_process(self, item: OfProcess) -> None:
        match item:
            case Stray() | Quarantined() | ModuleLog():
                self._setting.keep(self.id, item)
                self._warn_of(item)
            case StartFailed():
                self._violated(Fault(Reason.NOT_READY, f"the process {item.message}", ""))
            case StartAgain() | OutOfStep():
                self._violated(Fault(Reason.NOT_READY, f"the process {item.why}", ""))
            case Alive() | Described() | Notified() | Ready() | ResourceUpdated():
                pass
            case _:
                assert_never(item)

    def congested(self) -> bool:
        """Whether the listener cannot keep up; a settled call has none."""
        return not self.call.settled and bool(self.call.listener.congested())

    def drained(self) -> None:
        self.nudge()

    def stdout_closed(self) -> None:
        self._expect_exit(self._timeouts.exit_s)

    def held(self, end: Exit) -> None:
        """Settle the call: it is over, though its process's place is not free yet."""
        self._judge(end)

    # What becomes of the call (call.Server).

    def refined(self, stopped: Stopped) -> Stopped:
        """Say of a deadline that the answer was there, if it was."""
        if self._said.answer is None or stopped.reason not in (Reason.DEADLINE, Reason.SILENCE):
            return stopped
        return self._lingered("answered, and still ran at the deadline")

    def _lingered(self, words: str) -> Stopped:
        return Stopped(Reason.EXIT_DEADLINE, f"{self._what}: its process {words}")

    def give_up(self, call: Call, stopped: Stopped) -> None:
        del call
        self._stopped = stopped
        self.stop(StopStep.TERMINATE)
        self.nudge()

    def evidence(self) -> dict[str, Any]:
        incarnation = self._incarnation
        if incarnation is not None:
            return {**incarnation.evidence(), "reported": self._said.carried}
        known = self.id != self._setting.descriptor.name  # which of the warm ones it will be
        return {"instance": self.id} if known else {}

    def nudge(self) -> None:
        if self._incarnation is not None:
            self._incarnation.nudge()

    def _violated(self, fault: Fault) -> None:
        self._said = replace(self._said, fault=fault)
        # A line that the end of the output cut off: the process is ending as it is.
        if fault.reason is not Reason.TRUNCATED_LINE:
            self._expect_exit(self._timeouts.exit_s)
            self.stop(StopStep.TERMINATE)

    def _warn_of(self, item: Stray | Quarantined | ModuleLog) -> None:
        match item:
            case Stray():
                words = "a line after the answer was not accepted"
                self.call.warn(Notice("after_done", words, item.excerpt))
            case Quarantined():
                self.call.warn(Notice.of(item.fault))
            case ModuleLog():
                pass

    def _expect_exit(self, within_s: float) -> None:
        if self._exit_timer is None:
            deadlines = self._setting.host.deadlines
            self._exit_timer = deadlines.after(within_s, self._exit_overdue)

    def _exit_overdue(self) -> None:
        if self._said.fault is not None:
            outcome: Outcome = self._said.fault.failure(**self.evidence())
        elif self._said.answer is None:
            words = f"{self._what}: its process closed its stdout without `done` and kept running"
            outcome = Failure.because(Reason.MISSING_DONE, words, **self.evidence())
        else:
            words = f"still ran {self._timeouts.linger_s:g} s after its answer"
            stopped = self._lingered(words)
            outcome = Failure.because(stopped.reason, stopped.message, **self.evidence())
        self.call.settle(outcome)
        self.stop(StopStep.TERMINATE)
        self.nudge()
