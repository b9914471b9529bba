"""Ask for health: while there is nothing else to do, and when a persistent process is in doubt.

`HealthWatch` asks a process, or a service, at its own moments. There is no task for it: two timers
in the shared queue follow each other, the next check and the end of the wait for its answer. An
interval has `TICKS` moments, the same ones for all modules with that interval, and a process gets
one of them at random. So of 200 modules that started together some ten are asked in one wake-up,
and never all.

`Probes` are the host's own requests to a persistent process, and those that its connection makes
itself, such as those of its start. They are not counted as work in flight, and one whose answer is
late is not given up, since of a process that echoes no ids the late answer must find its request.

A process in doubt that still talks (late events of the call that was given up) is busy, not hung:
its probe is waited for as long as lines keep coming. With `concurrency` 1, and in a dialect that is
patient (`dialects.Dialect`), calls wait behind the probe, so it has no longer than a call has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from protocol.connection import Answered, Request
from protocol.descriptor.model import HealthChecks
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.supervision.call import NOBODY, Awaited, Call, Listener
from supervisor.runtime.supervision.deadlines import Deadlines, Timer
from supervisor.runtime.supervision.life import Setting

if TYPE_CHECKING:
    from supervisor.runtime.supervision.persistent import PersistentLife
    from supervisor.runtime.supervision.service import ServiceLife
    from supervisor.runtime.supervision.worker import Worker

TICKS = 20
"""A wake-up costs an idle daemon 0.8 ms, since all it needs has left the caches; each check in it
60 us. So more moments cost more than the checks themselves (200 modules at 40 moments: 0.45 % of a
core, at 20: 0.29 %), and fewer would hold up requests for longer: of 1,000 modules, 50 are asked at
one moment."""

UNANSWERED_PROBES = 8
"""Probes are not given up, to stay in step; so they are bounded in number."""


class HealthWatch(Listener):
    def __init__(
        self,
        checks: HealthChecks,
        health_s: float,
        deadlines: Deadlines,
        checked: Probes | ServiceLife,
    ) -> None:
        """An answer that takes longer than `health_s` counts as none."""
        self._checks = checks
        self._health_s = health_s
        self._deadlines = deadlines
        self._checked = checked
        self._tick_s = checks.interval_s / TICKS
        self._tick = 0
        self._timer: Timer | None = None
        self._asked: Call | None = None
        self._missed = 0

    def begin(self, phase: float) -> None:
        """Check from now on; the first time after this part (0 to 1) of the interval."""
        first_at = trio.current_time() + phase * self._checks.interval_s
        self._tick = math.ceil(first_at / self._tick_s)
        self._arm()

    def alive(self) -> None:
        """Forget the checks that were missed: it has shown that it is not stuck."""
        self._missed = 0

    def end(self) -> None:
        self._asked = None
        if self._timer is not None:
            self._timer.cancel()

    def answered(self, outcome: Outcome, call: Call) -> None:
        if call is not self._asked:
            return
        self.end()
        if isinstance(outcome, Success):
            self._missed = 0
            self._arm_next()
            self._checked.found(well=True)
        else:
            self._miss()

    def _due(self) -> None:
        if self._checked.occupied:
            self._missed = 0
            self._arm_next()
            return
        self._asked = self._checked.check(self)
        if self._asked is None:
            self._miss()
        else:
            self._timer = self._deadlines.after(self._health_s, self._late)

    def _late(self) -> None:
        self._asked = None
        self._miss()

    def _miss(self) -> None:
        if self._checked.occupied:
            self._arm_next()
            return
        self._missed += 1
        if self._missed >= self._checks.failures:
            self._checked.replace(f"missed {self._missed} health probes in a row")
            return
        self._arm_next()
        self._checked.found(well=False)

    def _arm_next(self) -> None:
        # The moments of the interval stay its own: one that has passed meanwhile is left out.
        passed_s = trio.current_time() - self._tick * self._tick_s
        self._tick += TICKS * (1 + max(0, math.floor(passed_s / self._checks.interval_s)))
        self._arm()

    def _arm(self) -> None:
        self._timer = self._deadlines.at(self._tick * self._tick_s, self._due)


class Probes:
    def __init__(self, setting: Setting, life: PersistentLife, owner: Worker) -> None:
        supervision = setting.descriptor.supervision
        self.in_doubt = False
        """Whether a call was given up and nothing was heard that shows the process still serves."""
        self.holds_back = supervision.concurrency == 1 or setting.dialect.patient
        """Whether calls wait while it is in doubt."""
        self.unproven = False
        """Whether a call was given up and nothing was answered since."""
        self._setting = setting
        self._timeouts = supervision.timeouts
        self._life = life
        self._owner = owner
        self._open: dict[str, Call] = {}
        self._doubted = trio.Event()
        self.watch = HealthWatch(
            supervision.health, self._timeouts.health_s, setting.host.deadlines, self
        )

    async def ask(
        self, operation: Operation, timeout_s: float, op: str = "", *, while_it_talks: bool = False
    ) -> Outcome:
        """Ask for `health` or `describe` and wait for the answer.

        With `while_it_talks`, `timeout_s` bounds the silence before the answer, not the wait.
        """
        awaited = Awaited()
        if self._send(operation, awaited, op) is not None:
            while True:
                heard_before = self._life.times_heard
                with trio.move_on_after(timeout_s):
                    return await awaited.wait()
                if not while_it_talks or self._life.times_heard == heard_before:
                    break
        words = f"{self._life.id} gave no answer to {operation} in {timeout_s:g} s"
        return Failure.because(Reason.DEADLINE, words, **self._life.evidence())

    def _send(self, operation: Operation, listener: Listener, op: str = "") -> Call | None:
        if len(self._open) >= UNANSWERED_PROBES:
            return None
        request = Request(self._setting.host.next_request_id(), operation, op)
        call = self._add(request, listener)
        self._life.process.ask(request)
        return call

    def overhear(self, request: Request) -> None:
        """Note a request that its connection made itself."""
        self._add(request, NOBODY)

    def _add(self, request: Request, listener: Listener) -> Call:
        call = self._open[request.request_id] = Call(request, listener)
        self._setting.overhear(self._life.id, call)
        return call

    def answered(self, item: Answered, outcome: Outcome) -> None:
        """Settle the probe that this answers, if it answers one."""
        probe = self._open.pop(item.request_id, None)
        if probe is not None:
            probe.fault = item.fault
            probe.settle(outcome)

    def take_open(self) -> list[Call]:
        """Return the probes without an answer; they are the caller's then."""
        taken, self._open = self._open, {}
        return list(taken.values())

    # The doubt after a call was given up.

    def given_up(self, *, written: bool) -> None:
        """A call was given up, after its request was written whole or not at all."""
        self.unproven = self.unproven or written
        if self.unproven and not self._life.load:  # another call's answer or deadline would tell
            self.unproven = False
            self.in_doubt = True
            self._doubted.set()

    async def resolve_doubts(self) -> None:
        """Probe the process when it is in doubt, until it is replaced."""
        longest_s = math.inf  # the process takes calls meanwhile, whose deadlines are bounds
        if self.holds_back:
            longest_s = max(self._timeouts.invoke_s, self._timeouts.health_s)
        while True:
            await self._doubted.wait()
            self._doubted = trio.Event()
            outcome: Outcome | None = None
            with trio.move_on_after(longest_s):
                outcome = await self.ask(
                    Operation.HEALTH, self._timeouts.health_s, while_it_talks=True
                )
            if not isinstance(outcome, Success):
                self._life.replace("did not answer after a call was given up")
                return
            if not self._doubted.is_set():
                self.in_doubt = False
                self._owner.capacity_freed(self._life)

    # Called by `HealthWatch`.

    @property
    def occupied(self) -> bool:
        """Whether calls, a doubt or the end of the process have bounds of their own now."""
        return bool(self._life.load) or self.in_doubt or self._life.is_ending

    def check(self, answered: HealthWatch) -> Call | None:
        return self._send(Operation.HEALTH, answered)

    def found(self, *, well: bool) -> None:
        news = Input.HEALTHY if well else Input.UNHEALTHY
        words = "answered a health probe" if well else "missed a health probe"
        self._owner.happened(self._life, news, words)

    def replace(self, why: str) -> None:
        self._life.replace(why)
