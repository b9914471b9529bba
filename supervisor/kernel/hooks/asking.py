"""Ask the gates about one invocation, one after the other, and a person if a gate wants it.

`policy.hook_chain` combines their answers.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import trio

from protocol.connection import Notice
from protocol.descriptor.model import Gate, Hook
from protocol.errors import Failure, Reason
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
from protocol.host_events import ApprovalUiEvent
from protocol.weight import is_deeper
from supervisor.kernel.hooks.approvals import REQUEST, Approvals, Decision, Question
from supervisor.kernel.hooks.gate_call import ask_gate, denial, injection, why_failed
from supervisor.kernel.hooks.gates import Gates
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Invoke
from supervisor.kernel.request_checks import Doubt, obstacle
from supervisor.policy.hook_chain import (
    Answer,
    Chain,
    Failed,
    GateResult,
    Link,
    Removed,
    chain_of,
)
from supervisor.runtime.supervision.host import Host

SUBJECT = {Gate.PRE: "tool_input", Gate.POST: "result", Gate.ERROR: "error"}
"""The subject that each gate may replace, by the field that carries it."""

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
    invoke: Invoke


class Asking:
    """The gate chain of one invocation."""

    def __init__(self, guarding: Guarding, invocation: Invocation, behind: frozenset[str]) -> None:
        """`behind` are the hooks on whose behalf the invocation is made: those are not asked."""
        self.injected: list[dict[str, Any]] = []
        """What the gates that were asked so far want in the context."""
        self.waits_for = ""
        """The gate or person that has not answered yet, in words."""
        self.question: str | None = None
        """The id of the open question to a person, if there is one."""
        self.over = False
        """Whether clients may be told nothing more."""
        self._guarding = guarding
        self._invocation = invocation
        self._behind = behind

    async def ask(
        self, gate: Gate, links: tuple[Link, ...], subject: Any, given: dict[str, Any]
    ) -> tuple[Failure | None, Any]:
        """Ask the gates about `subject`, which each may replace; `given` is sent beside it.

        Returns why it is denied, if it is, and the new `subject`.
        """
        chain = await self._ask_all(gate, links, subject, given)
        return await self._refusal(gate, chain), chain.data

    async def _ask_all(
        self, gate: Gate, links: tuple[Link, ...], subject: Any, given: dict[str, Any]
    ) -> Chain:
        gates = self._guarding.gates
        chain = chain_of((one for one in links if one.name not in self._behind), subject)
        while (link := chain.next) is not None:
            await trio.lowlevel.checkpoint_if_cancelled()  # then no gate is asked
            hook = gates.hook(link.name)
            answer: Answer = Removed()
            if hook is not None:
                answer = await self._ask(link.name, hook, gate, chain.data, given)
            if isinstance(answer, Failed) and gates.hook(link.name) is None:
                answer = Removed()  # and so it could not answer
            chain = chain.after(answer)
        return chain

    async def _ask(
        self, name: str, hook: Hook, gate: Gate, subject: Any, given: dict[str, Any]
    ) -> Answer:
        self.waits_for = f"hook {name} ({gate})"
        data = {**self._facts(), **given, SUBJECT[gate]: subject}
        args = {"event": str(gate), "data": data}
        invoke = self._guarding.invoke
        answer = await ask_gate(invoke, name, hook.timeout_s, args, self._invocation)
        if isinstance(answer, Failure):
            return Failed(why_failed(answer, hook.timeout_s))
        result = read_hook_result(answer.result)
        if isinstance(result, Invalid):
            return result
        if result.user_message:
            self._show(name, result)
        if result.action is Action.MODIFY and result.data is not None:
            problem = await self._problem(name, gate, result.data)
            if problem is not None:
                return Invalid(problem)
        return result

    async def _problem(self, name: str, gate: Gate, data: Any) -> str | None:
        """Return why `data` cannot replace the subject."""
        problem = replacement_problem(gate, data)
        if problem is not None or gate is not Gate.PRE:
            return problem
        if is_deeper(data, DEPTH):
            return f"data nests more than {DEPTH} levels deep"
        module, op = self._invocation.module, self._invocation.request.op
        found = obstacle(module, {"op": op, "args": data})
        if isinstance(found, Doubt):
            found = await found.settled(self._guarding.host.checks, name)
        return None if found is None else found.message

    async def _refusal(self, gate: Gate, chain: Chain) -> Failure | None:
        """Return why the chain denies, or None when the request goes on."""
        invocation, approval = self._invocation, None
        for name, why in chain.passed_over:
            words = f"hook {name} {why}; it is open, so {invocation.what} went on without it"
            invocation.warn(Notice("hook_failed", words))
        if (asked := chain.question) is not None:
            if self._guarding.host.shutting_down:
                return self.shutdown()
            decision = await self._ask_person(asked)
            chain = chain.after_person(_no(decision, asked.result))
            approval = decision.by
        if chain.denied is not None:
            if chain.problem is not None and self._guarding.host.shutting_down:
                return self.shutdown()
            return denial(gate, chain.denied, chain.problem, invocation.what, approval=approval)
        result = chain.result()
        if result.action is Action.INJECT_CONTEXT:
            self.injected.append(injection(result))
        return None

    async def _ask_person(self, asked: GateResult) -> Decision:
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
            owner=invocation.origin.owner,
            by=invocation.principal.by,
            options=result.approval_options or (),
            timeout_s=result.approval_timeout,
            default=result.approval_default,
        )
        self.waits_for = f"an approval that hook {asked.name} asks for"
        return await self._guarding.approvals.ask(question, self._tell_of_question)

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
        if not self.over:  # nothing is told after the response
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

    def shutdown(self) -> Failure:
        """Return the failure of requests that end because the daemon does."""
        words = f"the daemon is stopping, and {self._invocation.what} with it"
        return Failure.because(Reason.SHUTDOWN, words)


def _no(decision: Decision, asked: HookResult) -> str | None:
    """Return why a decision is a no, or None for a yes."""
    if decision.allowed:
        return None
    return {
        "timeout": f"nobody answered in {asked.approval_timeout:g} s",
        "too_many": "too many questions wait already",
    }.get(decision.by, f"the answer was {decision.answer}")
