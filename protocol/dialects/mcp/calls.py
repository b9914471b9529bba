r"""The open requests of the host, each from its line to its answer.

    asked --an answer--> answered
      |  \--input_required--> the host is asked --> asked again, under another id
      \--cancelled--> gone: a late answer is told by its id, and dropped

One line of a request waits for an answer at a time; its id is the token of the request's progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.connection import (
    Alive,
    Answered,
    EventReceived,
    HostCalled,
    Notice,
    Received,
    Request,
    Warned,
)
from protocol.dialects.mcp.catalogue import CALL, OPS
from protocol.dialects.mcp.content import Unpacking, failure_of
from protocol.dialects.mcp.inquiries import Round, read_round
from protocol.dialects.mcp.rpc import RpcError, RpcId, meant_id
from protocol.dialects.mcp.speaker import Speaker
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import UiEvent
from protocol.framing import Written
from protocol.host_call import UNENCODABLE
from protocol.json_line import Fault
from protocol.problem import kind
from protocol.replies import Operation


class OpenCall(msgspec.Struct, gc=False):
    request: Request
    method: str
    params: dict[str, Any]
    rpc_id: RpcId
    progress: float | None = None
    rounds: int = 0
    round: Round | None = None
    """The input that the server waits for before it goes on."""


class Calls:
    def __init__(self, speaker: Speaker) -> None:
        self.gave_up = False
        """Whether the server may still answer a request that is not open any more."""
        self._speaker = speaker
        self._open: dict[str, OpenCall] = {}
        self._by_rpc_id: dict[RpcId, OpenCall] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    @property
    def only(self) -> str | None:
        return next(iter(self._open)) if len(self._open) == 1 else None

    @property
    def all(self) -> list[str]:
        return list(self._open)

    @property
    def waiting(self) -> list[RpcId]:
        """The ids of the lines that wait for an answer."""
        return [one.rpc_id for one in self._open.values() if one.round is None]

    def of(self, rpc_id: RpcId | None) -> OpenCall | None:
        """Return the request whose line of that id waits for an answer."""
        call = None if rpc_id is None else self._by_rpc_id.get(rpc_id)
        return None if call is None or call.round is not None else call

    def ask(self, request: Request, method: str, params: dict[str, Any]) -> None:
        # Written before it is noted as open: args that cannot be encoded leave nothing behind.
        self.sent(request, method, params, self._speaker.ask(request, method, params))

    def sent(self, request: Request, method: str, params: dict[str, Any], rpc_id: RpcId) -> None:
        call = OpenCall(request, method, params, rpc_id)
        self._open[request.request_id] = self._by_rpc_id[rpc_id] = call

    def sent_again(self, request_id: str, rpc_id: RpcId) -> None:
        """Register that an open request was written once more, under another id."""
        call = self._open[request_id]
        call.round = None
        self._by_rpc_id.pop(call.rpc_id, None)
        call.rpc_id = rpc_id
        self._by_rpc_id[rpc_id] = call

    def cancel(self, request_id: str, written: Written) -> None:
        """Forget a request, and cancel it at the server if it was written."""
        call = self._open.pop(request_id, None)
        if call is None:
            return
        del self._by_rpc_id[call.rpc_id]
        if written is Written.ALL and call.round is None:
            self.gave_up = True
            self._speaker.notify("notifications/cancelled", {"requestId": call.rpc_id})

    def sent_cancel(self, rpc_id: RpcId | None) -> None:
        call = self.of(rpc_id)
        if call is not None:
            self.gave_up = True
            self._forget(call)

    def take_all(self) -> list[str]:
        """Return the open requests, and forget them."""
        left = list(self._open)
        self._open.clear()
        self._by_rpc_id.clear()
        return left

    # What the server says.

    def answered(
        self,
        call: OpenCall,
        outcome: dict[str, Any] | RpcError,
        size_bytes: int,
        received: list[Received],
    ) -> None:
        if call.request.operation is Operation.HEALTH:
            # Any answer shows that the server is alive.
            self._close(call, Success({"status": "ok"}), received)
        elif isinstance(outcome, RpcError):
            self._close(call, failure_of(outcome), received)
        else:
            self._receive_result(call, outcome, size_bytes, received)

    def fail(self, request_id: str, fault: Fault, received: list[Received]) -> None:
        """Answer a request with the bad line that stands in the place of its answer."""
        self._forget(self._open[request_id])
        received.append(Answered(request_id, fault.failure(), fault))

    def receive_progress(self, params: dict[str, Any], received: list[Received]) -> bool:
        """Take progress; False if it belongs to no open request."""
        token, done = meant_id(params.get("progressToken")), params.get("progress")
        call = None if token is None else self._by_rpc_id.get(token)
        if call is None:
            return False
        request_id = call.request.request_id
        if not isinstance(done, int | float) or isinstance(done, bool):
            words = f'"progress" is {kind(done)}, it must be a number'
        elif call.progress is not None and done <= call.progress:
            words = f"progress went from {call.progress:g} to {done:g}, it must increase"
        else:
            call.progress = done
            payload = {"done": done, "total": params.get("total"), "message": params.get("message")}
            event = UiEvent(version="0", request_id=request_id, event="progress", payload=payload)
            received.append(EventReceived(request_id, event))
            return True
        # No event for the client, but the server is at work.
        received += [Warned(request_id, Notice("bad_progress", words)), Alive(request_id)]
        return True

    def _receive_result(
        self, call: OpenCall, result: dict[str, Any], size_bytes: int, received: list[Received]
    ) -> None:
        sort = result.get("resultType", "complete") if self._speaker.is_modern else "complete"
        if sort == "complete":
            unpacking = Unpacking(call.request.request_id)
            outcome = unpacking.result(call.method, result)
            received += unpacking.events
            self._close(call, outcome, received)
        elif sort == "input_required":
            call.rounds += 1
            wanted = read_round(result, call.rounds)
            if isinstance(wanted, Failure):
                self._close(call, wanted, received)
                return
            call.round = wanted
            request_id = call.request.request_id
            received += [HostCalled(request_id, one, size_bytes) for one in wanted.calls.values()]
            self._go_on(call, wanted, received)
        else:
            words = f"the answer is of a resultType that is not known here: {sort!r:.40}"
            self._close(call, Failure.because(Reason.INVALID_EVENT, words), received)

    # What the host says.

    def answer(self, asked: HostCalled, outcome: Outcome, received: list[Received]) -> None:
        """Take the host's answer to an input that a request waits for."""
        call = self._open.get(asked.request_id or "")
        if call is None or call.round is None:
            return
        failure = call.round.answered(asked.call, outcome)
        if failure is not None:
            self._close(call, failure, received)
        else:
            self._go_on(call, call.round, received)

    def _go_on(self, call: OpenCall, wanted: Round, received: list[Received]) -> None:
        """Repeat the request with the input, if all of it has come."""
        if not wanted.is_over:
            return
        try:
            params = {**call.params, **wanted.params()}
            rpc_id = self._speaker.ask(call.request, call.method, params)
        except UNENCODABLE as error:
            words = (
                f"the answers to the server's questions cannot be written: {type(error).__name__}"
            )
            self._close(call, Failure.because(Reason.INVALID_EVENT, words), received)
        else:
            self.sent_again(call.request.request_id, rpc_id)

    def _close(self, call: OpenCall, outcome: Outcome, received: list[Received]) -> None:
        self._forget(call)
        received.append(Answered(call.request.request_id, outcome))

    def _forget(self, call: OpenCall) -> None:
        del self._open[call.request.request_id]
        self._by_rpc_id.pop(call.rpc_id, None)


