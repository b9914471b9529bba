"""What is written to a client, and what is wrong with what it writes, as JSON-RPC 2.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RpcError,
    RpcId,
    RpcMistake,
)
from protocol.errors import Reason
from protocol.frames import encode, one_line
from protocol.host_call import UNENCODABLE

PARSE_ERROR = -32700

_UNREADABLE = (Reason.MALFORMED_JSON, Reason.INVALID_UTF8, Reason.LINE_TOO_LONG)


def message(document: Mapping[str, Any]) -> bytes:
    """Encode a request or a notification; raises one of `UNENCODABLE`."""
    return one_line(encode({"jsonrpc": "2.0", **document}))


def answer(rpc_id: RpcId | None, outcome: Mapping[str, Any] | RpcError) -> bytes:
    """Encode the answer to a request; what cannot be encoded becomes an error.

    An error that is to no request has no id: JSON-RPC has null there, but MCP does not allow that.
    """
    to: dict[str, Any] = {} if rpc_id is None else {"id": rpc_id}
    try:
        if isinstance(outcome, RpcError):
            return message({**to, "error": error_document(outcome)})
        return message({**to, "result": outcome})
    except UNENCODABLE as error:
        words = f"the answer cannot be passed on: {type(error).__name__}"
        return message({**to, "error": {"code": INTERNAL_ERROR, "message": words}})


def error_document(error: RpcError) -> dict[str, Any]:
    """Return an error as it is written."""
    document: dict[str, Any] = {"code": error.code, "message": error.message}
    return document if error.data is None else {**document, "data": error.data}


def mistake(found: RpcMistake) -> RpcError:
    """Return what a client is told of a message that is none."""
    fault = found.fault
    code = PARSE_ERROR if fault.reason in _UNREADABLE else INVALID_REQUEST
    return RpcError(code, fault.message, {"excerpt": fault.excerpt})
