r"""Put a client's request id into a module's line, and leave the rest of the line as it is.

The line has been validated: it is one JSON object in UTF-8, an event whose top-level names are
those of Spec 001, or were looked through (`host_events`). Its spelling is not known, so
a place for the id counts only where the bytes prove it:

- the text `requestId` stands in the line once, and no escape spells a letter of it, so there is no
  other key of that name, at any depth;
- a `\` before its quote would make it a part of a string, so there is none; followed by a colon it
  is a key then, and its value a string without escapes;
- only one `{` stands before it, or only one `}` after it: it belongs to the outermost object.

Where that cannot be proved, the object is taken apart at its top level and put together again.
"""

from __future__ import annotations

import msgspec

_KEY = b'"requestId":'
_TEXT = b"requestId"
_BRACE = 0x7D
_LONG_BYTES = 1024
"""From this length on it pays to scan and copy as little as possible."""

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class Readdresser:
    """Readdresses lines for one client's request.

    The bytes before the id are mostly the same in all lines, so they are examined once, and kept if
    they are short.
    """

    def __init__(self, request_id: str | None) -> None:
        """`request_id` is put in; None takes the id out."""
        self._request_id = request_id
        self._id = b"" if request_id is None else _encode(request_id)
        self._proved = b"\n"
        """The proved beginning of a line, up to the end of its id; no line begins like this one."""
        self._instead = b""

    def readdress(self, line: bytes) -> bytes | None:
        r"""Return an event's line with the client's id in place of its own, ending in `\n`.

        Nothing is parsed if the id is spelled in one of the usual ways. Returns None if the line
        has to be encoded anew, from the event.
        """
        proved = self._proved
        if line.startswith(proved):
            size, end = len(proved), len(line)
            if end > _LONG_BYTES:
                end = _end_of_keys(line, size)
            if (
                line[-1] == _BRACE
                and line.find(b"\r", size) < 0
                and line.find(_TEXT, size, end) < 0
                and (
                    (escape := line.find(b"\\", size, end)) < 0
                    or not _spells_key(line, escape, end)
                )
            ):
                if len(line) > _LONG_BYTES:
                    return b"".join((self._instead, memoryview(line)[size:], b"\n"))
                return self._instead + line[size:] + b"\n"
        if line.find(b"\r") >= 0:
            # Outside of strings, which cannot hold one: white space, or the end of a line to some.
            line = line.replace(b"\r", b" ")
        return self._spliced(line.strip(b" \t")) or self._rebuilt(line)

    def proves(self, line: bytes) -> bool:
        """Whether a line's id stands where that of the last one stood, if it is the only one."""
        return line.startswith(self._proved) and line[-1] == _BRACE and len(line) <= _LONG_BYTES

    def readdress_all(self, lines: list[bytes]) -> bytes | None:
        """Return `readdress` of lines that each `proves`, in one pass over all.

        Returns None if one of them needs a pass of its own.
        """
        size = len(self._proved)
        rests = [line[size:] for line in lines]
        text = b"\n".join(rests)
        if (
            text.find(b"\r") >= 0
            or text.find(_TEXT) >= 0
            or ((escape := text.find(b"\\")) >= 0 and _spells_key(text, escape, len(text)))
        ):
            return None
        return b"%b%b\n" % (self._instead, (b"\n" + self._instead).join(rests))

    def _spliced(self, line: bytes) -> bytes | None:
        """Return None where the place of the id is not proved."""
        escape = line.find(b"\\")
        if escape >= 0 and _spells_key(line, escape, len(line)):
            return None
        text = line.find(_TEXT)
        if text < 0:
            self._proved = b"{"
            self._instead = b'{"requestId":%b,' % self._id if self._id else b"{"
            return self._instead + line[1:] + b"\n"
        key = text - 1
        value = key + len(_KEY)
        if line.startswith(b" ", value):
            value += 1
        end = line.find(b'"', value + 1) + 1
        if (
            not line.startswith(_KEY, key)
            or line.startswith(b"\\", key - 1)
            or not line.startswith(b'"', value)
            or line.find(b"\\", value, end) >= 0
            or line.find(_TEXT, value) >= 0
        ):
            return None
        is_first = line.count(b"{", 0, key) == 1
        if not is_first and line.count(b"}", end) != 1:
            return None
        if not self._id:
            return _without(line, key, end)
        if is_first and end <= _LONG_BYTES and (escape < 0 or escape >= end):
            self._proved, self._instead = line[:end], line[:value] + self._id
        return b"%b%b%b\n" % (line[:value], self._id, line[end:])

    def _rebuilt(self, line: bytes) -> bytes | None:
        try:
            fields = _split(line)
        except RecursionError:  # there was more room on the stack where it was read
            return None
        fields.pop("requestId", None)
        if self._request_id is None:
            return _encode(fields) + b"\n"
        return _encode({"requestId": self._request_id, **fields}) + b"\n"


def _spells_key(line: bytes, begin: int, end: int) -> bool:
    """Tell whether an escape may stand for one of the letters in `requestId`."""
    return line.find(b"\\u00", begin, end) >= 0 and (
        line.find(b"\\u007", begin, end) >= 0
        or line.find(b"\\u006", begin, end) >= 0
        or line.find(b"\\u0049", begin, end) >= 0
    )


def _end_of_keys(line: bytes, begin: int) -> int:
    """Return the end of the part in which keys of the outermost object may stand.

    Long lines mostly end with their one inner object, and searching a single byte takes much less
    time than a text.
    """
    inner, end = line.find(b"{", begin), len(line)
    if inner < 0 or line.find(b"{", inner + 1) >= 0 or line.find(b"}", inner) != end - 2:
        return end
    return inner


def _without(line: bytes, begin: int, end: int) -> bytes | None:
    """Leave out a field, with the comma after it or before it."""
    if line.startswith(b",", end):
        return line[:begin] + line[end + 1 :] + b"\n"
    if line.startswith(b",", begin - 1):
        return line[: begin - 1] + line[end:] + b"\n"
    return None
