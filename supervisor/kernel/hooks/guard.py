"""The guard of one invocation: asks its gates before it is served, and before its outcome is told.

    begin -> BEFORE -> (denied) OVER
                    -> SERVED -> (success: tool:post, failure: tool:error) AFTER -> OVER

The invocation's deadline, a cancel or the client's end moves it to OVER in any phase: gates are not
waited for then.
"""

from __future__ import annotations

from enum import Enum

import msgspec
import trio

from protocol.descriptor.model import Gate
from protocol.errors import Failure, Outcome, Reason, Success
from supervisor.kernel.hooks.asking import Asking, Guarding
from supervisor.kernel.hooks.gate_call import error_document, failure_of
from supervisor.kernel.hooks.gates import Standing
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Lineage
from supervisor.policy.verdict import Stopped


class _Phase(Enum):
    BEFORE = "before"
    SERVED = "served"
    AFTER = "after"
    OVER = "over"


class Guard:
    """Decides, by the gates, whether an invocation is served and which outcome the client gets."""

    def __init__(
        self,
        invocation: Invocation,
        standing: Standing,
        asking: Asking,
        nursery: trio.Nursery,
        guards: Guards,
    ) -> None:
        self.injected = asking.injected
        self._invocation = invocation
        self._standing = standing
        self._asking = asking
        self._nursery = nursery
        self._guards = guards
        self._phase = _Phase.BEFORE
        self._scope = trio.CancelScope()

    @property
    def question(self) -> str | None:
        """The id of the open question to a person, if there is one."""
        return self._asking.question

    def begin(self) -> None:
        """Ask the gates before it, if there are any; then serve the invocation, or refuse it."""
        if self._standing.pre:
            self._guards.enter(self)
            self._nursery.start_soon(self._before)
        else:
            self._phase = _Phase.SERVED
            self._invocation.module.submit(self._invocation)

    def takes(self, outcome: Outcome) -> bool:
        """Ask the gates after it, if there are any; then conclude.

        Returns False if there are none.
        """
        if self._phase is not _Phase.SERVED:
            return False
        well = isinstance(outcome, Success)
        if not (self._standing.post if well else self._standing.error):
            self._phase = _Phase.OVER
            return False
        self._phase = _Phase.AFTER
        self._scope = trio.CancelScope()
        self._guards.enter(self)
        self._nursery.start_soon(self._after, outcome)
        return True

    def give_up(self, stopped: Stopped) -> Stopped:
        """Stop asking; an outcome that waited for a gate is dropped."""
        phase = self._phase
        if phase is _Phase.SERVED:
            # A module that fell silent has failed; otherwise the caller waits no longer.
            if stopped.reason is not Reason.SILENCE:
                self._phase = _Phase.OVER
        elif phase is not _Phase.OVER:
            words = (
                f"{stopped.message}; it was still waiting for {self._asking.waits_for or 'a hook'}"
            )
            stopped = Stopped(stopped.reason, words)
            self._end()
            self._asking.over = True
            self._scope.cancel()
            if phase is _Phase.AFTER:
                self._conclude(Failure.because(stopped.reason, words))
        return stopped

    def stop(self) -> None:
        """End the invocation unless it is being served: the daemon is stopping."""
        if self._phase is _Phase.BEFORE or self._asking.question is not None:
            self._invocation.cancel(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))

    def _conclude(self, outcome: Outcome) -> None:
        self._invocation.take_long_way().conclude(outcome)

    def _end(self) -> None:
        self._phase = _Phase.OVER
        self._guards.leave(self)

    async def _before(self) -> None:
        invocation = self._invocation
        failure: Failure | None = self._asking.shutdown()
        args = invocation.request.args
        try:
            with self._scope:
                failure, args = await self._asking.ask(Gate.PRE, self._standing.pre, args, {})
        finally:
            # Also when the daemon ends without waiting: an answer there is in any case.
            if self._phase is _Phase.BEFORE:
                self._end()
                if failure is not None:
                    invocation.settle(failure)
                else:
                    self._phase = _Phase.SERVED
                    if args is not invocation.request.args:
                        invocation.request = msgspec.structs.replace(invocation.request, args=args)
                    invocation.module.submit(invocation)

    async def _after(self, outcome: Outcome) -> None:
        told: Outcome = self._asking.shutdown()
        try:
            with self._scope:
                told = await self._judged(outcome)
        finally:
            if self._phase is _Phase.AFTER:
                self._end()
                self._conclude(told)

    async def _judged(self, outcome: Outcome) -> Outcome:
        given = {"tool_input": self._invocation.request.args}
        if isinstance(outcome, Success):
            links, result = self._standing.post, outcome.result
            failure, result = await self._asking.ask(Gate.POST, links, result, given)
            return failure or msgspec.structs.replace(outcome, said=result)
        links, error = self._standing.error, error_document(outcome)
        failure, changed = await self._asking.ask(Gate.ERROR, links, error, given)
        if failure is not None or changed is error:
            return failure or outcome
        return failure_of(changed, outcome)


class Guards:
    def __init__(self, guarding: Guarding, lineage: Lineage) -> None:
        self._guarding = guarding
        self._lineage = lineage
        self._asking: set[Guard] = set()
        self._none_asks = trio.lowlevel.ParkingLot()

    def guard(self, invocation: Invocation) -> Guard | None:
        """Return the guard of an invocation, or None if no gate is to be asked."""
        standing = self._guarding.gates.before(invocation.module)
        if standing is None:
            return None
        behind = self._lineage.of(invocation.request_id)
        asking = Asking(self._guarding, invocation, behind)
        return Guard(invocation, standing, asking, self._guarding.nursery, self)

    def enter(self, guard: Guard) -> None:
        self._asking.add(guard)

    def leave(self, guard: Guard) -> None:
        self._asking.discard(guard)
        if not self._asking:
            self._none_asks.unpark_all()

    def stop(self) -> None:
        """Begin nothing more: the daemon is stopping."""
        for one in tuple(self._asking):
            one.stop()

    async def wait_none_asks(self) -> None:
        while self._asking:
            await self._none_asks.park()
