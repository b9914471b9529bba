"""The requests of both sides: which ids stand for what, and what they are to the other side.

    id of                     owner         closed by
    a request of the host     OpenCall      its answer or its cancel; after an answer that wants
                                            input it goes on under another id (`calls`)
    the connection's own      OwnQuestion   its answer, or when nobody wants the answer any more
    a request of the server   -             the host's answer

Lines are in the form of the agreed revision; before that, each question is in that of its own era.

What a server asks is a call to the host, under the capability rules: a server is told only of
capabilities that its descriptor lists. One of the older era sends requests of its own. One of the
newer era answers a request with its questions (`input_required`), and is asked the same again,
with the answers.

    roots/list -> roots.list
    elicitation/create -> user.ask
    sampling/createMessage -> model.sample
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from protocol.connection import Request
from protocol.descriptor.model import Descriptor
from protocol.dialects.mcp.vocabulary import (
    ASK,
    HOST_METHODS,
    INITIALIZE,
    LISTEN,
    META,
    MODERN,
    ROOTS,
    SAMPLE,
    Era,
)
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.frames import DEPTH
from protocol.framing import Outgoing
from protocol.host_call import CALL_ID_CHARS, HostCall
from protocol.jsonrpc import RpcId, RpcReply, RpcRequests
from protocol.problem import described, quoted
from protocol.version import VERSION
from protocol.weight import is_deeper

CLIENT = {"name": "stdiod", "version": VERSION}

REQUEST_ID = "stdiod/requestId"
"""The host's id of a request, in its `_meta`: a replay finds the request of a line by it."""

LOG_LEVEL = "info"
"""The level asked of a server of the newer era; one of the older era chooses itself."""


class Agreed(msgspec.Struct, frozen=True):
    era: Era
    revision: str
    capabilities: dict[str, Any]
    server: dict[str, Any]
    instructions: str | None


class OpenCall(msgspec.Struct, gc=False):
    request: Request
    method: str
    params: dict[str, Any]
    rpc_id: RpcId = 0
    progress: float | None = None
    rounds: int = 0
    round: Round | None = None
    """The input that the server waits for before it goes on."""

    @property
    def is_waiting(self) -> bool:
        """Whether its line has to be answered."""
        return self.round is None


class OwnQuestion(msgspec.Struct, eq=False):
    method: str
    then: Callable[[OwnQuestion, RpcReply], None]
    """Takes the answer."""
    rpc_id: RpcId = 0

    @property
    def is_waiting(self) -> bool:
        """Whether its line has to be answered; the answer to a subscription is its end."""
        return self.method != LISTEN


