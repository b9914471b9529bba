r"""A persistent process: it starts, says who it is, and serves many calls.

    spawn -> its dialect's handshake -> ready ... probes while idle ... -> gone
             \--StartAgain, once--> gone -> spawn

What a call that the host gives up (deadline, cancel) leaves behind:

- nothing, if none of its request was written: that is taken back;
- half a line, if the process does not read it: the process is replaced. In a dialect that is
  patient (`dialects.Dialect`) the rest is written in time, if the process has other calls;
- an answer to come that could be taken for another call's, if the process echoes no ids: the
  process is replaced;
- else doubt: its late lines are told by their id and dropped; a probe finds out whether it still
  answers (`probing`), and with `concurrency` 1, or a patient dialect, no call is given to it
  before that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
import trio

from protocol.connection import (
    LOOK_AGAIN,
    Alive,
    Answered,
    Asked,
    Described,
    EventReceived,
    Events,
    Flow,
    HostCalled,
    ModuleLog,
    Notified,
    OfProcess,
    OutOfStep,
    Quarantined,
    Ready,
    Received,
    Request,
    ResourceUpdated,
    StartAgain,
    StartFailed,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.descriptor.model import Restart
from protocol.errors import Failure, Outcome, Reason
from protocol.events import CallEvent, UiEvent
from protocol.framing import Written
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, Stopped, on_death
from supervisor.runtime.files.module_log import NOTED
from supervisor.runtime.process.dialogue import Receiver
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.call import Call, Server
from supervisor.runtime.supervision.flow_control import FlowControl
from supervisor.runtime.supervision.life import Ended, Instance, Life, Setting
from supervisor.runtime.supervision.notes import keep, recall
from supervisor.runtime.supervision.probing import Probing
from supervisor.runtime.supervision.start_attempt import StartAttempt

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker

LEFT = "; a persistent module has to keep reading after its first answer, until its stdin ends"
MUTE = "; it answered nothing"
A_LOOP = (
    ": a persistent module has to read its stdin line by line until that ends, and to answer each "
    "line with one of its own"
)
PER_INVOCATION = ', or to have "lifecycle":"per-invocation" in its transport'
"""Words for a process that ends well by itself after one request, or none."""


class PersistentLife(Life, Receiver, Server):
    def __init__(self, setting: Setting, owner: Worker) -> None:
        self.id = setting.next_instance()
        self._setting = setting
        self._owner = owner
        self._timeouts = setting.descriptor.supervision.timeouts
        self._concurrency = setting.descriptor.supervision.concurrency
        self._dialogue = setting.begin_dialogue(self.id, self)
        self._incarnation: Incarnation | None = None
        self._nursery: trio.Nursery | None = None
        self.times_heard = 0
        self._calls: dict[str, Call] = {}
        self._talked: list[Call] = []
        """The calls of which the newest piece of output had events."""
        self._now = trio.lowlevel.current_clock().current_time
        self._probing = Probing(setting, self, owner)
        self._flow = FlowControl(self._calls, self._tell_flow, self._end_slow)
        self._replaced_for: str | None = None
        self._ending = trio.Event()
        self._was_idle = False
        """Whether it ended by itself, with 0, while it had no call."""
        self._closed = False
        """Whether it takes no more calls: set with `_ending`, and looked at for each call."""
        self._drained = trio.Event()
        self._has_answered = False
        self._served = 0
        self._abrupt = False
        self._hurried = False
        self._start = StartAttempt(setting, self, owner)
        self._given_up = ""
        """The clause that says why a call was given up last."""
        self._left_with: tuple[str, float] | None = None
        """The `oldest` call, once that is given up."""

    async def run(self) -> Ended:
        """Spawn and serve until the process is gone, or the second one of a start is."""
        try:
            exit_ = await self._run()
            why = self._start.next_process()
            if why is not None:
                self._setting.log.host_line(self.id, f"is started once more: it {why}")
                self.id = self._setting.next_instance()
                self._dialogue = self._setting.begin_dialogue(self.id, self)
                exit_ = await self._run()
        except SpawnError as error:
            return Ended("spawn_failed", f"could not be started: {error}")
        finally:
            self._close()  # cancelled, it takes no more calls either
        keep(self._setting)
        ended = await self._start.ended(exit_, has_heard=bool(self._dialogue.times_heard))
        return msgspec.structs.replace(ended, idle=self._was_idle and self._start.was_ready)

    async def _run(self) -> Exit:
        """Run one process from spawn to gone; then settle all that it was still asked."""
        setting = self._setting
        await recall(setting)
        self._incarnation = incarnation = await setting.incarnate(self._dialogue)
        self._start.begin(self._dialogue)
        exit_: Exit | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._retire, incarnation)
                limits = setting.descriptor.supervision.limits
                with setting.host.sampler.watching(incarnation, limits):
                    exit_ = self._remarked(await incarnation.run())
                nursery.cancel_scope.cancel()
        finally:
            if self._start.again is None or exit_ is None:
                self._close()
            setting.descriptions.end(self.id)
            setting.host.calls.end(self.id)
            self._probing.end()
            if exit_ is None:  # the daemon itself is ending without waiting
                self._fail_all(setting.host.stopping(self.id, self.evidence()), probes=True)
            else:
                self._settle_all(exit_)
        return await incarnation.remove_container(exit_)

    def _remarked(self, exit_: Exit) -> Exit:
        remark = self._start.remark
        by_itself = exit_.exit_code == 0 and not exit_.stopped_by_host
        self._was_idle = by_itself and not self._calls
        if by_itself and self._served <= 1:
            own = self._setting.descriptor.transport.protocol == "module"
            if self._has_answered:
                remark = LEFT + PER_INVOCATION if own else LEFT
            else:
                remark += MUTE + A_LOOP + PER_INVOCATION if own else MUTE
        return msgspec.structs.replace(exit_, remark=remark + exit_.remark)

    def is_alive(self) -> bool:
        return self._incarnation is not None and not self._incarnation.exited

    def can_take(self) -> bool:
        return (
            len(self._calls) < self._concurrency
            and not self._closed
            and not (self._probing.in_doubt and self._probing.holds_back)
        )

    @property
    def load(self) -> int:
        return len(self._calls)

    @property
    def oldest(self) -> tuple[str, float] | None:
        """As `Life.oldest`; the call may have been given up."""
        for call in self._calls.values():
            return call.request.op, call.begun_at
        return self._left_with if self._probing.in_doubt else None

    def take(self, call: Call) -> None:
        self._calls[call.request.request_id] = call
        call.server = self
        if call.heard_at:
            call.heard_at = call.begun_at = self._now()
        if self._setting.taps.listeners:
            self._setting.overhear(self.id, call)
        busy = len(self._calls) > 1
        if self._talked:
            self.nudge()  # those in flight may all be slow: it is read for this one
        self._dialogue.ask(call.request, busy=busy)
        call.mark = self._dialogue.mark

    def end(self, *, abrupt: bool) -> None:
        self._abrupt = self._abrupt or abrupt
        self._close()
        if self._abrupt or not self._calls or self._incarnation is None:
            self._drained.set()

    def hurry(self) -> None:
        self._hurried = True
        self.end(abrupt=True)
        if self._incarnation is not None:
            self._incarnation.stop(StopStep.KILL)

    def instances(self) -> list[Instance]:
        incarnation = self._incarnation
        if incarnation is None:
            return []
        return [
            Instance(
                self.id,
                incarnation.pid,
                incarnation.uptime_s,
                len(self._calls),
                warning=self._start.warning,
            )
        ]

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        return await self._probing.ask(operation, timeout_s)

    async def look_again(self) -> None:
        """Ask the process for its ops anew, and wait for the answer, or its end."""
        await self._probing.ask(Operation.DESCRIBE, math.inf, LOOK_AGAIN)

    # What the process says (dialogue.Receiver).

    def receive(self, events: Events) -> None:
        self.times_heard += 1
        heard_at = self._now()
        freed = False
        talked: list[Call] = []
        noted: list[CallEvent] = []
        last: Call | None = None
        calls = self._calls
        for item in events:
            if type(item) is EventReceived:
                call = calls.get(item.request_id)
                if call is not None:
                    if call is not last:
                        last = call
                        talked.append(call)
                        call.heard_at = heard_at
                    event = item.event
                    call.listener.event(event, call, item.line)
                    if type(event) is not UiEvent and type(event) in NOTED:
                        noted.append(event)
            elif type(item) is Answered:  # `isinstance` of a msgspec type is slow to say no
                freed = self._answered(item) or freed
            else:
                self._receive_other(item)
        if noted:
            self._setting.log.events(self.id, noted)
        if talked or self._talked:
            self._talked = [call for call in talked if not call.settled]
            self._flow.heard(self._talked)
        if freed:
            self._owner.capacity_freed(self)

    def _receive_other(self, item: Received) -> None:
        match item:
            case Warned() | Violated():
                self._faulty(item)
            case HostCalled():
                self._called(item)
            case Asked():
                self._probing.overhear(item.request)
            case Unanswered():
                # Its call is settled with the exit, which says why.
                if item.error is not None and item.request_id in self._calls:
                    self._calls[item.request_id].error = item.error
            case EventReceived() | Answered():
                raise AssertionError
            case _:
                self._of_process(item)

    def _of_process(self, item: OfProcess) -> None:
        match item:
            case Stray() | Quarantined() | ModuleLog():
                self._setting.keep(self.id, item)
                self._start.note_instead(item)
                if isinstance(item, Stray):
                    self._note_stray(item)
            case Ready():
                self._ready(item)
            case Described():
                self._setting.descriptions.change(self.id, item.description)
            case ResourceUpdated() | Notified():
                self._setting.host.observer.told(self._setting.descriptor.name, item)
            case StartFailed():
                self._start.fail(Ended(item.reason, item.message), item.bound)
            case StartAgain():
                self._start_again(item.why)
            case Alive():
                self._alive(item.request_id)
            case OutOfStep():
                self.replace(f"{self._given_up}{item.why}")
            case _:
                assert_never(item)

    def _note_stray(self, item: Stray) -> None:
        if item.words or (item.named is not None and len(self._calls) == 1):
            for call in self._calls.values():
                call.instead = item

    def congested(self) -> bool:
        """Whether a client that was just told something, or the module itself, cannot keep up."""
        return self._dialogue.congested or (
            bool(self._talked) and self._flow.pauses_all(self._talked)
        )

    def drained(self) -> None:
        self.nudge()

    def stdout_closed(self) -> None:
        self._cut_off("stdout", "cannot answer")

    def stdin_broken(self) -> None:
        self._cut_off("stdin", "cannot be asked")

    def held(self, end: Exit) -> None:
        """Settle its calls: they are over, though its place is not free yet."""
        self._settle_all(end)
        by = "it cannot be reaped"
        if end.traced_by is not None:
            by = f"{end.traced_by.words} holds it"
        self.replace(f"{end.words}, and {by}")

    def _cut_off(self, pipe: str, consequence: str) -> None:
        if self._closed:
            return
        on_demand = self._setting.descriptor.supervision.restart is Restart.ON_DEMAND
        idle = self._start.was_ready and not self._calls
        if on_demand and idle and self._nursery is not None:
            self._closed = True  # it may be on its way to an end while idle
            self._nursery.start_soon(self._replace_unless_it_ends, pipe)
        else:
            words = f"{self.id} closed its {pipe} and kept running, so it {consequence}"
            self._fail_all(Failure.because(Reason.BROKEN_PIPE, words, **self.evidence()))
            self.replace(f"closed its {pipe} and kept running")

    async def _replace_unless_it_ends(self, pipe: str) -> None:
        await trio.sleep(self._timeouts.exit_s)
        self.replace(f"closed its {pipe} and kept running")

    # What becomes of a call (call.Server).

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """Forget a call that the host has settled itself."""
        request_id = call.request.request_id
        if self._calls.pop(request_id, None) is None:
            return
        self._given_up = f"was given up on ({stopped.reason}) and "
        self._left_with = call.request.op, call.begun_at
        to_its_end = bool(self._calls) and self._setting.dialect.patient
        written = self._dialogue.cancel(request_id, to_its_end=to_its_end)
        if written is Written.PART:
            self.replace(f"did not read the request it was sent ({stopped.reason})")
        elif self._replaced_for is None:
            self._probing.given_up(written=written is Written.ALL)
        self.nudge()
        self._check_drained()
        self._owner.capacity_freed(self)

    def _tell_flow(self, request_id: str, operation: Flow) -> None:
        self._dialogue.flow(request_id, operation)

    def _end_slow(self, call: Call, stopped: Stopped) -> None:
        words = f"{self._setting.descriptor.name}.{call.request.op}: {stopped.message}"
        call.settle(Failure.because(stopped.reason, words, **self.evidence()))
        self.give_up(call, stopped)

    def evidence(self) -> dict[str, Any]:
        incarnation = self._incarnation
        if incarnation is None:
            return {"instance": self.id}
        return {**incarnation.evidence(), "unfinished_line": self._dialogue.unfinished_line}

    def nudge(self) -> None:
        """Let a paused reader look again, and resume paused calls that may go on."""
        self._flow.look()
        if self._incarnation is not None:
            self._incarnation.nudge()

    # What probing asks of it (probing.Probed).

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    @property
    def ending(self) -> bool:
        return self._closed

    def send(self, request: Request) -> None:
        self._dialogue.ask(request)

    def replace(self, why: str) -> None:
        """Ask for its replacement; calls in flight are told the first reason."""
        self._replaced_for = self._replaced_for or why
        self._owner.happened(self, Input.REPLACE, why)

    def _answered(self, item: Answered) -> bool:
        outcome = item.outcome
        self._has_answered = True
        if item.fault is not None:
            outcome = item.fault.failure(**self.evidence())
        self._probing.unproven = False
        call = self._calls.pop(item.request_id, None)
        if call is None:
            self._probing.answered(item, outcome)
            return False
        self._served += 1
        call.settle(outcome)
        if not self._calls:
            self._check_drained()
        return True

    def _faulty(self, item: Warned | Violated) -> None:
        call = self._calls.get(item.request_id)
        if call is not None and isinstance(item, Violated):
            call.fault = item.fault
            return
        # A probe has no response that could carry a warning.
        self._setting.keep(self.id, item)
        self._start.note_instead(item)
        if call is not None and isinstance(item, Warned):
            call.warn(item.notice)

    def _called(self, item: HostCalled) -> None:
        if item.request_id is None:
            self._setting.called(item, self._dialogue)
            return
        call = self._calls.get(item.request_id)
        if call is None:
            self._dialogue.refuse(item, "host calls of this request are not served")
            return
        call.heard_at = trio.current_time()
        call.listener.host_call(item, self._dialogue, call)

    def _alive(self, request_id: str | None) -> None:
        call = None if request_id is None else self._calls.get(request_id)
        if call is not None:
            call.heard_at = trio.current_time()
        elif request_id is None:
            self._probing.alive()

    # Its start.

    def _ready(self, ready: Ready) -> None:
        if not self._start.is_open:
            return
        misfit = self._setting.descriptions.begin(self.id, ready.description)
        if misfit is not None:
            self._start.fail(Ended("bad_describe", misfit))
            return
        assert self._nursery is not None  # noqa: S101 - there is a process, and so a nursery
        self._nursery.start_soon(self._probing.resolve_doubts)
        self._probing.begin()
        keep(self._setting)
        self._start.succeed(ready.why)
        self._setting.host.observer.instance_ready(self._setting.descriptor.name)

    def _start_again(self, why: str) -> None:
        if self._start.ask_again(why) and self._incarnation is not None:
            self._incarnation.stop(StopStep.TERMINATE)

    # The tasks beside the process.

    def _close(self) -> None:
        self._closed = True
        self._ending.set()
        self._start.end()

    def _ended_for(self) -> Failure:
        if self._replaced_for is None or self._setting.host.shutting_down:
            return self._setting.host.stopping(self.id, self.evidence())
        words = f"{self.id} is being replaced: it {self._replaced_for}"
        return Failure.because(Reason.STOPPING, words, **self.evidence())

    async def _retire(self, incarnation: Incarnation) -> None:
        await self._ending.wait()
        if not self._abrupt:
            with trio.move_on_after(self._timeouts.stop_s):
                await self._drained.wait()
        self._fail_all(self._ended_for())
        if self._hurried:  # before there was a process to kill
            incarnation.stop(StopStep.KILL)
        elif self._abrupt and not self._start.is_too_late:
            incarnation.stop(StopStep.TERMINATE)
        else:
            # What a program holds in its buffer shows when it comes to the end of its input.
            self._start.was_mute = self._abrupt and not self._dialogue.times_heard
            incarnation.stop(StopStep.END_OF_INPUT)

    def _check_drained(self) -> None:
        if not self._calls and self._closed:
            self._drained.set()

    def _settle_all(self, exit_: Exit) -> None:
        left = [*self._probing.take_open().values(), *self._calls.values()]
        self._calls.clear()
        for call in left:
            what = f"{self._setting.descriptor.name}.{call.request.op or call.request.operation}"
            call.settle(on_death(exit_, call.fault, what, call.error))

    def _fail_all(self, failure: Failure, *, probes: bool = False) -> None:
        left = list(self._calls.values())
        self._calls.clear()
        if probes:
            left += self._probing.take_open().values()
        for call in left:
            call.settle(failure)
        self.nudge()
