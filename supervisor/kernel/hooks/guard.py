"""Ask the gates before one invocation, and those after it.

    begin -> BEFORE -> (denied) OVER
                    -> SERVED -> (success: tool:post, failure: tool:error) AFTER -> OVER

A task asks one gate after the other; what their answers come to is `policy.hook_chain`. The
invocation's deadline, a cancel or the client's end put it to an end in any phase: nobody waits for
gates then.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec
import trio

from protocol.connection import Notice
from protocol.descriptor import Gate
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log, Progress
from protocol.frames import DEPTH
from protocol.hook_result import (
    Action,
    HookResult,
    Invalid,
    MessageLevel,
    read_hook_result,
    replacement_problem,
)
from protocol.nesting import is_deeper
from supervisor.kernel.hooks.approvals import Approvals, Question
from supervisor.kernel.hooks.gate_call import GateCall, Submit
from supervisor.kernel.hooks.gates import Gates, Standing
from supervisor.kernel.hooks.lineage import Lineage
from supervisor.kernel.hooks.outcomes import denial, error_document, failure_of, injections
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.request_checks import request_refusal
from supervisor.policy.hook_chain import Answer, Chain, Failed, Link, Said, chain_of
from supervisor.policy.verdict import Stopped
from supervisor.runtime.host import Host

_LEVELS: dict[MessageLevel, Literal["info", "warn", "error"]] = {
    MessageLevel.INFO: "info",
    MessageLevel.WARNING: "warn",
    MessageLevel.ERROR: "error",
}


class Guarding(msgspec.Struct, frozen=True):
    """What the guards of one daemon share."""

    host: Host
    gates: Gates
    approvals: Approvals
    nursery: trio.Nursery
    submit: Submit


class _Phase(Enum):
    BEFORE = "before"
    SERVED = "served"
    AFTER = "after"
    OVER = "over"


class Guard:
    """The gates of one invocation (kernel.invocation.Guard)."""

    def __init__(
        self,
        guarding: Guarding,
        invocation: Invocation,
        standing: Standing,
        behind: frozenset[str],
        guards: Guards,
    ) -> None:
        """`behind` are the hooks it is made on behalf of: those are not asked."""
        self.injected: list[dict[str, Any]] = []
        self._guarding = guarding
        self._invocation = invocation
        self._standing = standing
        self._behind = behind
        self._guards = guards
        self._phase = _Phase.BEFORE
        self._scope = trio.CancelScope()
        self._waits_for = ""
        self._asks_person = False

    def begin(self) -> None:
        """Ask those before it, if there are any; then have it served, or refused."""
        if self._standing.pre:
            self._guards.enter(self)
            self._guarding.nursery.start_soon(self._before)
        else:
            self._phase = _Phase.SERVED
            self._invocation.proceed(self._invocation.request.args)

    def takes(self, outcome: Outcome) -> bool:
        """Ask those after it, if there are any; then conclude."""
        if self._phase is not _Phase.SERVED:
            return False
        well = isinstance(outcome, Success)
        if not (self._standing.post if well else self._standing.error):
            self._phase = _Phase.OVER
            return False
        self._phase = _Phase.AFTER
        self._scope = trio.CancelScope()
        self._guards.enter(self)
        self._guarding.nursery.start_soon(self._after, outcome)
        return True

    def give_up(self, stopped: Stopped) -> Stopped:
        """Ask no more; an outcome that waited for a gate is not told."""
        phase = self._phase
        if phase is _Phase.SERVED:
            # A module that fell silent has failed; all else is somebody who waits no longer.
            if stopped.reason is not Reason.SILENCE:
                self._phase = _Phase.OVER
        elif phase is not _Phase.OVER:
            words = f"{stopped.message}; it was still waiting for {self._waits_for or 'a hook'}"
            stopped = Stopped(stopped.reason, words)
            self._end()
            self._scope.cancel()
            if phase is _Phase.AFTER:
                self._invocation.conclude(Failure.because(stopped.reason, words))
        return stopped

    def stop(self) -> None:
        """End what is not to be served any more, or waits for a person: the daemon is stopping."""
        if self._phase is _Phase.BEFORE or self._asks_person:
            self._invocation.give_up(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))

    def _end(self) -> None:
        self._phase = _Phase.OVER
        self._guards.leave(self)

    async def _before(self) -> None:
        invocation = self._invocation
        failure: Failure | None = self._shutdown()
        args = invocation.request.args
        try:
            with self._scope:
                chain = await self._ask_all(Gate.PRE, self._standing.pre, args, {})
                failure = await self._refusal(Gate.PRE, chain)
                args = chain.data
        finally:
            # Also when the daemon ends without waiting: an answer there is in any case.
            if self._phase is _Phase.BEFORE:
                self._end()
                if failure is not None:
                    invocation.refuse(failure)
                else:
                    self._phase = _Phase.SERVED
                    invocation.proceed(args)

    async def _after(self, outcome: Outcome) -> None:
        told: Outcome = self._shutdown()
        try:
            with self._scope:
                told = await self._judged(outcome)
        finally:
            if self._phase is _Phase.AFTER:
                self._end()
                self._invocation.conclude(told)

    async def _judged(self, outcome: Outcome) -> Outcome:
        given = {"tool_input": self._invocation.request.args}
        if isinstance(outcome, Success):
            chain = await self._ask_all(Gate.POST, self._standing.post, outcome.result, given)
            failure = await self._refusal(Gate.POST, chain)
            return failure or msgspec.structs.replace(outcome, result=chain.data)
        error = error_document(outcome)
        chain = await self._ask_all(Gate.ERROR, self._standing.error, error, given)
        failure = await self._refusal(Gate.ERROR, chain)
        if failure is not None or chain.data is error:
            return failure or outcome
        return failure_of(chain.data, outcome)

    async def _ask_all(
        self, gate: Gate, links: tuple[Link, ...], subject: Any, given: dict[str, Any]
    ) -> Chain:
        gates = self._guarding.gates
        chain = chain_of((one for one in links if one.name not in self._behind), subject)
        while (link := chain.next) is not None:
            await trio.lowlevel.checkpoint_if_cancelled()  # then nobody is asked
            # A gate whose descriptor was removed meanwhile stands open, whatever came of its call.
            answer: Answer = HookResult()
            if gates.hook(link.name) is not None:
                answer = await self._ask(link.name, gate, chain.data, given)
            if isinstance(answer, Failed) and gates.hook(link.name) is None:
                answer = HookResult()
            chain = chain.after(answer)
        return chain

    async def _ask(self, name: str, gate: Gate, subject: Any, given: dict[str, Any]) -> Answer:
        hook = self._guarding.gates.hook(name)
        assert hook is not None  # noqa: S101 - asked for just before
        self._waits_for = f"hook {name} ({gate})"
        call = GateCall(name, hook.timeout_s)
        data = {**self._facts(), **given, SUBJECT[gate]: subject}
        answer = await call.ask(self._guarding.submit, gate, data, self._invocation)
        if isinstance(answer, Failure):
            return Failed(call.why(answer))
        result = read_hook_result(answer.result)
        if isinstance(result, Invalid):
            return result
        if result.user_message:
            self._show(name, result)
        if result.action is Action.MODIFY and result.data is not None:
            problem = self._problem(gate, result.data)
            if problem is not None:
                return Invalid(problem)
        return result

    def _problem(self, gate: Gate, data: Any) -> str | None:
        """Say what keeps `data` from taking the place of what was asked about."""
        problem = replacement_problem(gate, data)
        if problem is not None or gate is not Gate.PRE:
            return problem
        if is_deeper(data, DEPTH):
            return f"data nests more than {DEPTH} levels deep"
        invocation = self._invocation
        content = {"op": invocation.request.op, "args": data}
        refusal = request_refusal(invocation.module.name, invocation.module, content)
        return None if refusal is None else refusal.message

    async def _refusal(self, gate: Gate, chain: Chain) -> Failure | None:
        """Take a chain's end: return why it is denied, or None when it goes on."""
        invocation = self._invocation
        for name, why in chain.passed_over:
            words = f"hook {name} {why}; it is open, so {invocation.what} went on without it"
            invocation.warn(Notice("hook_failed", words))
        if chain.denied is not None:
            if chain.problem is not None and self._guarding.host.shutting_down:
                return self._shutdown()
            return denial(gate, chain.denied, chain.problem, invocation.what)
        if chain.asked is not None:
            failure = await self._ask_person(gate, chain.asked)
            if failure is not None:
                return failure
        self.injected += injections(chain)
        return None

    async def _ask_person(self, gate: Gate, asked: Said) -> Failure | None:
        if self._guarding.host.shutting_down:
            return self._shutdown()
        invocation, result = self._invocation, asked.result
        request = invocation.request
        words = result.approval_prompt or result.reason or f"Allow {invocation.what}?"
        question = Question(
            prompt=words,
            asked_by=f"hook {asked.name}",
            module=invocation.module.name,
            op=request.op,
            request_id=request.request_id,
            session_id=request.session_id,
            span_id=invocation.span_id,
            options=result.approval_options or (),
            timeout_s=result.approval_timeout,
            default=result.approval_default,
        )
        self._waits_for = f"an approval that hook {asked.name} asks for"
        self._asks_person = True
        decision = await self._guarding.approvals.ask(question, self._tell_first)
        self._asks_person = False
        if decision.allowed:
            return None
        reason = {
            "timeout": f"nobody answered in {result.approval_timeout:g} s",
            "too_many": "too many questions wait already",
        }.get(decision.by, f"the answer was {decision.answer}")
        denied = Said(asked.name, HookResult(action=Action.DENY, reason=reason))
        return denial(gate, denied, None, invocation.what, approval=decision.by)

    def _show(self, name: str, result: HookResult) -> None:
        level = _LEVELS[result.user_message_level]
        words = result.user_message or ""
        fields = {"hook": result.user_message_source or name}
        self._invocation.tell(Log(version="0", level=level, message=words, fields=fields))

    def _tell_first(self, event: Progress) -> None:
        if self._phase is not _Phase.OVER:  # nothing is told after the response
            self._invocation.tell_first(event)

    def _facts(self) -> dict[str, Any]:
        request = self._invocation.request
        return {
            "tool_name": self._invocation.module.name,
            "op": request.op,
            "tool_input": request.args,
            "session_id": request.session_id,
            "request_id": request.request_id,
        }

    def _shutdown(self) -> Failure:
        words = f"the daemon is stopping, and {self._invocation.what} with it"
        return Failure.because(Reason.SHUTDOWN, words)


