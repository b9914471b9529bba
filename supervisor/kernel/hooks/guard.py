"""The guard of one invocation: asks its gates before it is served, and before its outcome is told.

    begin -> BEFORE -> (denied) OVER
                    -> SERVED -> (success: tool:post, failure: tool:error) AFTER -> OVER

The invocation's deadline, a cancel or the client's end moves it to OVER in any phase: gates are not
waited for then. A chain of gates is asked one after the other, and a person if a gate wants it;
`policy.hook_chain` combines their answers.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec
import trio

from protocol.connection import Notice
from protocol.descriptor.model import HOOK_OP, Gate, Hook
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log, Progress
from protocol.frames import DEPTH
from protocol.hook_result import (
    Directive,
    HookResult,
    Invalid,
    MessageLevel,
    read_hook_result,
    replacement_problem,
)
from protocol.host_events import ApprovalUiEvent
from protocol.response import Response
from protocol.weight import is_deeper
from supervisor.kernel.hooks.approvals import REQUEST, Approvals, Question, Resolution
from supervisor.kernel.hooks.registry import GateChain, Gates
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Invoke, Lineage, OutcomeOnly
from supervisor.kernel.request_checks import Unlisted, obstacle
from supervisor.policy.hook_chain import (
    Answer,
    Chain,
    Failed,
    GateResult,
    Link,
    Removed,
    chain_of,
)
from supervisor.policy.principals import SUPERVISOR
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.host import Host

SUBJECT = {Gate.PRE: "tool_input", Gate.POST: "result", Gate.ERROR: "error"}
"""The subject that each gate may replace, by the field that carries it."""

_LEVELS: dict[MessageLevel, Literal["info", "warn", "error"]] = {
    MessageLevel.INFO: "info",
    MessageLevel.WARNING: "warn",
    MessageLevel.ERROR: "error",
}

_DENIED = {
    Gate.PRE: "{what} was denied by hook {hook}",
    Gate.POST: "the result of {what} was withheld by hook {hook}",
    Gate.ERROR: "the error of {what} was withheld by hook {hook}",
}


class _Phase(Enum):
    BEFORE = "before"
    SERVED = "served"
    AFTER = "after"
    OVER = "over"


class Guard:
    """Decides, by the gates, whether an invocation is served and which outcome the client gets."""

    def __init__(self, invocation: Invocation, standing: GateChain, guards: Guards) -> None:
        self.injected: list[dict[str, Any]] = []
        """What the gates that were asked so far want in the context."""
        self.question: str | None = None
        """The id of the open question to a person, if there is one."""
        self._invocation = invocation
        self._standing = standing
        self._guards = guards
        self._behind = guards.lineage.of(invocation.request_id)
        """The hooks on whose behalf the invocation is made: those are not asked."""
        self._waits_for = ""
        """The gate or person that has not answered yet, in words."""
        self._phase = _Phase.BEFORE
        self._scope = trio.CancelScope()

    def begin(self) -> None:
        """Ask the gates before it, if there are any; then serve the invocation, or refuse it."""
        if self._standing.pre:
            self._guards.enter(self)
            self._guards.nursery.start_soon(self._before)
        else:
            self._phase = _Phase.SERVED
            self._invocation.module.submit(self._invocation)

    async def _before(self) -> None:
        invocation = self._invocation
        failure: Failure | None = self._shutdown()
        args = invocation.request.args
        try:
            with self._scope:
                failure, args = await self._ask(Gate.PRE, self._standing.pre, args, {})
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
        self._guards.nursery.start_soon(self._after, outcome)
        return True

    async def _after(self, outcome: Outcome) -> None:
        told: Outcome = self._shutdown()
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
            failure, result = await self._ask(Gate.POST, links, result, given)
            return failure or msgspec.structs.replace(outcome, said=result)
        links = self._standing.error
        error = {"code": outcome.code, "message": outcome.message, "details": outcome.details}
        failure, changed = await self._ask(Gate.ERROR, links, error, given)
        if failure is not None or changed == error:
            return failure or outcome
        # What the gate has changed counts as the module's word, not as the host's finding; the
        # summary stays the module's.
        return Failure.reported(
            changed["code"], changed["message"], changed.get("details"), outcome.summary
        )

    def give_up(self, stopped: Stopped) -> Stopped:
        """Stop asking; an outcome that waited for a gate is dropped."""
        phase = self._phase
        if phase is _Phase.SERVED:
            # A module that fell silent has failed; otherwise the caller waits no longer.
            if stopped.reason is not Reason.SILENCE:
                self._phase = _Phase.OVER
        elif phase is not _Phase.OVER:
            words = f"{stopped.message}; it was still waiting for {self._waits_for or 'a hook'}"
            stopped = Stopped(stopped.reason, words)
            self._end()
            self._scope.cancel()
            if phase is _Phase.AFTER:
                self._conclude(Failure.because(stopped.reason, words))
        return stopped

    def stop(self) -> None:
        """End the invocation unless it is being served: the daemon is stopping."""
        if self._phase is _Phase.BEFORE or self.question is not None:
            self._invocation.cancel(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))

    def _conclude(self, outcome: Outcome) -> None:
        self._invocation.take_long_way().conclude(outcome)

    def _end(self) -> None:
        self._phase = _Phase.OVER
        self._guards.leave(self)

    def _shutdown(self) -> Failure:
        words = f"the daemon is stopping, and {self._invocation.what} with it"
        return Failure.because(Reason.SHUTDOWN, words)

    # A chain of gates.

    async def _ask(
        self, gate: Gate, links: tuple[Link, ...], subject: Any, given: dict[str, Any]
    ) -> tuple[Failure | None, Any]:
        """Ask the gates about `subject`, which each may replace; `given` is sent beside it.

        Returns why it is denied, if it is, and the new `subject`.
        """
        gates = self._guards.gates
        chain = chain_of((one for one in links if one.name not in self._behind), subject)
        while (link := chain.next) is not None:
            await trio.lowlevel.checkpoint_if_cancelled()  # then no gate is asked
            hook = gates.hook(link.name)
            answer: Answer = Removed()
            if hook is not None:
                answer = await self._ask_gate(link.name, hook, gate, chain.data, given)
            if isinstance(answer, Failed) and gates.hook(link.name) is None:
                answer = Removed()  # and so it could not answer
            chain = chain.after(answer)
        return await self._refusal(gate, chain), chain.data

    async def _ask_gate(
        self, name: str, hook: Hook, gate: Gate, subject: Any, given: dict[str, Any]
    ) -> Answer:
        self._waits_for = f"hook {name} ({gate})"
        data = {**self._facts(), **given, SUBJECT[gate]: subject}
        answer = await self._call_gate(name, hook, {"event": str(gate), "data": data})
        if isinstance(answer, Failure):
            if answer.details.get("reason") == Reason.DEADLINE:
                return Failed(f"gave no answer in {hook.timeout_s:g} s")
            return Failed(f"failed: {answer.code}, {answer.message}")
        result = read_hook_result(answer.result)
        if isinstance(result, Invalid):
            return result
        if result.user_message:
            self._show(name, result)
        if result.action is Directive.MODIFY and result.data is not None:
            problem = await self._problem(gate, result.data)
            if problem is not None:
                return Invalid(problem)
        return result

    async def _call_gate(self, name: str, hook: Hook, args: dict[str, Any]) -> Outcome:
        """Invoke a gate on behalf of the invocation; the hook's `timeout_s` bounds the wait."""
        if is_deeper(args["data"], DEPTH):
            words = f"the data of its question nests more than {DEPTH} levels deep"
            return Failure.because(Reason.MALFORMED_REQUEST, words)
        finished, responses = trio.open_memory_channel[Response](1)
        content = {"op": HOOK_OP, "args": args, "timeout_s": hook.timeout_s}
        client = OutcomeOnly(finished.send_nowait)
        self._guards.invoke(SUPERVISOR, name, content, client, parent=self._invocation)
        return (await responses.receive()).outcome

    async def _problem(self, gate: Gate, data: Any) -> str | None:
        """Return why `data` cannot replace the subject."""
        problem = replacement_problem(gate, data)
        if problem is not None or gate is not Gate.PRE:
            return problem
        if is_deeper(data, DEPTH):
            return f"data nests more than {DEPTH} levels deep"
        module, op = self._invocation.module, self._invocation.request.op
        found = obstacle(module, {"op": op, "args": data})
        if isinstance(found, Unlisted):
            found = await found.settled()
        return None if found is None else found.message

    async def _refusal(self, gate: Gate, chain: Chain) -> Failure | None:
        """Return why the chain denies, or None when the request goes on."""
        invocation, host, approval = self._invocation, self._guards.host, None
        for name, why in chain.passed_over:
            words = f"hook {name} {why}; it is open, so {invocation.what} went on without it"
            invocation.warn(Notice("hook_failed", words))
        if (asked := chain.question) is not None:
            if host.shutting_down:
                return self._shutdown()
            decision = await self._ask_person(asked)
            chain = chain.after_person(_no(decision, asked.result))
            approval = decision.by
        if chain.denied is not None:
            if chain.problem is not None and host.shutting_down:
                return self._shutdown()
            return _denial(gate, chain.denied, chain.problem, invocation.what, approval)
        result = chain.result()
        if result.action is Directive.INJECT_CONTEXT:
            self.injected.append(
                {
                    "content": result.context_injection,
                    "role": str(result.context_injection_role),
                    "ephemeral": result.ephemeral,
                    "append_to_last_tool_result": result.append_to_last_tool_result,
                }
            )
        return None

    async def _ask_person(self, asked: GateResult) -> Resolution:
        invocation, result = self._invocation, asked.result
        question = Question(
            origin=invocation.origin,
            prompt=result.approval_prompt or result.reason or f"Allow {invocation.what}?",
            asked_by=f"hook {asked.name}",
            options=result.approval_options or (),
            timeout_s=result.approval_timeout,
            default=result.approval_default,
        )
        self._waits_for = f"an approval that hook {asked.name} asks for"
        return await self._guards.approvals.ask(question, self._tell_of_question)

    def _show(self, name: str, result: HookResult) -> None:
        level = _LEVELS[result.user_message_level]
        words = result.user_message or ""
        fields = {"hook": result.user_message_source or name}
        if self._invocation.parent is not None:
            # The user is behind the chain; a module that was called for him has none.
            fields["about"] = self._invocation.what
        self._tell_first(Log(version="0", level=level, message=words, fields=fields))

    def _tell_of_question(self, event: ApprovalUiEvent) -> None:
        self.question = event.approval if event.event == REQUEST else None
        self._invocation.ask_people()
        self._tell_first(event)

    def _tell_first(self, event: Progress) -> None:
        if self._phase is not _Phase.OVER:  # nothing is told after the response
            self._invocation.first.tell(event)

    def _facts(self) -> dict[str, Any]:
        request = self._invocation.request
        return {
            "tool_name": self._invocation.module.name,
            "op": request.op,
            "tool_input": request.args,
            "session_id": request.session_id,
            "request_id": request.request_id,
        }


