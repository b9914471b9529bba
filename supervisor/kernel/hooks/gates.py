"""The gates of one call: asked before it is served, and before its outcome is told.

A chain of gates is asked one after the other, and a person if a gate wants it;
`policy.hook_chain` combines their answers. `kernel.guarded_call` says when that is, and cancels it.
A gate's call is a child of the call that it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

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
from supervisor.kernel.hooks.approvals import REQUEST, Question, Resolution
from supervisor.kernel.hooks.registry import GateChain
from supervisor.kernel.parties import OutcomeOnly
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

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation

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


class CallGates:
    def __init__(self, call: Invocation, chain: GateChain) -> None:
        self.allowed = not chain.pre
        """Whether the gates before it let it pass; then the others are asked about its outcome."""
        self.is_asking = bool(chain.pre)
        """Whether the call waits for gates; if not, its client is told of none."""
        self.waits_for = "a hook"
        """The gate or person that has not answered yet, in words."""
        self.question: str | None = None
        """The id of the open question to a person, if there is one."""
        self.injected: list[dict[str, Any]] = []
        """The context that the gates asked so far want to inject, in order."""
        self._call = call
        self._chain = chain
        self._setting = call.setting
        self._behind = call.setting.effects.lineage.of(call.request_id)
        """The hooks on whose behalf the call is made: those are not asked."""

    async def before(self) -> Failure | None:
        """Ask whether the call may be served, and with which args; returns why not."""
        call = self._call
        args = call.request.args
        failure, changed = await self._ask(Gate.PRE, self._chain.pre, args, {})
        self.is_asking = False
        if failure is None:
            self.allowed = True
            if changed is not args:
                call.request = msgspec.structs.replace(call.request, args=changed)
        return failure

    def answered(self, outcome: Outcome) -> None:
        """Withhold an outcome that there are gates for, until `after`."""
        if self.allowed:
            well = isinstance(outcome, Success)
            self.is_asking = bool(self._chain.post if well else self._chain.error)

    async def after(self, outcome: Outcome) -> Outcome:
        """Ask about an outcome; returns the one for the client."""
        given = {"tool_input": self._call.request.args}
        if isinstance(outcome, Success):
            failure, result = await self._ask(Gate.POST, self._chain.post, outcome.result, given)
            self.is_asking = False
            return failure or msgspec.structs.replace(outcome, said=result)
        error = {"code": outcome.code, "message": outcome.message, "details": outcome.details}
        failure, changed = await self._ask(Gate.ERROR, self._chain.error, error, given)
        self.is_asking = False
        if failure is not None or changed == error:
            return failure or outcome
        # What the gate has changed counts as the module's word, not as the host's finding; the
        # summary stays the module's.
        return Failure.reported(
            changed["code"], changed["message"], changed.get("details"), outcome.summary
        )

    # A chain of gates.

    async def _ask(
        self, gate: Gate, links: tuple[Link, ...], subject: Any, given: dict[str, Any]
    ) -> tuple[Failure | None, Any]:
        """Ask the gates about `subject`, which each may replace; `given` is sent beside it.

        Returns why it is denied, if it is, and the new `subject`.
        """
        gates = self._setting.gates
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
        self.waits_for = f"hook {name} ({gate})"
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
        self._setting.invoke(SUPERVISOR, name, content, client, parent=self._call)
        return (await responses.receive()).outcome

    async def _problem(self, gate: Gate, data: Any) -> str | None:
        """Return why `data` cannot replace the subject."""
        problem = replacement_problem(gate, data)
        if problem is not None or gate is not Gate.PRE:
            return problem
        if is_deeper(data, DEPTH):
            return f"data nests more than {DEPTH} levels deep"
        module, op = self._call.module, self._call.request.op
        found = obstacle(module, {"op": op, "args": data})
        if isinstance(found, Unlisted):
            found = await found.settled()
        return None if found is None else found.message

    async def _refusal(self, gate: Gate, chain: Chain) -> Failure | None:
        """Return why the chain denies, or None when the request goes on."""
        call, host, approval = self._call, self._setting.host, None
        for name, why in chain.passed_over:
            words = f"hook {name} {why}; it is open, so {call.what} went on without it"
            call.warn(Notice("hook_failed", words))
        if (asked := chain.question) is not None:
            if host.shutting_down:
                return stopping(call)
            decision = await self._ask_person(asked)
            chain = chain.after_person(_no(decision, asked.result))
            approval = decision.by
        if chain.denied is not None:
            if chain.problem is not None and host.shutting_down:
                return stopping(call)
            return _denial(gate, chain.denied, chain.problem, call.what, approval)
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
        call, result = self._call, asked.result
        question = Question(
            origin=call.origin,
            prompt=result.approval_prompt or result.reason or f"Allow {call.what}?",
            asked_by=f"hook {asked.name}",
            options=result.approval_options or (),
            timeout_s=result.approval_timeout,
            default=result.approval_default,
        )
        self.waits_for = f"an approval that hook {asked.name} asks for"
        return await self._setting.approvals.ask(question, self._tell_of_question)

    def _show(self, name: str, result: HookResult) -> None:
        level = _LEVELS[result.user_message_level]
        words = result.user_message or ""
        fields = {"hook": result.user_message_source or name}
        if self._call.parent is not None:
            # The user is behind the chain; a module that was called for him has none.
            fields["about"] = self._call.what
        self._tell_first(Log(version="0", level=level, message=words, fields=fields))

    def _tell_of_question(self, event: ApprovalUiEvent) -> None:
        self.question = event.approval if event.event == REQUEST else None
        self._call.ask_people()
        self._tell_first(event)

    def _tell_first(self, event: Progress) -> None:
        if self.is_asking:  # nothing is told after the response
            self._call.first.tell(event)

    def _facts(self) -> dict[str, Any]:
        request = self._call.request
        return {
            "tool_name": self._call.module.name,
            "op": request.op,
            "tool_input": request.args,
            "session_id": request.session_id,
            "request_id": request.request_id,
        }


def stopping(call: Invocation) -> Failure:
    words = f"the daemon is stopping, and {call.what} with it"
    return Failure.because(Reason.SHUTDOWN, words)


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
