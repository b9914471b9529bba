"""What a chain's end makes of an invocation's outcome."""

from __future__ import annotations

from typing import Any

from protocol.descriptor import Gate
from protocol.errors import Failure, Reason
from protocol.hook_result import HookResult
from supervisor.policy.hook_chain import GateResult

_WORDS = {
    Gate.PRE: "{what} was denied by hook {hook}",
    Gate.POST: "the result of {what} was withheld by hook {hook}",
    Gate.ERROR: "the error of {what} was withheld by hook {hook}",
}


def denial(
    gate: Gate, denied: GateResult, problem: str | None, what: str, *, approval: str | None = None
) -> Failure:
    """Return the failure of a request that a gate denied; `problem` if that is not its own word."""
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
    """Return what a chain wants in the context, as the response says it."""
    return {
        "content": result.context_injection,
        "role": str(result.context_injection_role),
        "ephemeral": result.ephemeral,
        "append_to_last_tool_result": result.append_to_last_tool_result,
    }


def error_document(failure: Failure) -> dict[str, Any]:
    """Return a failure as Error Schema v1."""
    return {"code": failure.code, "message": failure.message, "details": failure.details}


def failure_of(error: dict[str, Any], before: Failure) -> Failure:
    """Return the failure that a gate's Error Schema v1 says; the summary stays the module's.

    What the gate did not leave as it was is its word, and no finding of the host's.
    """
    if error == error_document(before):
        return before
    return Failure.reported(error["code"], error["message"], error.get("details"), before.summary)
