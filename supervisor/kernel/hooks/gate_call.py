"""One question to one gate: an invocation of the hook, made on behalf of the one it is about."""

from __future__ import annotations

from typing import Any

import trio

from protocol.descriptor import HOOK_OP, Gate
from protocol.errors import Failure, Outcome, Reason
from protocol.frames import DEPTH
from protocol.nesting import is_deeper
from protocol.response import Response
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Invoke, OutcomeOnly
from supervisor.policy.principals import SUPERVISOR


class GateCall:
    """A call of a gate."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._response: Response | None = None
        self._ended = trio.Event()

    async def ask(
        self, invoke: Invoke, gate: Gate, data: dict[str, Any], parent: Invocation
    ) -> Outcome:
        """Ask, and wait for the answer; that is bounded by the gate's `timeout_s`."""
        if is_deeper(data, DEPTH):
            words = f"what it is to be asked about nests more than {DEPTH} levels deep"
            return Failure.because(Reason.MALFORMED_REQUEST, words)
        args = {"event": str(gate), "data": data}
        content = {"op": HOOK_OP, "args": args, "timeout_s": self._timeout_s}
        invoke(SUPERVISOR, self._name, content, OutcomeOnly(self._finished), parent=parent)
        await self._ended.wait()
        assert self._response is not None  # noqa: S101 - set together with the event
        return self._response.outcome

    def why(self, failure: Failure) -> str:
        """Say how the gate failed, as a phrase about it."""
        if failure.details.get("reason") == Reason.DEADLINE:
            return f"gave no answer in {self._timeout_s:g} s"
        return f"failed: {failure.code}, {failure.message}"

    def _finished(self, response: Response) -> None:
        self._response = response
        self._ended.set()