SUBJECT = {Gate.PRE: "tool_input", Gate.POST: "result", Gate.ERROR: "error"}
"""What each gate may replace, as the field it is told by."""


class Guards:
    """The guards of one daemon's invocations."""

    def __init__(self, guarding: Guarding, lineage: Lineage) -> None:
        self._guarding = guarding
        self._lineage = lineage
        self._asking: set[Guard] = set()
        self._none_asks = trio.lowlevel.ParkingLot()

    def guard(self, invocation: Invocation) -> Guard | None:
        """Return the guard of an invocation, or None if there is nobody to ask about it."""
        standing = self._guarding.gates.before(invocation.module)
        if standing is None:
            return None
        behind = self._lineage.of(invocation.request_id)
        return Guard(self._guarding, invocation, standing, behind, self)

    def enter(self, guard: Guard) -> None:
        """Take note that a gate is being asked."""
        self._asking.add(guard)

    def leave(self, guard: Guard) -> None:
        """Take note that none is asked any more."""
        self._asking.discard(guard)
        if not self._asking:
            self._none_asks.unpark_all()

    def stop(self) -> None:
        """Begin nothing any more: the daemon is stopping."""
        for one in tuple(self._asking):
            one.stop()

    async def wait_none_asks(self) -> None:
        """Return when no gate is being asked."""
        while self._asking:
            await self._none_asks.park()
