"""The mapping of Pi's five error codes of host calls and stdiod's codes, both ways.

Five codes say less than eight, so the original one goes along in `details.code`, and is restored on
the way back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from protocol.errors import Code, Failure, Reason


class PiCode(StrEnum):
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
