"""One question to one gate: an invocation of the hook, made on behalf of the one it is about."""

from __future__ import annotations

from typing import Any

import trio

from protocol.descriptor.model import HOOK_OP, Gate
from protocol.errors import Failure, Outcome, Reason
from protocol.frames import DEPTH
from protocol.hook_result import HookResult
from protocol.response import Response
from protocol.weight import is_deeper
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Invoke, OutcomeOnly
from supervisor.policy.hook_chain import GateResult
from supervisor.policy.principals import SUPERVISOR


async def ask_gate(
    invoke: Invoke, name: str, timeout_s: float, args: dict[str, Any], parent: Invocation
) -> Outcome:
    """Return the gate's answer; its wait is bounded by the invocation's `timeout_s`."""
    if is_deeper(args["data"], DEPTH):
        words = f"the data of its question nests more than {DEPTH} levels deep"
        return Failure.because(Reason.MALFORMED_REQUEST, words)
    responses: list[Response] = []
    ended = trio.Event()

    def finished(response: Response) -> None:
        responses.append(response)
        ended.set()

    content = {"op": HOOK_OP, "args": args, "timeout_s": timeout_s}
    invoke(SUPERVISOR, name, content, OutcomeOnly(finished), parent=parent)
    await ended.wait()
    return responses[0].outcome


def why_failed(failure: Failure, timeout_s: float) -> str:
    """Return how a gate failed, as a phrase about it."""
    if failure.details.get("reason") == Reason.DEADLINE:
        return f"gave no answer in {timeout_s:g} s"
    return f"failed: {failure.code}, {failure.message}"


_WORDS = {
    Gate.PRE: "{what} was denied by hook {hook}",
    Gate.POST: "the result of {what} was withheld by hook {hook}",
    Gate.ERROR: "the error of {what} was withheld by hook {hook}",
}


def denial(
    gate: Gate, denied: GateResult, problem: str | None, what: str, *, approval: str | None = None
) -> Failure:
    """Return the failure of a request that a gate denied; `problem` if the gate itself failed."""
    reason = denied.result.reason
    words = _WORDS[gate].format(what=what, hook=denied.name)
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


def injection(result: HookResult) -> dict[str, Any]:
    """Return what a chain wants in the context, as the response shows it."""
    return {
        "content": result.context_injection,
        "role": str(result.context_injection_role),
        "ephemeral": result.ephemeral,
        "append_to_last_tool_result": result.append_to_last_tool_result,
    }


def error_document(failure: Failure) -> dict[str, Any]:
    return {"code": failure.code, "message": failure.message, "details": failure.details}


def failure_of(error: dict[str, Any], before: Failure) -> Failure:
    """Return the failure that a gate's Error Schema v1 says; the summary stays the module's.

    What the gate has changed counts as the module's word, not as the host's finding.
    """
    if error == error_document(before):
        return before
    return Failure.reported(error["code"], error["message"], error.get("details"), before.summary)