class McpRequests(RpcRequests[OpenCall | OwnQuestion]):
    def __init__(self, client: dict[str, Any], outgoing: Outgoing) -> None:
        """`client` is the client capabilities."""
        super().__init__(outgoing)
        self.client = client
        self.agreed: Agreed | None = None
        self.is_modern = False

    def follow(self, agreed: Agreed) -> None:
        """Write in this form from now on."""
        self.agreed = agreed
        self.is_modern = agreed.era is Era.MODERN

    @property
    def waiting(self) -> list[RpcId]:
        """The ids of the lines that have to be answered."""
        return [rpc_id for rpc_id, owner in self.open.items() if owner.is_waiting]

    def owner(self, rpc_id: RpcId | None) -> OpenCall | OwnQuestion | None:
        """Return the owner of a line that may be answered."""
        owner = None if rpc_id is None else self.open.get(rpc_id)
        return None if isinstance(owner, OpenCall) and owner.round is not None else owner

    def ask_for(self, call: OpenCall, params: dict[str, Any]) -> None:
        """Write a request of the host; its id is the token of its progress."""
        request = call.request
        meta: dict[str, Any] = {"progressToken": self.last_id + 1, REQUEST_ID: request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        params = self._with_meta(call.method, params, meta)
        rpc_id = self.ask(call.method, params, call, request.request_id)
        self.close(call.rpc_id)
        call.rpc_id = rpc_id

    def ask_own(
        self, method: str, params: dict[str, Any], then: Callable[[OwnQuestion, RpcReply], None]
    ) -> OwnQuestion:
        question = OwnQuestion(method, then)
        question.rpc_id = self.ask(method, self._with_meta(method, params, {}), question)
        return question

    def asks(self, method: str) -> bool:
        """Tell whether the answer to an own question is still to come."""
        return any(
            isinstance(owner, OwnQuestion) and owner.method == method
            for owner in self.open.values()
        )

    def forget(self, method: str | None = None) -> None:
        """Close the own questions with a method, or all: a late answer means nothing."""
        for owner in tuple(self.open.values()):
            if isinstance(owner, OwnQuestion) and method in (None, owner.method):
                self.close(owner.rpc_id)

    def cancel(self, rpc_id: RpcId) -> None:
        self.close(rpc_id)
        self.notify("notifications/cancelled", {"requestId": rpc_id})

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {
                **meta,
                f"{META}protocolVersion": MODERN,
                f"{META}clientInfo": CLIENT,
                f"{META}clientCapabilities": self.client,
            }
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params


# The requests of a server.

_CLIENT_CAPABILITIES: dict[str, tuple[str, dict[str, Any]]] = {
    ROOTS: ("roots", {}),
    ASK: ("elicitation", {"form": {}}),
    SAMPLE: ("sampling", {}),
}

ROUNDS = 16
"""Rounds of input per request; one deadline covers them all."""

INQUIRIES = 32
"""Inputs per round."""


def client_capabilities(descriptor: Descriptor) -> dict[str, Any]:
    """Return the client capabilities that the descriptor grants, as MCP puts them."""
    return dict(
        told
        for method, told in _CLIENT_CAPABILITIES.items()
        if any(
            fnmatchcase(method, entry) or method.startswith(f"{entry}.")
            for entry in (one.partition(":")[0] for one in descriptor.capabilities)
        )
    )


def host_call(call_id: str, method: str, params: dict[str, Any]) -> HostCall | Failure:
    """Return the call that a server's request stands for, or why it is refused."""
    if len(call_id) > CALL_ID_CHARS:
        return _bad(f"its id has more than {CALL_ID_CHARS} characters")
    wanted = HOST_METHODS.get(method)
    if wanted is None:
        return Failure.because(Reason.UNKNOWN_OP, f"there is no method {quoted(method)}")
    if is_deeper(params, DEPTH):
        return _bad(f"its params are nested more than {DEPTH} levels deep")
    match wanted:
        case "roots.list":
            return HostCall(call_id, wanted, {})
        case "user.ask":
            message, form = params.get("message"), params.get("requestedSchema")
            if params.get("mode", "form") != "form":
                return _bad(f"the mode {described(params['mode'])} was not offered")
            if not isinstance(message, str) or not isinstance(form, dict):
                return _bad('it needs a "message" and a "requestedSchema"')
            return HostCall(call_id, wanted, {"message": message, "form": form})
        case _:
            given = {key: value for key, value in params.items() if key != "_meta"}
            return HostCall(call_id, wanted, given)


def client_result(call: HostCall, outcome: Outcome) -> Outcome:
    """Return the answer to a call in MCP's form; an answer that has no such form is a failure."""
    if isinstance(outcome, Failure):
        return outcome
    try:
        found = msgspec.convert(outcome.result, _RESULTS[call.method])
    except msgspec.ValidationError as error:
        words = f"what {call.method} was answered has not the form that MCP wants: {error}"
        return Failure.because(Reason.INVALID_EVENT, words)
    if isinstance(found, _Sample) and isinstance(found.content, list):
        # Several blocks are known to the newest of the older revisions only.
        text = "\n".join(one.text for one in found.content)
        found = msgspec.structs.replace(found, content=_Text(text))
    return Success(msgspec.to_builtins(found))


def _bad(words: str) -> Failure:
    return Failure.because(Reason.INVALID_ARGS, f"the request cannot be served: {words}")


class _Root(msgspec.Struct, frozen=True, omit_defaults=True):
    uri: str
    name: str | None = None


class _Roots(msgspec.Struct, frozen=True):
    roots: list[_Root]


_Entry = str | int | float | bool | list[str]


class _Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A form's content may hold nothing but these."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, _Entry] | None = None


class _Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _Sample(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A model's text; other content has no place here."""

    role: Literal["assistant", "user"]
    content: _Text | list[_Text]
    model: str
    stop_reason: str | None = None


_RESULTS: dict[str, Any] = {ROOTS: _Roots, ASK: _Reply, SAMPLE: _Sample}


class Round(msgspec.Struct):
    """The input that a server asks for in an answer, and what of it has come."""

    calls: list[HostCall]
    open: dict[str, str]
    """The server's keys of the calls without an answer, by the calls' ids."""
    given: dict[str, Any]
    """The params that the repeated request has besides its own."""

    def take(self, call: HostCall, outcome: Outcome) -> Failure | None:
        """Take an answer; returns the failure of the whole request, if the answer is one."""
        key = self.open.pop(call.call_id, None)
        if key is None:
            return None
        result = client_result(call, outcome)
        if isinstance(result, Failure):
            return result
        self.given["inputResponses"][key] = result.result
        return None


def read_round(result: dict[str, Any], number: int) -> Round | Failure:
    """Read an answer that asks for input; it is the request's `number`th."""
    if number > ROUNDS:
        return _bad_round(f"asked for input more than {ROUNDS} times")
    state, wanted = result.get("requestState"), result.get("inputRequests")
    if not isinstance(state, str | None) or not isinstance(wanted, dict | None):
        return _bad_round("asked for input in a form that is not MCP's")
    if state is None and not wanted:
        return _bad_round("asked for input and does not say which")
    if wanted is not None and len(wanted) > INQUIRIES:
        return _bad_round(f"asked for more than {INQUIRIES} inputs at once")
    given: dict[str, Any] = {"inputResponses": {}} if wanted else {}
    if state is not None:
        given["requestState"] = state
    found = Round([], {}, given)
    for index, (key, request) in enumerate((wanted or {}).items()):
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _bad_round(f"asked for the input {quoted(key)}, which is not a request")
        params = request.get("params")
        call = host_call(
            f"{number}.{index}", request["method"], params if isinstance(params, dict) else {}
        )
        if isinstance(call, Failure):
            return _bad_round(f"asked for the input {quoted(key)}: {call.message}")
        found.calls.append(call)
        found.open[call.call_id] = key
    return found


def _bad_round(words: str) -> Failure:
    return Failure.because(Reason.INVALID_EVENT, f"the server {words}")