class Guards:
    """The guards of one daemon, and what they share."""

    def __init__(
        self,
        host: Host,
        gates: Gates,
        approvals: Approvals,
        lineage: Lineage,
        *,
        nursery: trio.Nursery,
        invoke: Invoke,
    ) -> None:
        self.host = host
        self.gates = gates
        self.approvals = approvals
        self.lineage = lineage
        self.nursery = nursery
        self.invoke = invoke
        self._asking: set[Guard] = set()
        self._none_asks = trio.lowlevel.ParkingLot()

    def guard(self, invocation: Invocation) -> Guard | None:
        """Return the guard of an invocation, or None if no gate is to be asked."""
        standing = self.gates.before(invocation.module)
        return None if standing is None else Guard(invocation, standing, self)

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


def _denial(
    gate: Gate, denied: GateResult, problem: str | None, what: str, approval: str | None
) -> Failure:
    """Return the failure of a request that a gate denied; `problem` if the gate itself failed."""
    reason = denied.result.reason
    words = _DENIED[gate].format(what=what, hook=denied.name)
    if reason:
        words += f": {reason}"
    if problem is not None and problem not in words:
        words += f" ({problem})"
    return Failure.because(
        Reason.HOOK,
        words,
        hook=denied.name,
        gate=str(gate),
        hook_reason=reason,
        problem=problem,
        approval=approval,
    )


def _no(decision: Resolution, asked: HookResult) -> str | None:
    """Return why a decision is a no, or None for a yes."""
    if decision.allowed:
        return None
    return {
        "timeout": f"nobody answered in {asked.approval_timeout:g} s",
        "too_many": "too many questions wait already",
    }.get(decision.by, f"the answer was {decision.answer}")
