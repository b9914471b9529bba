"""Read lines of servers that are not quite JSON-RPC but have one clear meaning.

    no JSON, but readable (`mended`), or JSON after other words  -> what it says
    an array, or several objects                                      -> each of them
    an object that is no message                                      -> the message that is meant
    neither, but it shows whose answer it is                          -> that request fails

Only a clear line is read as a message: one without `"jsonrpc"` only if it answers an open question,
or has a method of MCP; programs log in JSON, too.
"""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import Any

import msgspec

from protocol.connection import Notice
from protocol.dialects.mcp.vocabulary import BATCH
from protocol.errors import Reason
from protocol.json_line import (
    LONE_SURROGATES,
    MENDED_BYTES,
    Fault,
    is_utf8,
    is_utf16,
    without_lone_surrogates,
)
from protocol.jsonrpc import INTERNAL_ERROR, RpcAnswer, RpcId, RpcMessage, meant_id, message_of
from protocol.problem import literal

SURROGATES = "half characters as \\ufffd"
BEFORE = "what stands before it left out"
SEVERAL = "each of its objects by itself"

FRAMED = (
    "frames its messages with Content-Length headers, as LSP does; MCP over stdio has one message "
    "a line"
)
_HEADER = re.compile(rb"\s*Content-Length\s*:\s*\d+\s*", re.IGNORECASE)

_ID = rb"""["']?id["']?\s*:\s*["']?([\w.-]{1,64})["']?\s*"""
_VERSION = rb"""["']?jsonrpc["']?\s*:\s*["']?[\d.]+["']?\s*"""
_OUTCOME = rb"""["']?(?:result|error)["']?\s*:"""
_BEGINS = rb"[^{}]*\{\s*"
_HEAD = re.compile(
    rb"%b(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b" % (_BEGINS, _VERSION, _ID, _VERSION, _OUTCOME)
)
_OTHER_HEAD = re.compile(rb"%b(?:%b,\s*)?%b" % (_BEGINS, _VERSION, _OUTCOME))
_TAIL = re.compile(
    rb"""[}\]"']\s*,\s*(?:%b,\s*)?%b(?:,\s*%b)?,?\s*\}\s*\Z""" % (_VERSION, _ID, _VERSION)
)
_TAIL_BYTES = 200
_SEAM = re.compile(rb"(?<=\})\s*(?=\{)")
_MESSAGE = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error|method)"\s*:')

_CP1252 = {0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in range(128, 256)}
"""The Windows-1252 character of each byte that is not UTF-8, by its surrogate escape."""


def is_header(line: bytes) -> bool:
    """Tell whether a line is a header of LSP's framing."""
    return _HEADER.fullmatch(line) is not None


def shown_id(line: bytes) -> RpcId | None:
    """Return the id that an unreadable line shows at its beginning or end, as an answer has it.

    Deeper in it there may be ids of other things; the id of a request of the server is not ours.
    """
    found = _HEAD.match(line)
    if found is None and _OTHER_HEAD.match(line):
        found = _TAIL.search(line[-_TAIL_BYTES:])
    return None if found is None else meant_id(found[1].decode())


def reread(line: bytes, fault: Fault) -> tuple[Any, list[str]] | None:
    """Return the document of a line that is no message, and the repairs it took, if any."""
    try:
        if fault.reason in (Reason.INVALID_EVENT, Reason.NOT_OBJECT):
            return msgspec.json.decode(line), []
        found = mended(line)
        if found is not None or len(line) > MENDED_BYTES:
            return found
        if line.startswith(b"{"):
            parts = _SEAM.split(line)
            each = [msgspec.json.decode(one) for one in parts] if 1 < len(parts) <= BATCH else []
            return (each, [SEVERAL]) if each else None
        begins = _MESSAGE.search(line)
        return (msgspec.json.decode(line[begins.start() :]), [BEFORE]) if begins else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def mended(line: bytes) -> tuple[Any, list[str]] | None:
    """Return the value of a line that is no JSON, and its repairs; None if it is not clear.

    `json` reads what msgspec does not: NaN, Infinity, and control characters that stand in a string
    as they are.
    """
    if len(line) > MENDED_BYTES or is_utf16(line):
        return None
    repairs: list[str] = []
    whole = without_lone_surrogates(line)
    if whole is not None:
        repairs.append(SURROGATES)
    text = (whole or line).decode(errors="surrogateescape")
    if not is_utf8(line):
        repairs.append("bytes that are no UTF-8 as Windows-1252")
        text = text.translate(_CP1252)
    constants: list[str] = []
    read = partial(json.loads, text, parse_constant=constants.append, parse_float=_finite)
    try:
        try:
            value = read()
        except json.JSONDecodeError as error:
            if "control character" not in error.msg:
                raise
            value = read(strict=False)
            repairs.append("control characters as they stand there")
    except (ValueError, RecursionError):
        return None
    if constants:
        repairs.append("NaN and Infinity as null")
    return value, repairs


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number that no double holds")
    return number


def notice_of(fault: Fault, repairs: list[str]) -> Notice:
    if repairs == [SURROGATES]:
        return Notice(*LONE_SURROGATES)
    words = f"{fault.message}; it was read all the same, with {' and '.join(repairs)}"
    return Notice(str(fault.reason), words)


def meant(document: dict[str, Any], line: bytes) -> tuple[RpcMessage, list[str]]:
    """Return the message that an object is, or clearly means, and its oddities."""
    odd: list[str] = []
    message = {**document, "jsonrpc": "2.0"}
    if document.get("jsonrpc") != "2.0":
        odd.append('it does not say "jsonrpc":"2.0"')
    result, error, method = (document.get(one) for one in ("result", "error", "method"))
    if "method" in document and (result is not None or error is not None):
        del message["method"]
        odd.append("it is an answer with a method")
    if "method" in message:
        if document.get("id", "") is None and str(method).startswith("notifications/"):
            del message["id"]
            odd.append("it is a notification with an id")
        return message_of(message, line), odd
    if error is not None and not error and result is not None:
        del message["error"]
        odd.append("it has a result and an error")
    elif error is not None:
        message["error"] = _error(error)
        odd += [] if message["error"] == error else ["its error has no number as its code"]
    named = document.get("id")
    message["id"] = rpc_id = meant_id(named)
    odd += ["its id has a fraction"] if rpc_id is not None and isinstance(named, float) else []
    if rpc_id is None and isinstance(result, dict) and "error" not in message:
        shown = f"id {literal(named)}" if "id" in document else "without an id"
        return RpcAnswer(None, result, shown), odd
    return message_of(message, line), odd


def _error(error: Any) -> dict[str, Any]:
    given = error if isinstance(error, dict) else {"message": error}
    code, words = given.get("code"), given.get("message")
    if type(code) is int and isinstance(given.get("message", ""), str):
        return given
    if not isinstance(words, str):
        words = "" if not error or (type(code) is int and words is None) else literal(error)
    if type(code) is not int:
        try:
            code = int(code or "")
        except (TypeError, ValueError, OverflowError):
            words = f"{code}: {words}" if isinstance(code, str) else words
            code = INTERNAL_ERROR
    return {"code": code, "message": words, "data": given.get("data", error)}
