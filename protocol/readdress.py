r"""Put a client's request id into a module's line, and leave the rest of the line as it is.

The line has been validated: it is one JSON object in UTF-8, an event whose top-level names are
those of Spec 001, or were looked through (`extended_event`). What is not known is how it is
spelled, so a place for the id counts only where a look at the bytes proves it:

- the text `requestId` stands in the line once, and no escape can spell a letter of it, so there is
  no other key of that name, at any depth;
- a `\` before its quote would make it a part of a string, so there is none; followed by a colon it
  is a key then, and its value a string without escapes;
- only one `{` stands before it, or only one `}` after it: it belongs to the outermost object.

Where that cannot be proved, the object is taken apart at its top level and put together again.
"""

from __future__ import annotations

import re

import msgspec

_KEY = b'"requestId":'
_TEXT = b"requestId"
_ESCAPE = b"\\u00"
# Of U+0040 to U+007F, which has all letters of the key.
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


def readdress(line: bytes, request_id: str | None) -> bytes | None:
    r"""Return an event's line with `request_id` for its own, ending in `\n`.

    None of it is read, as long as it is spelled in one of the usual ways. With None for an id the
    line has none. Returns None if the line can only be encoded anew, from the event.
    """
    if line.find(b"\r") >= 0:
        # Outside of strings, which cannot hold one: white space, and to some readers a line's end.
        line = line.replace(b"\r", b" ")
    if not (line.startswith(b"{") and line.endswith(b"}")):
        line = line.strip(b" \t")
    escape = line.find(b"\\")
    if escape >= 0 and line.find(_ESCAPE, escape) >= 0 and _ESCAPED_LETTER.search(line, escape):
        return _rebuilt(line, request_id)
    text = line.find(_TEXT)
    if text < 0:
        if request_id is None:
            return line + b"\n"
        return b'{"requestId":%b,%b\n' % (_encode(request_id), line[1:])
    key = text - 1
    value = key + len(_KEY)
    if line.startswith(b" ", value):
        value += 1
    end = line.find(b'"', value + 1)
    if (
        not line.startswith(_KEY, key)
        or line.startswith(b"\\", key - 1)
        or not line.startswith(b'"', value)
        or end < 0
        or line.find(b"\\", value, end) >= 0
        or line.find(_TEXT, value) >= 0
        or (line.count(b"{", 0, key) != 1 and line.count(b"}", end) != 1)
    ):
        return _rebuilt(line, request_id)
    if request_id is None:
        return _without(line, key, end + 1)
    return b"%b%b%b\n" % (line[:value], _encode(request_id), line[end + 1 :])


def _without(line: bytes, begin: int, end: int) -> bytes | None:
    """Leave a field out, with the comma after it or the one before it."""
    if line.startswith(b",", end):
        return line[:begin] + line[end + 1 :] + b"\n"
    if line.startswith(b",", begin - 1):
        return line[: begin - 1] + line[end:] + b"\n"
    return _rebuilt(line, None)


def _rebuilt(line: bytes, request_id: str | None) -> bytes | None:
    try:
        fields = _split(line)
    except RecursionError:  # there was more room on the stack where it was read
        return None
    fields.pop("requestId", None)
    if request_id is None:
        return _encode(fields) + b"\n"
    return _encode({"requestId": request_id, **fields}) + b"\n"
