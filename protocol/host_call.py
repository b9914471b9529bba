"""Calls from a module to the host: `host_call` lines read, `host_result` lines written.

The daemon is a module too, and a client of its socket its host: there it writes calls, withdraws
them, and reads the results, in the course of a request whose line named the method in `asks`.

The payloads are those of the Pi extension protocol. `capability` is only what the module believes
it needs; `cancel_token` and `context` are ignored, and a `timeout_ms` of 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.frames import DEPTH, encode_line
from protocol.problem import described
from protocol.weight import is_deeper

FEATURE = "host_call"
"""The feature that `describe` names if the module makes calls."""

CALL_ID_CHARS = 256
METHOD_CHARS = 128

MAX_TIMEOUT_MS = 7 * 24 * 3600 * 1000
"""A longer one is no timeout; the bound also keeps arithmetic on times finite."""


class HostCall(msgspec.Struct, frozen=True):
    call_id: str
    method: str
    params: dict[str, Any]
    capability: str | None = None
    timeout_ms: int | None = None
    key: str | None = None
    """A module's own name for a question, which the daemon passes on to its client."""


class BadCall(msgspec.Struct, frozen=True):
    """A call that cannot be served, and why; without a `call_id` it cannot be answered either."""

    message: str
    call_id: str | None = None


def read_host_call(document: dict[str, Any]) -> HostCall | BadCall:
    """Read the object of a `host_call` line, whose envelope is checked already."""
    payload = document.get("payload")
    if not isinstance(payload, dict):
        return BadCall(
            f'"payload" of a host_call {_found(document, "payload")}, it must be an object'
        )
    call_id = payload.get("call_id")
    if not isinstance(call_id, str) or not 0 < len(call_id) <= CALL_ID_CHARS:
        return BadCall(
            f'"call_id" of a host_call {_found(payload, "call_id")}, it must be a string of'
            f" 1 to {CALL_ID_CHARS} characters"
        )
    problem = _problem(payload)
    if problem is not None:
        return BadCall(problem, call_id)
    return HostCall(
        call_id,
        payload["method"],
        payload["params"],
        payload.get("capability"),
        payload.get("timeout_ms") or None,
        key if isinstance(key := payload.get("key"), str) else None,
    )


def _problem(payload: dict[str, Any]) -> str | None:
    method = payload.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= METHOD_CHARS:
        return f'"method" of the call {_found(payload, "method")}, it must name a method'
    params = payload.get("params")
    if not isinstance(params, dict):
        return f'"params" of the call {_found(payload, "params")}, it must be an object'
    if is_deeper(params, DEPTH):
        return f'"params" of the call is nested more than {DEPTH} levels deep'
    if not isinstance(payload.get("capability"), str | None):
        return f'"capability" of the call {_found(payload, "capability")}, it must be a string'
    timeout_ms = payload.get("timeout_ms")
    if timeout_ms is not None and not _is_timeout(timeout_ms):
        return (
            f'"timeout_ms" of the call {_found(payload, "timeout_ms")}, it must be a whole number'
            f" from 0 to {MAX_TIMEOUT_MS}"
        )
    return None


