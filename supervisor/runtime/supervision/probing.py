"""Ask a persistent process how it is: while it is idle, and when it is in doubt.

Probes are requests like others, but nobody's call: they are not counted as work in flight, and one
whose answer is late is not given up, since of a process that echoes no ids the late answer must
find its request. So are those that its connection makes itself, such as those of its start.

A process in doubt that still talks (late events of the call that was given up) is busy, not hung:
its probe is waited for as long as lines keep coming. With `concurrency` 1, and in a dialect that is
patient (`dialects.Dialect`), others wait behind that, so it has no longer than a call has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from protocol.connection import Answered, Request
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.supervision.call import NOBODY, Awaited, Call, Listener
from supervisor.runtime.supervision.health_watch import HealthWatch
from supervisor.runtime.supervision.life import Setting

if TYPE_CHECKING:
    from supervisor.runtime.supervision.persistent import PersistentLife
    from supervisor.runtime.supervision.worker import Worker

UNANSWERED_PROBES = 8
"""Probes are not given up, to stay in step; so they are bounded in number."""


PROBED = {
    True: (Input.HEALTHY, "answered a health probe"),
    False: (Input.UNHEALTHY, "missed a health probe"),
}


class Probing:
    def __init__(self, setting: Setting, probed: PersistentLife, owner: Worker) -> None:
        self.in_doubt = False
        """Whether a call was given up and nothing was heard that shows the process still serves."""
        self.holds_back = setting.descriptor.supervision.concurrency == 1 or setting.dialect.patient
        """Whether calls wait while it is in doubt."""
        self._setting = setting
        self._timeouts = setting.descriptor.supervision.timeouts
        self._probed = probed
        self._owner = owner
        self._open: dict[str, Call] = {}
        self.unproven = False
        """Whether a call was given up and nothing was answered since."""
        self._doubted = trio.Event()
        self._watch = HealthWatch(
            setting.descriptor.supervision.health,
            self._timeouts.health_s,
            setting.host.deadlines,
            self,
        )

    async def ask(
        self, operation: Operation, timeout_s: float, op: str = "", *, while_it_talks: bool = False
    ) -> Outcome:
        """Ask for `health` or `describe` and wait for the answer.

        With `while_it_talks`, `timeout_s` bounds the silence before the answer, not the wait.
        """
        awaited = Awaited()
        if self._send(operation, awaited, op) is None:
            return self._no_answer(operation, timeout_s)
        while True:
            before = self._probed.times_heard
            with trio.move_on_after(timeout_s):
                return await awaited.wait()
            if not while_it_talks or self._probed.times_heard == before:
                return self._no_answer(operation, timeout_s)

    def alive(self) -> None:
        self._watch.alive()

    def overhear(self, request: Request) -> None:
        """Note a request that its connection made itself."""
        call = Call(request, NOBODY)
        self._open[request.request_id] = call
        self._setting.overhear(self._probed.id, call)

    def answered(self, item: Answered, outcome: Outcome) -> None:
        """Settle the probe that this answers, if it answers one."""
        probe = self._open.pop(item.request_id, None)
        if probe is not None:
            probe.fault = item.fault
            probe.settle(outcome)

    def given_up(self, *, written: bool) -> None:
        """A call was given up, after its request was written whole or not at all."""
        self.unproven = self.unproven or written
        if self.unproven and not self._probed.busy:  # another call's answer or deadline would tell
            self.unproven = False
            self.doubt()

    def doubt(self) -> None:
        """Find out whether the process still answers."""
        self.in_doubt = True
        self._doubted.set()

    def take_open(self) -> dict[str, Call]:
        """Return the probes without an answer, by request id; they are the caller's then."""
        taken, self._open = self._open, {}
        return taken

    def begin(self) -> None:
        self._watch.begin(self._setting.host.draw())

    def end(self) -> None:
        self._watch.end()

    # What the watch asks of it (health_watch.Checked).

    @property
    def occupied(self) -> bool:
        """Whether calls, doubts or its end have bounds of their own now."""
        return self._probed.busy or self.in_doubt or self._probed.ending

    def check(self, answered: HealthWatch) -> Call | None:
        return self._send(Operation.HEALTH, answered)

    def found(self, *, well: bool) -> None:
        news, words = PROBED[well]
        self._owner.happened(self._probed, news, words)

    def replace(self, why: str) -> None:
        self._probed.replace(why)

    def _send(self, operation: Operation, listener: Listener, op: str = "") -> Call | None:
        if len(self._open) >= UNANSWERED_PROBES:
            return None
        call = Call(Request(self._setting.host.next_request_id(), operation, op), listener)
        self._open[call.request.request_id] = call
        self._setting.overhear(self._probed.id, call)
        self._probed.send(call.request)
        return call

    async def resolve_doubts(self) -> None:
        """Probe it when it is in doubt, until it is replaced."""
        while True:
            await self._doubted.wait()
            self._doubted = trio.Event()
            outcome: Outcome | None = None
            with trio.move_on_after(self._longest_doubt_s()):
                outcome = await self.ask(
                    Operation.HEALTH, self._timeouts.health_s, while_it_talks=True
                )
            if not isinstance(outcome, Success):
                self._probed.replace("did not answer after a call was given up")
                return
            if not self._doubted.is_set():
                self.in_doubt = False
                self._owner.capacity_freed(self._probed)

    def _longest_doubt_s(self) -> float:
        if not self.holds_back:
            return math.inf  # it takes calls meanwhile, and their deadlines are bounds enough
        return max(self._timeouts.invoke_s, self._timeouts.health_s)

    def _no_answer(self, operation: Operation, timeout_s: float) -> Failure:
        words = f"{self._probed.id} gave no answer to {operation} in {timeout_s:g} s"
        return Failure.because(Reason.DEADLINE, words, **self._probed.evidence())
