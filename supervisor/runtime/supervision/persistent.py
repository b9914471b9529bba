r"""A persistent process: it starts, says who it is, and serves many calls.

    spawn -> its dialect's handshake -> ready ... probes while idle ... -> gone
             \--StartAgain, once--> gone -> spawn

`run` is all of it, from the first spawn to the last exit. `receive` takes what the process says,
and `_retire` stops the process once the worker ends the life.

What a call that the host gives up (deadline, cancel) leaves behind:

- nothing, if none of its request was written: that is taken back;
- half a line, if the process does not read it: the process is replaced. In a dialect that is
  patient (`dialects.Dialect`) the rest is written in time, if the process has other calls;
- an answer to come that could be taken for another call's, if the process echoes no ids: the
  process is replaced;
- else doubt: its late lines are told by their id and dropped; a probe finds out whether it still
  answers (`health`), and with `concurrency` 1, or a patient dialect, no call is given to it before
  that.

What becomes of a call whose client does not read what is streamed to it:

    no other client reads   the process is not read, and so gets slower by itself
    another client reads    the process is read: the slow call is told to pause (`flow`), what comes
                            of it all the same is kept, and beyond a bound it ends, alone

A paused call is resumed when its client has read (`nudge`). A dialect, or a module, that knows no
`flow` is not told; the bound is the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, assert_never

import trio
from msgspec.structs import replace

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
    Logged,
    Notice,
    Notified,
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
from protocol.descriptor.model import Restart
from protocol.errors import Failure, Outcome, Reason
from protocol.events import CallEvent, UiEvent
from protocol.framing import Written
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, Stopped, on_death, unset_remark
from supervisor.runtime.files.module_log import NOTED
from supervisor.runtime.process.effort import effort
from supervisor.runtime.process.incarnation import Receiver, StopStep
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Call, Congestion, Server
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.health import Probes
from supervisor.runtime.supervision.life import SLOW, Instance, Life, LifeEnd, Setting
from supervisor.runtime.supervision.notes import keep, recall

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker

START_DEADLINE = str(Reason.START_DEADLINE)

LATE = (
    "; it answered only when its stdin was closed: it does not flush its stdout after each line, "
    "or reads to the end of its input before it answers"
)

LEFT = "; a persistent module has to keep reading after its first answer, until its stdin ends"
MUTE = "; it answered nothing"
A_LOOP = (
    ": a persistent module has to read its stdin line by line until that ends, and to answer each "
    "line with one of its own"
)
PER_INVOCATION = ', or to have "lifecycle":"per-invocation" in its transport'
"""Words for a process that ends well by itself after one request, or none."""

_TOO_MUCH = Stopped(
    Reason.SLOW_READER,
    f"more than {OVERRUN_BYTES} bytes of its events were not read by its client, and"
    " the process serves other clients, too",
)

LOOK_S = 1.0
"""How long the end of a start waits for a look at its program."""


class PersistentLife(Life, Receiver, Server):
    def __init__(self, setting: Setting, owner: Worker) -> None:
        super().__init__(setting, owner)
        self._now = trio.lowlevel.current_clock().current_time
        self.process = setting.connect(self.id, self)
        self.probes = Probes(setting, self, owner)
        self._nursery: trio.Nursery | None = None

        # Its start.
        self._start_bound: Timer | None = None
        self._spawned = 0
        """How many processes it has had: a start may take two."""
        self._is_ready = False
        self._failure: LifeEnd | None = None
        """Why its start failed."""
        self._words_if_mute = ""
        """Why its start failed if it answers once its stdin is closed: no loop, no wait."""
        self._was_mute = False
        """Whether nothing had been printed when the time of its start was over."""
        self.times_heard = 0
        """How often events came: bytes that are no whole line are none."""
        self._second_start_reason = ""
        """Why its dialect wants a second process."""
        self._misplaced_output = ""
        """The last output in the place of an answer, as a clause."""
        self._warning: str | None = None
        """The last line that was set aside or not understood, and the reason."""

        # Its calls.
        self._calls: dict[str, Call] = {}
        self._talked: list[Call] = []
        """The calls of which the newest piece of output had events."""
        self._paused: set[str] = set()
        """The ids of the calls that were told to pause."""
        self._has_answered = False
        self._served = 0
        self._given_up = ""
        """The clause that says why a call was given up last."""
        self._left_with: tuple[str, float] | None = None
        """The `oldest` call, once that is given up."""

        # Its end.
        self._ending = trio.Event()
        self._closed = False
        """Whether the process takes no more calls: set with `_ending`, read for each call."""
        self._drained = trio.Event()
        self._abrupt = False
        self._replaced_for: str | None = None
        self._was_idle = False
        """Whether the process exited by itself, with 0, while no call was open."""

    # From spawn to gone.

    async def run(self) -> LifeEnd:
        """Spawn and serve until the process is gone, or the second one of a start is."""
        setting = self._setting
        try:
            await recall(setting)
            exit_ = await self._run_process()
            if self._awaits_second and not self._closed:
                setting.log.host_line(
                    self.id, f"is started once more: it {self._second_start_reason}"
                )
                self.id = setting.next_instance()
                self.process = setting.connect(self.id, self)
                exit_ = await self._run_process()
        except SpawnError as error:
            return LifeEnd("spawn_failed", f"could not be started: {error}")
        finally:
            self._close()  # cancelled, it takes no more calls either
        keep(setting)
        ended = LifeEnd(str(exit_.reason), f"{exit_.words}{exit_.remark}", exit_)
        if self._is_ready:
            return replace(ended, idle=self._was_idle)
        if self._failure is not None:
            was_late = self._was_mute and self.process.times_heard
            words = self._words_if_mute if was_late else self._failure.message
            words += unset_remark(setting.unset_variables)
            ended = replace(ended, reason=self._failure.reason, message=words)
        if setting.host.shutting_down:
            return ended
        with trio.move_on_after(LOOK_S):
            obstacle = await setting.look_for_obstacle("looking at")
            return replace(ended, obstacle=None if obstacle is None else obstacle.words)
        return ended

    async def _run_process(self) -> Exit:
        """Run one process from spawn to gone; then settle all that it was still asked."""
        setting, host, process = self._setting, self._setting.host, self.process
        await setting.spawn(process)
        self._spawned += 1
        if self._start_bound is None:
            bound_s = self._timeouts.start_s + self._timeouts.describe_s
            self._start_bound = host.deadlines.after(bound_s, self._start_overdue)
        exit_: Exit | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._retire)
                with host.sampler.watching(process, setting.descriptor.supervision.limits):
                    exit_ = self._remarked(await process.run())
                self._nursery.cancel_scope.cancel()
        finally:
            if exit_ is None or not self._awaits_second:
                self._close()
            setting.descriptions.end(self.id)
            host.calls.end(self.id)
            self.probes.watch.end()
            if exit_ is None:  # the daemon itself is ending without waiting
                self._fail_all(host.stopping(self.id, self.evidence()), probes=True)
            else:
                self._settle_all(exit_)
        return await process.remove_container(exit_)

    def _remarked(self, exit_: Exit) -> Exit:
        """Add what the output says of an end that nobody asked for."""
        remark = (
            "" if self._is_ready or not self._misplaced_output else f"; {self._misplaced_output}"
        )
        by_itself = exit_.exit_code == 0 and not exit_.stopped_by_host
        self._was_idle = by_itself and not self._calls
        if by_itself and self._served <= 1:
            own = self._setting.descriptor.transport.protocol == "module"
            if self._has_answered:
                remark = LEFT + PER_INVOCATION if own else LEFT
            else:
                remark += MUTE + A_LOOP + PER_INVOCATION if own else MUTE
        return replace(exit_, remark=remark + exit_.remark)

    async def _retire(self) -> None:
        """Once it is told to end, let its calls finish within `stop_s`, and stop the process."""
        await self._ending.wait()
        if not self._abrupt:
            with trio.move_on_after(self._timeouts.stop_s):
                await self._drained.wait()
        if self._replaced_for is None or self._setting.host.shutting_down:
            self._fail_all(self._setting.host.stopping(self.id, self.evidence()))
        else:
            words = f"{self.id} is being replaced: it {self._replaced_for}"
            self._fail_all(Failure.because(Reason.STOPPING, words, **self.evidence()))
        is_too_late = self._failure is not None and self._failure.reason == START_DEADLINE
        if self._abrupt and not is_too_late:
            self.process.stop(StopStep.TERMINATE)
        else:
            # At the end of its input a program flushes the answer that its buffer holds.
            self._was_mute = self._abrupt and not self.process.times_heard
            self.process.stop(StopStep.END_OF_INPUT)

    # Its start, as its dialect tells it. No handshake is without an end, whatever its dialect does;
    # what is said of a start that is over, or waits for its second process, changes nothing.

    @property
    def _awaits_second(self) -> bool:
        return bool(self._second_start_reason) and self._spawned == 1 and self._failure is None

    def _receive_start(self, item: Ready | StartFailed | StartAgain) -> None:
        match item:
            case StartFailed(reason=reason, message=message, bound=bound):
                self._fail_start(LifeEnd(reason, message), bound)
            case StartAgain(why=why) if self._spawned > 1:
                self._fail_start(LifeEnd("bad_start", f"{why}, for the second time"))
            case _ if self._is_start_over or self._awaits_second or self.process.pid is None:
                pass
            case StartAgain(why=why):
                self._second_start_reason = why
                self.process.stop(StopStep.TERMINATE)
            case Ready():
                self._ready(item)

    def _ready(self, ready: Ready) -> None:
        misfit = self._setting.descriptions.begin(self.id, ready.description)
        if misfit is not None:
            self._fail_start(LifeEnd("bad_describe", misfit))
            return
        assert self._nursery is not None  # noqa: S101 - there is a process, and so a nursery
        self._nursery.start_soon(self.probes.resolve_doubts)
        self.probes.watch.begin(self._setting.host.draw())
        keep(self._setting)
        self._is_ready = True
        self._end_start_bound()
        self._owner.happened(self, Input.STARTED, ready.why)
        self._setting.host.observer.instance_ready(self._setting.descriptor.name)

    def _start_overdue(self) -> None:
        awaited = " and ".join(one.for_what for one in self.process.connection.waits)
        words = f"was not ready within {self._timeouts.start_s + self._timeouts.describe_s:g} s"
        words += f"; it waited for {awaited}" if awaited else ""
        self._fail_start(LifeEnd(START_DEADLINE, words), "start_s")

    def _fail_start(self, ended: LifeEnd, bound: str = "") -> None:
        """Fail, for this reason, which may be a `bound` that was passed."""
        if self._is_start_over:
            return
        slow = SLOW.format(bound)
        self._words_if_mute = ended.message + LATE + (f"; {slow}" if bound else "")
        if bound and self._misplaced_output:
            ended = replace(ended, message=f"{ended.message}; {self._misplaced_output}")
        elif bound:
            done = effort(self.process.mark)
            words = done.words if done.is_busy else f"{done.words}; {slow}"
            ended = replace(ended, message=ended.message + words)
        self._failure = ended
        self._end_start_bound()
        self._owner.happened(self, Input.START_FAILED, ended.message, ended)

    @property
    def _is_start_over(self) -> bool:
        return self._is_ready or self._closed or self._failure is not None

    def _end_start_bound(self) -> None:
        if self._start_bound is not None:
            self._start_bound.cancel()

    # Called by the worker (life.Life).

    def is_alive(self) -> bool:
        return self.process.is_alive

    def can_take(self) -> bool:
        return (
            len(self._calls) < self._concurrency
            and not self._closed
            and not (self.probes.in_doubt and self.probes.holds_back)
        )

    @property
    def load(self) -> int:
        return len(self._calls)

    @property
    def is_ending(self) -> bool:
        return self._closed

    @property
    def oldest(self) -> tuple[str, float] | None:
        """As `Life.oldest`; the call may have been given up."""
        for call in self._calls.values():
            return call.request.op, call.begun_at
        return self._left_with if self.probes.in_doubt else None

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
        self.process.ask(call.request, busy=busy)
        call.mark = self.process.mark

    def end(self, *, abrupt: bool) -> None:
        self._abrupt = self._abrupt or abrupt
        self._close()
        if self._abrupt or not self._calls or self.process.pid is None:
            self._drained.set()

    def _close(self) -> None:
        self._closed = True
        self._ending.set()
        self._end_start_bound()

    def hurry(self) -> None:
        self.end(abrupt=True)
        self.process.stop(StopStep.KILL)

    def instances(self) -> list[Instance]:
        one = self.process
        if one.pid is None:
            return []
        return [Instance(self.id, one.pid, one.uptime_s, len(self._calls), warning=self._warning)]

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        return await self.probes.ask(operation, timeout_s)

    async def look_again(self) -> None:
        """Ask the process for its ops anew, and wait for the answer, or its end."""
        await self.probes.ask(Operation.DESCRIBE, math.inf, LOOK_AGAIN)

    # What the process says (`incarnation.Receiver`).

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
            self._pause_slow()
        if freed:
            self._owner.capacity_freed(self)

    def _receive_other(self, item: Received) -> None:
        match item:
            case Violated(request_id=request_id, fault=fault) if request_id in self._calls:
                self._calls[request_id].fault = fault
            case Stray() | Quarantined() | Logged() | Warned() | Violated():
                self._setting.keep(self.id, item)
                self._note_misplaced_output(item)
            case HostCalled():
                self._called(item)
            case Asked(request=request):
                self.probes.overhear(request)
            case Unanswered(request_id=request_id, error=error):
                # Its call is settled with the exit, which says why.
                if error is not None and request_id in self._calls:
                    self._calls[request_id].error = error
            case Ready() | StartFailed() | StartAgain():
                self._receive_start(item)
            case Described(description=description):
                self._setting.descriptions.change(self.id, description)
            case ResourceUpdated() | Notified():
                self._setting.host.observer.told(self._setting.descriptor.name, item)
            case Alive(request_id=None):
                self.probes.watch.alive()
            case Alive(request_id=request_id):
                if request_id in self._calls:
                    self._calls[request_id].heard_at = trio.current_time()
            case OutOfStep(why=why):
                self.replace(f"{self._given_up}{why}")
            case EventReceived() | Answered():
                raise AssertionError
            case _:
                assert_never(item)

    def _answered(self, item: Answered) -> bool:
        """Settle the call, or the probe, that this answers; returns whether it was a call."""
        outcome = item.outcome
        self._has_answered = True
        if item.fault is not None:
            outcome = item.fault.failure(**self.evidence())
        self.probes.unproven = False
        call = self._calls.pop(item.request_id, None)
        if call is None:
            self.probes.answered(item, outcome)
            return False
        self._served += 1
        call.settle(outcome)
        if not self._calls:
            self._check_drained()
        return True

    def _note_misplaced_output(
        self, item: Stray | Quarantined | Logged | Warned | Violated
    ) -> None:
        """Note what may have been meant as an answer: to a call, or during the start."""
        match item:
            case Logged():
                return
            case Stray():
                if item.words or (item.named is not None and len(self._calls) == 1):
                    for call in self._calls.values():
                        call.instead = item
                self._misplaced_output = item.in_place_of_answer or self._misplaced_output
                self._warning = item.warning or self._warning
                return
            case Warned(notice=notice):
                if item.request_id in self._calls:  # a probe's response could carry no warning
                    self._calls[item.request_id].warn(notice)
            case _:
                notice = Notice.of(item.fault)
        self._misplaced_output = notice.in_place_of_answer or self._misplaced_output
        self._warning = notice.words

    def _called(self, item: HostCalled) -> None:
        if item.request_id is None:
            self._setting.called(item, self.process)
            return
        call = self._calls.get(item.request_id)
        if call is None:
            self.process.refuse(item, "host calls of this request are not served")
            return
        call.heard_at = trio.current_time()
        call.listener.host_call(item, self.process, call)

    def stdout_closed(self) -> None:
        self._cut_off("stdout", "cannot answer")

    def stdin_broken(self) -> None:
        self._cut_off("stdin", "cannot be asked")

    def _cut_off(self, pipe: str, consequence: str) -> None:
        if self._closed:
            return
        on_demand = self._setting.descriptor.supervision.restart is Restart.ON_DEMAND
        idle = self._is_ready and not self._calls
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

    def held(self, end: Exit) -> None:
        """Settle its calls: they are over, though its place is not free yet."""
        self._settle_all(end)
        by = "it cannot be reaped"
        if end.traced_by is not None:
            by = f"{end.traced_by.words} holds it"
        self.replace(f"{end.words}, and {by}")

    def replace(self, why: str) -> None:
        """Ask for its replacement; calls in flight are told the first reason."""
        self._replaced_for = self._replaced_for or why
        self._owner.happened(self, Input.REPLACE, why)

    # Clients that do not read.

    def congested(self) -> bool:
        """Whether a client that was just told something cannot keep up."""
        return any(call.listener.congested() for call in self._talked) and not self._serves_others()

    def _pause_slow(self) -> None:
        """Pause, or end, the slow ones among the calls that the process has just talked to."""
        slow = [call for call in self._talked if call.listener.congested()]
        if not slow or not self._serves_others():
            return
        for call in slow:
            request_id = call.request.request_id
            if call.listener.congested() is Congestion.FULL:
                words = f"{self._setting.descriptor.name}.{call.request.op}: {_TOO_MUCH.message}"
                call.settle(Failure.because(_TOO_MUCH.reason, words, **self.evidence()))
                self.give_up(call, _TOO_MUCH)
            elif request_id not in self._paused:
                self._paused.add(request_id)
                self.process.flow(request_id, Flow.PAUSE)

    def _serves_others(self) -> bool:
        return any(not call.listener.congested() for call in self._calls.values())

    def nudge(self) -> None:
        """Let a paused reader look again, and resume paused calls whose clients have read."""
        for request_id in tuple(self._paused):
            call = self._calls.get(request_id)
            if call is None or not call.listener.congested():
                self._paused.discard(request_id)
                if call is not None:
                    self.process.flow(request_id, Flow.RESUME)
        self.process.nudge()

    # What becomes of a call (call.Server).

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """Forget a call that the host has settled itself."""
        request_id = call.request.request_id
        if self._calls.pop(request_id, None) is None:
            return
        self._given_up = f"was given up on ({stopped.reason}) and "
        self._left_with = call.request.op, call.begun_at
        to_its_end = bool(self._calls) and self._setting.dialect.patient
        written = self.process.cancel(request_id, to_its_end=to_its_end)
        if written is Written.PART:
            self.replace(f"did not read the request it was sent ({stopped.reason})")
        elif self._replaced_for is None:
            self.probes.given_up(written=written is Written.ALL)
        self.nudge()
        self._check_drained()
        self._owner.capacity_freed(self)

    def evidence(self) -> dict[str, Any]:
        known = self.process.evidence()
        if self.process.pid is not None:
            known["unfinished_line"] = self.process.connection.unfinished_line
        return known

    def _check_drained(self) -> None:
        if not self._calls and self._closed:
            self._drained.set()

    def _settle_all(self, exit_: Exit) -> None:
        left = [*self.probes.take_open(), *self._calls.values()]
        self._calls.clear()
        for call in left:
            what = f"{self._setting.descriptor.name}.{call.request.op or call.request.operation}"
            call.settle(on_death(exit_, call.fault, what, call.error))

    def _fail_all(self, failure: Failure, *, probes: bool = False) -> None:
        left = list(self._calls.values())
        self._calls.clear()
        if probes:
            left += self.probes.take_open()
        for call in left:
            call.settle(failure)
        self.nudge()
