"""The request frame of Spec 001 section 6, read and written; one object per line."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Reason
from protocol.json_line import Fault, excerpt, is_utf8, read_object, shown_id
from protocol.problem import kind, printable
from protocol.weight import LONG_BYTES, collector_paused, is_deeper

encode = msgspec.json.encode
"""Encode any decoded value: exact for integers of any size."""


class RequestFrame(msgspec.Struct, frozen=True, gc=False):
    """`{"requestId","tool","operation","input"}`; a cancel names only the id and the operation."""

    request_id: str | None = msgspec.field(default=None, name="requestId")
    tool: str | None = None
    operation: str | None = None
    input: dict[str, Any] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        op = self.input.get("op")
        asked = (self.tool, self.operation, op if isinstance(op, str) else None)
        return " ".join(printable(one, _WORD_CHARS) for one in asked if one is not None)


_WORD_CHARS = 60


class ClientFrame(RequestFrame, frozen=True, gc=False):
    """A request as clients write it to the daemon: as whom it is asked, and what it can answer."""

    login: str | None = msgspec.field(default=None, name="as")
    """The handle of a login (`login.open`)."""
    asks: list[str] | None = None
    """The methods by which the client may be asked back (`host_call.ASKS`)."""
    mcp: bool = False
    """Whether the answer is for an MCP client: a server's whole, and what only a client can do."""


class _Named(msgspec.Struct, frozen=True):
    request_id: str | None = msgspec.field(default=None, name="requestId")


class _LoginNamed(msgspec.Struct, frozen=True):
    login: str | None = msgspec.field(default=None, name="as")


_DECODER = msgspec.json.Decoder(ClientFrame)
_NAMED = msgspec.json.Decoder(_Named)
_LOGIN_NAMED = msgspec.json.Decoder(_LoginNamed)


def encode_line(value: Any) -> bytes:
    return one_line(encode(value)) + b"\n"


def invoke_frame(tool: str) -> bytes:
    """Return the line of an invoke as a format of its id and its input, both encoded.

    Only these are encoded for each request.
    """
    shown = encode_line(RequestFrame("", tool, "invoke")).replace(b"%", b"%%")
    return shown.replace(b'""', b"%b", 1).replace(b'"input":{}', b'"input":%b')


def one_line(encoded: bytes) -> bytes:
    """Return JSON with escapes for characters that many readers take for the end of a line.

    Node's readline and Python's splitlines do, and JSON allows them in strings.
    """
    if encoded.isascii():
        return encoded
    for character, escape in _BREAKS:
        if character[:1] in encoded and character in encoded:  # one byte is found by memchr(3)
            encoded = encoded.replace(character, escape)
    return encoded


_BREAKS = tuple((one.encode(), f"\\u{ord(one):04x}".encode()) for one in "\u2028\u2029\x85")


DEPTH = 128
"""How deep a request may nest: encoding it again for the module must not fail half-way down."""


def decode_request(line: bytes) -> ClientFrame | Fault:
    if not (line.isascii() or is_utf8(line)):
        return Fault(Reason.INVALID_UTF8, "the line is not UTF-8", excerpt(line))
    try:
        if len(line) > LONG_BYTES:
            with collector_paused():
                frame = _DECODER.decode(line)
        else:
            frame = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = read_object(line)
        if isinstance(document, Fault):
            return document
        return Fault(Reason.MALFORMED_REQUEST, _problem(document), excerpt(line))
    if len(line) > 2 * DEPTH and is_deeper(frame.input, DEPTH, line):
        words = f"the request is nested more than {DEPTH} levels deep"
        return Fault(Reason.MALFORMED_REQUEST, words, excerpt(line))
    return frame


def named_in(line: bytes) -> str | None:
    """Return the `requestId` of a line that is no valid request, if it has one."""
    try:
        return _NAMED.decode(line).request_id
    except msgspec.ValidationError:
        return None  # it can be read, and is no string
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return shown_id(line)


def asked_as(line: bytes) -> str | None:
    """Return the login that a line names as the one it is asked as, if it can be read."""
    if b'"as"' not in line:
        return None
    try:
        return _LOGIN_NAMED.decode(line).login
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _problem(document: dict[str, Any]) -> str:
    for field in ("requestId", "tool", "operation", "as"):
        value = document.get(field)
        if value is not None and not isinstance(value, str):
            return f'"{field}" of a request is {kind(value)}, it must be a string'
    asks = document.get("asks")
    if asks is not None and not (
        isinstance(asks, list) and all(isinstance(one, str) for one in asks)
    ):
        return f'"asks" of a request is {kind(asks)}, it must be an array of strings'
    mcp = document.get("mcp", False)
    if not isinstance(mcp, bool):
        return f'"mcp" of a request is {kind(mcp)}, it must be true or false'
    content = document.get("input", {})
    if not isinstance(content, dict):
        return f'"input" of a request is {kind(content)}, it must be an object'
    return "a field of the request stands there twice, once with a value of the wrong type"
