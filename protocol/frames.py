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


def decode_request(line: bytes) -> RequestFrame | Fault:
    """Read a request that a client or another host wrote."""
    if not is_utf8(line):
        return Fault(Reason.INVALID_UTF8, "the line is not UTF-8", excerpt(line))
    try:
        return _DECODER.decode(line)
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
