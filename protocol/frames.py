"""The request frame of Spec 001 section 6, read and written; one object per line."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Reason
from protocol.json_line import Fault, excerpt, is_utf8, read_object

encode = msgspec.json.encode
"""Encode any value a line was decoded to: exact for integers of any size."""


class RequestFrame(msgspec.Struct, frozen=True):
    """`{"requestId","tool","operation","input"}`; a cancel names only the id and the operation."""

    request_id: str | None = msgspec.field(default=None, name="requestId")
    tool: str | None = None
    operation: str | None = None
    input: dict[str, Any] = msgspec.field(default_factory=dict)


_DECODER = msgspec.json.Decoder(RequestFrame)


def encode_line(value: Any) -> bytes:
    """Encode a value as one line."""
    return encode(value) + b"\n"


DEPTH = 128
"""How deep a request may nest. Encoding it again for the module must not fail half-way down."""


def decode_request(line: bytes) -> RequestFrame | Fault:
    """Read a request that a client or another host wrote."""
    if not is_utf8(line):
        return Fault(Reason.INVALID_UTF8, "the line is not UTF-8", excerpt(line))
    try:
        frame = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        document = read_object(line)
        if isinstance(document, Fault):
            return document
        return Fault(Reason.MALFORMED_REQUEST, f"bad request: {error}", excerpt(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fault = read_object(line)
        if isinstance(fault, Fault):
            return fault
        return Fault(Reason.MALFORMED_REQUEST, "bad request", excerpt(line))
    # Only a line with that many brackets can be that deep: a count settles nearly all.
    if line.count(b"{") + line.count(b"[") > DEPTH and _is_deeper(frame.input, DEPTH):
        words = f"the request is nested more than {DEPTH} levels deep"
        return Fault(Reason.MALFORMED_REQUEST, words, excerpt(line))
    return frame


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True
