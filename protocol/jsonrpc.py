"""JSON-RPC 2.0 in lines: messages read strictly, written, and counted both ways.

An id is a string or a whole number, and `1` is not `"1"`. A null for an optional field is an absent
one. An answer with an error and no id answers a request that could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from protocol.errors import Failure, Outcome, Reason
from protocol.frames import encode, one_line
from protocol.framing import Outgoing
from protocol.host_call import UNENCODABLE
from protocol.json_line import Fault, excerpt, read_object
from protocol.problem import kind

RpcId = str | int

Owner = TypeVar("Owner")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class RpcError(msgspec.Struct, frozen=True):
    code: int
    message: str = ""
    data: Any = None


class RpcAnswer(msgspec.Struct, frozen=True):
    """An answer; without an id it belongs to no request that could be read."""

    rpc_id: RpcId | None
    outcome: dict[str, Any] | RpcError
    shown_id: str = ""
    """The unusable id of an answer, in words."""


class RpcCall(msgspec.Struct, frozen=True):
    rpc_id: RpcId
    method: str
    params: dict[str, Any]


class RpcNotification(msgspec.Struct, frozen=True):
    method: str
    params: dict[str, Any]


class RpcMistake(msgspec.Struct, frozen=True):
    """A line that is none of these; `rpc_id` is the id of the request that it would answer."""

    fault: Fault
    rpc_id: RpcId | None = None


RpcMessage = RpcAnswer | RpcCall | RpcNotification | RpcMistake

RpcReply = dict[str, Any] | RpcError | Fault
"""The answer to a request: a result, an error, or the fault of a bad line that came instead."""


_WHOLE = re.compile(r"[1-9][0-9]{0,17}")


def meant_id(named: object) -> RpcId | None:
    """Return our id that a server means: it may write `"3"` or `3.0` for 3."""
    if isinstance(named, str):
        return int(named) if _WHOLE.fullmatch(named) else named
    if isinstance(named, float) and named.is_integer():
        return int(named)
    return named if type(named) is int else None


def read_message(line: bytes) -> RpcMessage:
    document = read_object(line)
    return RpcMistake(document) if isinstance(document, Fault) else message_of(document, line)


def message_of(document: dict[str, Any], line: bytes) -> RpcMessage:
    """Return the message of an object; `line` is shown if it is none."""
    named = document.get("id")
    rpc_id = named if isinstance(named, str) or type(named) is int else None
    problem = _problem(document, rpc_id)
    if problem is not None:
        fault = Fault(
            Reason.INVALID_EVENT, f"the line is not an MCP message: {problem}", excerpt(line)
        )
        return RpcMistake(fault, None if "method" in document else rpc_id)
    if "method" not in document:
        error = document.get("error")
        if error is None:
            return RpcAnswer(rpc_id, document["result"])
        return RpcAnswer(rpc_id, msgspec.convert(error, RpcError))
    params = document.get("params") or {}
    if rpc_id is None:
        return RpcNotification(document["method"], params)
    return RpcCall(rpc_id, document["method"], params)


_ID = 'its "id" is {}, it must be a string or a whole number'


def _problem(document: dict[str, Any], rpc_id: RpcId | None) -> str | None:
    if document.get("jsonrpc") != "2.0":
        return 'it does not say "jsonrpc":"2.0"'
    if "method" in document:
        return _problem_of_request(document, rpc_id)
    if rpc_id is None and document.get("id") is not None:
        return _ID.format(kind(document["id"]))
    result, error = document.get("result"), document.get("error")
    if result is not None and error is not None:
        return "it has a result and an error"
    if error is not None:
        try:
            msgspec.convert(error, RpcError)
        except msgspec.ValidationError as found:
            return f"its error is not valid: {found}"
        return None
    if not isinstance(result, dict):
        return f"its result is {kind(result)}, it must be an object"
    return None if rpc_id is not None else "it has a result and no id"


def _problem_of_request(document: dict[str, Any], rpc_id: RpcId | None) -> str | None:
    if not isinstance(document["method"], str):
        return f'its "method" is {kind(document["method"])}, it must be a string'
    if "id" in document and rpc_id is None:
        return _ID.format(kind(document["id"]))
    if document.get("result") is not None:
        return "it has a method and a result"
    if not isinstance(document.get("params"), dict | None):
        return f'its "params" is {kind(document["params"])}, it must be an object'
    return None


def message_line(document: Mapping[str, Any]) -> bytes:
    r"""Encode a message, without its `\n`."""
    return one_line(encode({"jsonrpc": "2.0", **document}))


def answer_line(rpc_id: RpcId | None, outcome: Mapping[str, Any] | RpcError) -> bytes:
    """Encode the answer to a request; an unencodable result becomes an error.

    An error that answers no request has no id: JSON-RPC has null there, but MCP does not allow
    that.
    """
    to: dict[str, Any] = {} if rpc_id is None else {"id": rpc_id}
    try:
        if isinstance(outcome, RpcError):
            return message_line({**to, "error": error_document(outcome)})
        return message_line({**to, "result": outcome})
    except UNENCODABLE as error:
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return message_line({**to, "error": {"code": INTERNAL_ERROR, "message": words}})


def error_document(error: RpcError) -> dict[str, Any]:
    document: dict[str, Any] = {"code": error.code, "message": error.message}
    return document if error.data is None else {**document, "data": error.data}


_UNREADABLE = (Reason.MALFORMED_JSON, Reason.INVALID_UTF8, Reason.LINE_TOO_LONG)


def mistake(found: RpcMistake) -> RpcError:
    fault = found.fault
    code = PARSE_ERROR if fault.reason in _UNREADABLE else INVALID_REQUEST
    return RpcError(code, fault.message, {"excerpt": fault.excerpt})


_CODES: dict[str, int] = {
    Reason.UNKNOWN_OP: METHOD_NOT_FOUND,
    Reason.INVALID_ARGS: INVALID_PARAMS,
    Reason.MALFORMED_REQUEST: INVALID_REQUEST,
}
"""JSON-RPC's own codes, by the reasons that mean the same."""


