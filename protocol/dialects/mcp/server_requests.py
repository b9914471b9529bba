"""The requests of a server to its client: calls to the host, under the capability rules.

A server of the older era sends requests of its own. One of the newer era answers a request with
its questions (`input_required`), and is asked the same again, with the answers.

    roots/list -> roots.list
    elicitation/create -> user.ask
    sampling/createMessage -> model.sample

A server is told only of capabilities that its descriptor lists.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from protocol.descriptor.model import Descriptor
from protocol.dialects.mcp.vocabulary import ASK, HOST_METHODS, ROOTS, SAMPLE
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.frames import DEPTH
from protocol.host_call import CALL_ID_CHARS, HostCall
from protocol.problem import described, quoted
from protocol.weight import is_deeper

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
        self.given.setdefault("inputResponses", {})[key] = result.result
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
    given: dict[str, Any] = {} if state is None else {"requestState": state}
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