def _is_timeout(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TIMEOUT_MS


def _found(payload: dict[str, Any], field: str) -> str:
    return f"is {described(payload[field])}" if field in payload else "is missing"


class Chunk(msgspec.Struct, frozen=True):
    index: int
    is_last: bool


def encode_result(
    request_id: str | None, call_id: str, outcome: Outcome, chunk: Chunk | None = None
) -> bytes | None:
    """Encode a `host_result`; the result of a success is an object.

    An unencodable result becomes a failure that says so. For a part of an answer None is returned
    instead: the next part's number shows that it is missing.
    """
    try:
        return _line(request_id, call_id, outcome, chunk)
    except UNENCODABLE as error:
        if chunk is not None and not chunk.is_last:
            return None
        what = "answer" if isinstance(outcome, Success) else "error"
        words = f"the {what} cannot be passed on: {type(error).__name__}"
    return _line(request_id, call_id, Failure.because(Reason.INVALID_EVENT, words), chunk)


ASKS = ("roots.list", "user.ask", "model.sample")
"""The methods by which the daemon may ask a client."""


def encode_call(
    request_id: str, call_id: str, method: str, params: Mapping[str, Any], key: str
) -> bytes:
    """Encode a `host_call` of the daemon's own; raises one of `UNENCODABLE`."""
    payload = {"call_id": call_id, "method": method, "params": params, "key": key}
    return encode_line(
        {"version": "0", "type": "host_call", "requestId": request_id, "payload": payload}
    )


def encode_withdrawal(request_id: str, call_id: str) -> bytes:
    """Encode that the answer to a call is no longer needed."""
    payload = {"call_id": call_id}
    return encode_line(
        {"version": "0", "type": "host_cancel", "requestId": request_id, "payload": payload}
    )


class HostResult(msgspec.Struct, frozen=True):
    """A client's answer to a question; the result of a success is an object."""

    request_id: str
    call_id: str
    outcome: Outcome


def read_host_result(document: dict[str, Any]) -> HostResult | BadCall:
    """Read the object of a client's `host_result` line."""
    request_id, payload = document.get("requestId"), document.get("payload")
    if not isinstance(request_id, str):
        return BadCall(
            f'"requestId" of a host_result {_found(document, "requestId")}, it must be a string'
        )
    if not isinstance(payload, dict):
        words = f'"payload" of a host_result {_found(document, "payload")}, it must be an object'
        return BadCall(words)
    call_id, is_error = payload.get("call_id"), payload.get("is_error", False)
    if not isinstance(call_id, str):
        words = f'"call_id" of a host_result {_found(payload, "call_id")}, it must be a string'
        return BadCall(words)
    if not isinstance(is_error, bool):
        words = f'"is_error" of a host_result is {described(is_error)}, it must be true or false'
        return BadCall(words, call_id)
    if not is_error:
        output = payload.get("output")
        if isinstance(output, dict):
            return HostResult(request_id, call_id, Success(output))
        return BadCall(
            f'"output" of a host_result {_found(payload, "output")}, it must be an object', call_id
        )
    error = payload.get("error")
    code, said = (error.get("code"), error.get("message")) if isinstance(error, dict) else (0, 0)
    if not isinstance(code, str) or not isinstance(said, str):
        problem = f'"error" of a host_result {_found(payload, "error")}, it must be an object with'
        return BadCall(f'{problem} a "code" and a "message", both strings', call_id)
    details = error.get("details") if isinstance(error, dict) else None
    ours = details.get("code") if isinstance(details, dict) else None
    if isinstance(ours, str) and pi_code(ours) == code:  # as `pi_error` has it
        code = ours
    words = f"the client answered with the error {code:.80}: {said:.2000}"
    return HostResult(request_id, call_id, Failure.because(Reason.REPORTED, words))


UNENCODABLE = (RecursionError, UnicodeError, TypeError, ValueError, OverflowError)
"""Exceptions of encoding a value that came from a module."""


def _line(request_id: str | None, call_id: str, outcome: Outcome, chunk: Chunk | None) -> bytes:
    payload: dict[str, Any] = {"call_id": call_id, "output": {}, "is_error": False}
    if isinstance(outcome, Success):
        payload["output"] = outcome.said
    else:
        payload |= {"is_error": True, "error": pi_error(outcome)}
    if chunk is not None:
        payload["chunk"] = chunk
    named = {} if request_id is None else {"requestId": request_id}
    return encode_line({"type": "host_result", **named, "payload": payload})


class PiCode(StrEnum):
    """Pi's codes of a failed call.

    Five codes say less than eight, so ours goes along in `details.code`, and is restored on the way
    back.
    """

    TIMEOUT = "timeout"
    DENIED = "denied"
    IO = "io"
    INVALID_REQUEST = "invalid_request"
    INTERNAL = "internal"


_TO_PI: dict[Code, PiCode] = {
    Code.TIMEOUT: PiCode.TIMEOUT,
    Code.OOM: PiCode.IO,
    Code.UNREACHABLE: PiCode.IO,
    Code.BAD_REQUEST: PiCode.INVALID_REQUEST,
    Code.FORBIDDEN: PiCode.DENIED,
    Code.INTERNAL: PiCode.INTERNAL,
    Code.UNSUPPORTED_OP: PiCode.INVALID_REQUEST,
    Code.CANCELLED: PiCode.IO,
}
_FROM_PI: dict[PiCode, Code] = {
    PiCode.TIMEOUT: Code.TIMEOUT,
    PiCode.DENIED: Code.FORBIDDEN,
    PiCode.IO: Code.UNREACHABLE,
    PiCode.INVALID_REQUEST: Code.BAD_REQUEST,
    PiCode.INTERNAL: Code.INTERNAL,
}

_RETRYABLE = frozenset({Reason.QUEUE_FULL, Reason.NOT_READY})
"""Nothing of the call was done, and the same call may succeed a moment later."""


def pi_code(code: str) -> PiCode:
    """Return Pi's code for one of ours; a module's own code is `internal`."""
    return _TO_PI[Code(code)] if code in tuple(Code) else PiCode.INTERNAL


def code_of(pi: str) -> Code:
    return _FROM_PI[PiCode(pi)] if pi in tuple(PiCode) else Code.INTERNAL


def pi_error(failure: Failure) -> dict[str, Any]:
    """Return a failure as a `host_call_error`.

    Its details stand beside `code`. Details with a `code` of their own, or that could be taken for
    one, stand whole under `details`.
    """
    details = failure.details
    if "code" in details or details.keys() == {"details"}:
        details = {"details": details}
    return {
        "code": str(pi_code(failure.code)),
        "message": failure.message,
        "details": {"code": failure.code, **details},
        "retryable": _is_retryable(failure.details),
    }


def _is_retryable(details: dict[str, Any]) -> bool:
    reason = details.get("reason")
    safe = reason == Reason.STOPPING and details.get("retry_safe") is True
    return safe or reason in tuple(_RETRYABLE)


def failure_of(code: str, message: str, details: dict[str, Any] | None = None) -> Failure:
    """Return the failure of a `host_call_error`.

    A `details.code` that matches the code is ours, and becomes the failure's. Without it, Pi's code
    is kept as `details.pi_code`.
    """
    details = {} if details is None else details
    ours = details.get("code")
    if not isinstance(ours, str) or pi_code(ours) != code:
        return Failure(code_of(code), message, {**details, "pi_code": code})
    inner = details.get("details")
    if details.keys() == {"code", "details"} and isinstance(inner, dict):
        return Failure(ours, message, inner)
    rest = {key: value for key, value in details.items() if key != "code"}
    return Failure(ours, message, rest)


def why_no_request(named: object, count: int) -> str:
    """Say why a call belongs to none of `count` open requests."""
    if named is None:
        state = "none is open" if count == 0 else f"{count} are open"
        return f'the call names no "requestId", and {state}'
    if not isinstance(named, str):
        return '"requestId" of the call must be a string'
    return f"the request {named!r:.80} of the call is not open"