def rpc_outcome(outcome: Outcome) -> Any:
    """Return the result or the `RpcError` that says the same."""
    if not isinstance(outcome, Failure):
        return outcome.result
    code = _CODES.get(str(outcome.details.get("reason")), INTERNAL_ERROR)
    return RpcError(code, outcome.message, {"code": outcome.code})


class RpcRequests(Generic[Owner]):
    """The open requests of one side and of its peer.

    An answer belongs to the owner of its id. The owner closes the id when nothing that is said
    under it matters any more; an answer that comes later has no owner.

    Ids are numbers, counted from 1: many peers read them into an integer, and those that cannot
    read an id answer 0.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.last_id = 0
        self.open: dict[RpcId, Owner] = {}
        """The owners of our requests by their ids, the oldest first."""
        self.unanswered: set[RpcId] = set()
        """The ids of the peer's requests that wait for our answer."""

    def ask(self, method: str, params: dict[str, Any], owner: Owner, request_id: str = "") -> RpcId:
        """Write a request; returns its id. Raises one of `UNENCODABLE`, and then does nothing."""
        rpc_id = self.last_id + 1
        self._write({"id": rpc_id, "method": method, "params": params}, request_id)
        self.last_id = rpc_id
        self.open[rpc_id] = owner
        return rpc_id

    def close(self, rpc_id: RpcId) -> None:
        self.open.pop(rpc_id, None)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def answer(self, rpc_id: RpcId, outcome: Outcome) -> None:
        self.unanswered.discard(rpc_id)
        self._outgoing.add(answer_line(rpc_id, rpc_outcome(outcome)) + b"\n")

    def was_given(self, rpc_id: object) -> bool:
        return isinstance(rpc_id, int) and 0 < rpc_id <= self.last_id

    def _write(self, document: dict[str, Any], request_id: str = "") -> None:
        self._outgoing.add(message_line(document) + b"\n", request_id)
