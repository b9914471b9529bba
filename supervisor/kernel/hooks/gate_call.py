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


class GateCall:
    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._response: Response | None = None
        self._ended = trio.Event()

    async def ask(
        self, invoke: Invoke, gate: Gate, data: dict[str, Any], parent: Invocation
    ) -> Outcome:
        """Call the gate and return its answer; bounded by its `timeout_s`."""
        if is_deeper(data, DEPTH):
            words = f"the data of its question nests more than {DEPTH} levels deep"
            return Failure.because(Reason.MALFORMED_REQUEST, words)
        args = {"event": str(gate), "data": data}
        content = {"op": HOOK_OP, "args": args, "timeout_s": self._timeout_s}
        invoke(SUPERVISOR, self._name, content, OutcomeOnly(self._finished), parent=parent)
        await self._ended.wait()
        assert self._response is not None  # noqa: S101 - set together with the event
        return self._response.outcome

    def why(self, failure: Failure) -> str:
        """Return how the gate failed, as a phrase about it."""
        if failure.details.get("reason") == Reason.DEADLINE:
            return f"gave no answer in {self._timeout_s:g} s"
        return f"failed: {failure.code}, {failure.message}"

    def _finished(self, response: Response) -> None:
        self._response = response
        self._ended.set()


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
