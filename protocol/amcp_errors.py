"""The errors of AMCP: their codes, the HTTP status of each, and the mapping from our codes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from protocol.errors import Code, Failure, Reason


class ErrorCode(StrEnum):
    BAD_REQUEST = "BAD_REQUEST"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    INVALID_JSON = "INVALID_JSON"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    INVALID_TOKEN = "INVALID_TOKEN"  # noqa: S105 - a code
    INVALID_API_KEY = "INVALID_API_KEY"
    NOT_FOUND = "NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    CONFLICT = "CONFLICT"
    SESSION_BUSY = "SESSION_BUSY"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    RATE_LIMITED = "RATE_LIMITED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    LLM_ERROR = "LLM_ERROR"
    TOOL_ERROR = "TOOL_ERROR"
    MCP_ERROR = "MCP_ERROR"
    TIMEOUT = "TIMEOUT"
    CONNECTION_CLOSED = "CONNECTION_CLOSED"
    CONNECTION_FAILED = "CONNECTION_FAILED"
    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    UNSUPPORTED_ACTION = "UNSUPPORTED_ACTION"
    INVALID_MESSAGE = "INVALID_MESSAGE"
    CANCELLED = "CANCELLED"


HTTP_STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.VALIDATION_ERROR: 400,
    ErrorCode.INVALID_JSON: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.INVALID_TOKEN: 401,
    ErrorCode.INVALID_API_KEY: 401,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.SESSION_NOT_FOUND: 404,
    ErrorCode.TOOL_NOT_FOUND: 404,
    ErrorCode.AGENT_NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.SESSION_BUSY: 409,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.INTERNAL_ERROR: 500,
    ErrorCode.LLM_ERROR: 500,
    ErrorCode.TOOL_ERROR: 500,
    ErrorCode.MCP_ERROR: 500,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.CONNECTION_CLOSED: 500,
    ErrorCode.CONNECTION_FAILED: 500,
    ErrorCode.PROTOCOL_ERROR: 400,
    ErrorCode.UNSUPPORTED_ACTION: 400,
    ErrorCode.INVALID_MESSAGE: 400,
    ErrorCode.CANCELLED: 499,
}


class AmcpError(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str
    details: dict[str, Any] = {}

    @property
    def status(self) -> int:
        return HTTP_STATUS[self.code]

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