VALUE_CHARS = 256
"""Of values that the client chose."""

_CHOSEN = {
    "prompts/get": ("gen_ai.prompt.name", "name"),
    "resources/read": ("mcp.resource.uri", "uri"),
}


def span_attributes(
    description: Mapping[str, Any] | None, request: Request, outcome: Outcome
) -> dict[str, str]:
    said = {} if description is None else description
    named, tools = OPS.get(request.op), said.get("tools", ())
    is_tool = named is None or any(one["name"] == request.op for one in tools)
    method = CALL if named is None or is_tool else named.method
    found = {"mcp.method.name": method, "network.transport": "pipe"}
    if description is not None:
        found["mcp.protocol.version"] = description["mcp"]["revision"]
    if method == CALL:
        found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": request.op}
    elif method in _CHOSEN:
        attribute, arg = _CHOSEN[method]
        found[attribute] = str(request.args.get(arg))
    if isinstance(outcome, Failure):
        reported = outcome.details.get("reported")
        reported = reported if isinstance(reported, dict) else {}
        found["error.type"] = "tool_error" if reported.get("isError") is True else outcome.code
        if type(reported.get("code")) is int:
            found["rpc.response.status_code"] = str(reported["code"])
    return {name: value[:VALUE_CHARS] for name, value in found.items()}
