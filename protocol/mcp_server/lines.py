"""JSON-RPC 2.0 for an MCP client: its lines, and the faults of its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.dialects.mcp.odd_lines import BATCH, BATCHES
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
from protocol.mcp_server.client import McpClient

PARSE_ERROR = -32700

_UNREADABLE = (Reason.MALFORMED_JSON, Reason.INVALID_UTF8, Reason.LINE_TOO_LONG)

is_array = re.compile(rb"\s*\[").match


def split_batch(line: bytes, client: McpClient | None) -> list[bytes] | RpcError:
    """Return the messages of an array, or why this client may not send an array."""
    if client is None or client.revision != BATCHES:
        words = f"a batch is for clients that have agreed on the revision {BATCHES} in initialize"
        return RpcError(INVALID_REQUEST, f"{words}; send each message by itself")
    try:
        messages = [bytes(one) for one in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return RpcError(PARSE_ERROR, f"the batch is not JSON: {error}")
    if not 0 < len(messages) <= BATCH or any(map(is_array, messages)):
        words = f"a batch has 1 to {BATCH} messages, none of which is a batch"
        return RpcError(INVALID_REQUEST, f"{words}; this one has {len(messages)} members")
    return messages


def message(document: Mapping[str, Any]) -> bytes:
    return one_line(encode({"jsonrpc": "2.0", **document}))


def answer(rpc_id: RpcId | None, outcome: Mapping[str, Any] | RpcError) -> bytes:
    """Encode the answer to a request; an unencodable result becomes an error.

    An error that answers no request has no id: JSON-RPC has null there, but MCP does not allow
    that.
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
    document: dict[str, Any] = {"code": error.code, "message": error.message}
    return document if error.data is None else {**document, "data": error.data}


def mistake(found: RpcMistake) -> RpcError:
    fault = found.fault
    code = PARSE_ERROR if fault.reason in _UNREADABLE else INVALID_REQUEST
    return RpcError(code, fault.message, {"excerpt": fault.excerpt})
