"""Questions to a client in the course of its request, and the requests that wait for answers.

    older era   each question is a request to the client
    newer era   questions are collected for a moment, and end the request with `input_required`; it
                is parked until the client asks the same again, with answers and the state it got

A state is signed, and valid once, for a while, and for the client that got it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.dialects.mcp.inquiries import ASK, HOST_METHODS, ROOTS, SAMPLE
from protocol.dialects.mcp.rpc import INVALID_PARAMS, RpcError
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.mcp_server import lines
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

if TYPE_CHECKING:
    from supervisor.faces.mcp.request import McpRequest

PARKED_S = 600.0
"""How long a request waits for its client to come back; its own deadline may be sooner."""

PARKED = 1024
"""The number of waiting requests; a further one ends the oldest."""

COLLECT_S = 0.02
"""Questions that a module asks at once come a pass of the loop apart."""

ELICIT = "elicitation/create"

METHODS = {ours: theirs for theirs, ours in HOST_METHODS.items()}

CAPABILITIES = {ROOTS: "roots", SAMPLE: "sampling", ASK: "elicitation"}
"""The client capability that each host method needs."""

TakeAnswer = Callable[["dict[str, Any] | RpcError"], None]


Questions = dict[str, TakeAnswer]
"""Open questions to a client of the older era, by their ids."""


def ask_client(
    open_questions: Questions,
    method: str,
    params: Mapping[str, Any],
    answered: TakeAnswer,
    write: Callable[[bytes], None],
) -> Callable[[], None]:
    """Write a request to a client; returns a function that withdraws it."""
    named = f"stdiod-{secrets.token_hex(8)}"
    open_questions[named] = answered
    write(lines.message({"id": named, "method": method, "params": params}) + b"\n")

    def withdraw() -> None:
        if open_questions.pop(named, None) is not None:
            params = {"requestId": named, "reason": "it is answered, or over"}
            write(lines.message({"method": "notifications/cancelled", "params": params}) + b"\n")

    return withdraw


class Inquiry(msgspec.Struct, frozen=True):
    """A question, and the function that takes its answer."""

    method: str
    params: Mapping[str, Any]
    answered: TakeAnswer


def outcome_of(answer: dict[str, Any] | RpcError) -> Outcome:
    """Return the outcome of an answer for the module."""
    if isinstance(answer, RpcError):
        words = f"the client answered with the error {answer.code}: {answer.message}"
        return Failure.because(Reason.REPORTED, words)
    return Success(answer)


def form_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question to a person as an elicitation."""
    form = question.get("form")
    if form is None:
        choices = {"type": "string", "enum": list(question.get("options", ()))}
        form = {"type": "object", "properties": {"answer": choices}, "required": ["answer"]}
    return {"mode": "form", "message": question.get("prompt", ""), "requestedSchema": form}


def decision_of(question: Mapping[str, Any], answer: dict[str, Any] | RpcError) -> dict[str, Any]:
    """Return the args of the op `approve` for an elicitation's answer."""
    accepted = isinstance(answer, dict) and answer.get("action") == "accept"
    content = answer.get("content") if isinstance(answer, dict) else None
    content = content if isinstance(content, dict) else {}
    decided: dict[str, Any] = {"id": question["id"], "answer": "allow" if accepted else "deny"}
    if accepted and "form" in question:
        decided["content"] = content
    elif accepted:
        decided["answer"] = str(content.get("answer", "allow"))
    return decided


class Parked(msgspec.Struct):
    """A request whose client is to come back."""

    request: McpRequest
    whose: tuple[Principal, str, str]
    timer: Timer


class ParkingPlace:
    """The parked requests of one daemon, the oldest first."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._key = secrets.token_bytes(32)
        self._all: dict[str, Parked] = {}

    def park(self, request: McpRequest) -> str:
        """Park a request; returns the state that its client has to come back with."""
        if len(self._all) >= PARKED:
            self._give_up(next(iter(self._all)))
        named = secrets.token_urlsafe(18)
        timer = self._deadlines.after(PARKED_S, lambda: self._give_up(named))
        self._all[named] = Parked(request, request.whose, timer)
        return f"{named}.{self._sign(named, request.whose)}"

    def take(
        self, state: object, whose: tuple[Principal, str, str], arguments: object
    ) -> McpRequest | RpcError:
        """Return the request parked under this state by this client, with these arguments."""
        named, _, signature = state.partition(".") if isinstance(state, str) else ("", "", "")
        good = hmac.compare_digest(signature.encode(), self._sign(named, whose).encode())
        parked = self._all.get(named) if good else None
        if parked is None or parked.request.asked.params.get("arguments") != arguments:
            words = (
                "the requestState was not given to this client for this request, was used"
                f" before, or is older than {PARKED_S:g} s"
            )
            return RpcError(INVALID_PARAMS, words)
        del self._all[named]
        parked.timer.cancel()
        return parked.request

    def _sign(self, named: str, whose: tuple[Principal, str, str]) -> str:
        principal, *rest = whose
        said = [named, principal.name, principal.face, *principal.modules, *rest]
        data = msgspec.json.encode([one.encode(errors="replace").decode() for one in said])
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()

    def _give_up(self, named: str) -> None:
        parked = self._all.pop(named, None)
        if parked is not None:
            parked.timer.cancel()
            words = f"its client was asked something, and did not come back in {PARKED_S:g} s"
            parked.request.cancel(Stopped(Reason.DISCONNECT, words))
