r"""Put a client's request id into a module's line, in place of the daemon's, and leave the rest.

The line is an event that was decoded, and names the daemon's id of its request, or none. Text is
replaced only if that cannot be a second key or another value: the key and the id each stand in the
line once, and no escape may spell them. Any other line is split at its top level and put together
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

_KEY = b"requestId"
_ESCAPE = b"\\u00"
"""Begins each escape that stands for a letter, a digit or a `-`."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


def readdress(line: bytes, own: str | UnsetType, request_id: str | None) -> bytes | None:
    r"""Return an event's line with the client's id, ending in `\n`.

    `own` is the daemon's id of the request, or unset if the line names none. Without a `request_id`
    the line gets no id. Returns None if the line has to be encoded anew, from the event.
    """
    return replace_ids([line], own, request_id) or with_id(line, request_id)


def replace_ids(
    lines: Sequence[bytes], own: str | UnsetType, request_id: str | None
) -> bytes | None:
    """Return lines that all name `own`, or none, with the client's id.

    Returns None if one of them has to be put together again.
    """
    # Outside of strings, which cannot hold one: white space, or the end of a line to some readers.
    text = b"\n".join([line.strip() for line in lines]).replace(b"\r", b" ")
    if own is UNSET:
        begin = b"{" if request_id is None else b'{"requestId":%b,' % _encode(request_id)
        return begin + text[1:].replace(b"\n{", b"\n" + begin) + b"\n"
    quoted = b'"%b"' % own.encode()
    # A single byte is found in a tenth of the time of a text, and the last one to replace is known:
    # a line of 8 MiB takes 10 ms, as long as putting it together again.
    if (
        request_id is None
        or text.count(quoted) != len(lines)
        or text.count(_KEY) != len(lines)
        or ((escape := text.find(b"\\")) >= 0 and text.find(_ESCAPE, escape) >= 0)
    ):
        return None
    return text.replace(quoted, _encode(request_id), len(lines)) + b"\n"


def with_id(line: bytes, request_id: str | None) -> bytes | None:
    r"""Put a line together again with an id, ending in `\n`; None if it is nested too deeply."""
    try:
        members = _MEMBERS(line.replace(b"\r", b" "))
    except RecursionError:  # there was more room on the stack where it was read
        return None
    members.pop("requestId", None)
    named = {} if request_id is None else {"requestId": request_id}
    return _encode({**named, **members}) + b"\n"
