"""The lines of JSON-RPC 2.0, as MCP uses them: read strictly, and written.

An id is a string or a whole number, and `1` is not `"1"`. A null for an optional field is an absent
one. An answer with an error and no id answers a request that could not be read. `odd_lines` reads
lines of servers that are not quite messages.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.frames import encode_line
from protocol.host_call import UNENCODABLE
from protocol.json_line import Fault, excerpt, read_object
from protocol.problem import kind, quoted

RpcId = str | int

_WHOLE = re.compile(r"[1-9][0-9]{0,17}")


def meant_id(named: object) -> RpcId | None:
    """Return our id that a server means: it may write `"3"` or `3.0` for 3."""
    if isinstance(named, str):
        return int(named) if _WHOLE.fullmatch(named) else named
    if isinstance(named, float) and named.is_integer():
        return int(named)
    return named if type(named) is int else None


METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INVALID_REQUEST = -32600
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


def refused(method: str, outcome: RpcError | Fault) -> str:
    """Say as a clause that a question was refused."""
    if isinstance(outcome, Fault):
        return f"gave no answer to {method} that can be taken: {outcome.message}"
    return f"answered {method} with the error {outcome.code}: {quoted(outcome.message)}"


def request_line(rpc_id: int, method: str, params: dict[str, Any]) -> bytes:
    return encode_line({"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params})


def answer_line(rpc_id: RpcId, outcome: Outcome) -> bytes:
    """Encode the answer to a request of the server; an unencodable result becomes an error."""
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": rpc_id}
    try:
        if isinstance(outcome, Success):
            return encode_line({**answer, "result": outcome.result})
        return encode_line({**answer, "error": _error(outcome)})
    except UNENCODABLE as error:
        words = f"the answer cannot be passed on: {type(error).__name__}"
    return encode_line({**answer, "error": {"code": INTERNAL_ERROR, "message": words}})


def _error(failure: Failure) -> dict[str, Any]:
    code = _CODES.get(str(failure.details.get("reason")), INTERNAL_ERROR)
    return {"code": code, "message": failure.message, "data": {"code": failure.code}}


_CODES: dict[str, int] = {
    Reason.UNKNOWN_OP: METHOD_NOT_FOUND,
    Reason.INVALID_ARGS: INVALID_PARAMS,
    Reason.MALFORMED_REQUEST: INVALID_REQUEST,
}
"""JSON-RPC's own codes, by the reasons that mean the same."""
