"""The errors of AMCP: their codes, the HTTP status of each, and the mapping from our codes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from protocol.errors import Code, Failure, Origin, Reason


class ErrorCode(StrEnum):
    """The codes, each with its HTTP status."""

    status: int

    def __new__(cls, word: str, status: int) -> Self:
        made = str.__new__(cls, word)
        made._value_, made.status = word, status
        return made

    BAD_REQUEST = "BAD_REQUEST", 400
    VALIDATION_ERROR = "VALIDATION_ERROR", 400
    INVALID_JSON = "INVALID_JSON", 400
    UNAUTHORIZED = "UNAUTHORIZED", 401
    FORBIDDEN = "FORBIDDEN", 403
    INVALID_TOKEN = "INVALID_TOKEN", 401
    INVALID_API_KEY = "INVALID_API_KEY", 401
    NOT_FOUND = "NOT_FOUND", 404
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND", 404
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND", 404
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND", 404
    CONFLICT = "CONFLICT", 409
    SESSION_BUSY = "SESSION_BUSY", 409
    ALREADY_EXISTS = "ALREADY_EXISTS", 409
    RATE_LIMITED = "RATE_LIMITED", 429
    INTERNAL_ERROR = "INTERNAL_ERROR", 500
    LLM_ERROR = "LLM_ERROR", 500
    TOOL_ERROR = "TOOL_ERROR", 500
    MCP_ERROR = "MCP_ERROR", 500
    TIMEOUT = "TIMEOUT", 504
    CONNECTION_CLOSED = "CONNECTION_CLOSED", 500
    CONNECTION_FAILED = "CONNECTION_FAILED", 500
    PROTOCOL_ERROR = "PROTOCOL_ERROR", 400
    UNSUPPORTED_ACTION = "UNSUPPORTED_ACTION", 400
    INVALID_MESSAGE = "INVALID_MESSAGE", 400
    CANCELLED = "CANCELLED", 499


class AmcpError(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str
    details: dict[str, Any] = {}

    @property
    def status(self) -> int:
        return self.code.status

    def body(self) -> dict[str, Any]:
        """Return the body of an HTTP response; empty details are left out."""
        told = {"error": self.message, "code": str(self.code)}
        return {**told, "details": self.details} if self.details else told

    def frame(self, message_id: str | None) -> dict[str, Any]:
        """Return a WebSocket frame without a time."""
        return {"type": "error", "id": message_id, "payload": self.body()}


_OF_REASON: Final[Mapping[str, ErrorCode]] = {
    Reason.INVALID_ARGS: ErrorCode.VALIDATION_ERROR,
    Reason.MISSING_OP: ErrorCode.VALIDATION_ERROR,
    Reason.UNKNOWN_SESSION: ErrorCode.SESSION_NOT_FOUND,
    # In AMCP an ended session is a deleted one.
    Reason.SESSION_ENDED: ErrorCode.SESSION_NOT_FOUND,
    Reason.SESSION_BUSY: ErrorCode.SESSION_BUSY,
    Reason.SESSION_EXISTS: ErrorCode.ALREADY_EXISTS,
    Reason.NO_AGENT: ErrorCode.AGENT_NOT_FOUND,
    Reason.UNKNOWN_MODULE: ErrorCode.NOT_FOUND,
    Reason.UNKNOWN_ASSET: ErrorCode.NOT_FOUND,
    Reason.UNKNOWN_APPROVAL: ErrorCode.NOT_FOUND,
    Reason.REVISION_CONFLICT: ErrorCode.CONFLICT,
    Reason.ASSET_CHANGED: ErrorCode.CONFLICT,
    Reason.REENTRANT_CALL: ErrorCode.CONFLICT,
    Reason.QUEUE_FULL: ErrorCode.RATE_LIMITED,
}
"""For the host's own findings; for all others the code decides."""

_OF_CODE: Final[Mapping[str, ErrorCode]] = {
    Code.TIMEOUT: ErrorCode.TIMEOUT,
    Code.OOM: ErrorCode.INTERNAL_ERROR,
    Code.UNREACHABLE: ErrorCode.CONNECTION_FAILED,
    Code.BAD_REQUEST: ErrorCode.BAD_REQUEST,
    Code.FORBIDDEN: ErrorCode.FORBIDDEN,
    Code.INTERNAL: ErrorCode.INTERNAL_ERROR,
    Code.UNSUPPORTED_OP: ErrorCode.UNSUPPORTED_ACTION,
    Code.CANCELLED: ErrorCode.CANCELLED,
}


def error_of(failure: Failure) -> AmcpError:
    """Map a failure to AMCP; our code stands in the details, beside the evidence."""
    reason = failure.details.get("reason") if failure.details.get("origin") == "host" else None
    code = _OF_REASON.get(reason) if isinstance(reason, str) else None
    code = code or _OF_CODE.get(failure.code, ErrorCode.TOOL_ERROR)
    return AmcpError(code, failure.message, {**failure.details, "code": failure.code})


TRY_LATER = 503
LATER = frozenset({Reason.QUEUE_FULL, Reason.STOPPING})
"""Reasons whose answers have the header `Retry-After`."""

_NOT_FOUND = frozenset({Reason.UNKNOWN_MODULE, Reason.UNKNOWN_SESSION, Reason.SESSION_ENDED})
_STATUS = {
    Code.BAD_REQUEST: 400,
    Code.UNSUPPORTED_OP: 400,
    Code.FORBIDDEN: 403,
    Code.TIMEOUT: 504,
    Code.UNREACHABLE: 502,
    Code.CANCELLED: 499,
    Code.OOM: 500,
    Code.INTERNAL: 500,
}


def status_of(failure: Failure) -> int:
    """Return the status of a failed invocation; a failure that the module reports is always 422."""
    if failure.details.get("origin") == Origin.MODULE:
        return 422
    reason = failure.details.get("reason")
    if reason in LATER:
        return TRY_LATER
    return 404 if reason in _NOT_FOUND else _STATUS[Code(failure.code)]
