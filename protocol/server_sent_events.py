r"""Cut a text/event-stream into the data of its events; bounded in memory.

Of the fields of an event only `data` counts here, of which there may be several: together they hold
one JSON text, in which the line breaks between them are white space. A line ends with `\n`, `\r\n`
or `\r` (HTML, "Interpreting an event stream"); an event ends with a blank one, or with the stream.
"""

from __future__ import annotations

from protocol.framing import BOM, EXCERPT_BYTES, Line, Overlong

_DATA = b"data:"


class EventDataSplitter:
    """Turn chunks of bytes into the data of events; hold at most one unfinished event."""

    def __init__(self, limit_bytes: int) -> None:
        """Accept data of up to `limit_bytes`; of an event with more only the beginning is kept."""
        self._limit = limit_bytes
        self._line = bytearray()
        self._data = bytearray()
        self._is_blank = True
        """Whether the unfinished line is empty so far, dropped bytes included."""
        self._discarding = False
        self._after_return = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Line]:
        if not data:
            return []
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        found: list[Line] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._extend(piece, found)
            self._end_line(found)
        self._extend(rest, found)
        return found

    def finish(self) -> Line | None:
        """Return the data of an event without its blank line at the end of the stream, if any."""
        found: list[Line] = []
        self._end_line(found)
        self._dispatch(found)
        return found[0] if found else None

    def _extend(self, piece: bytes, found: list[Line]) -> None:
        self._is_blank = self._is_blank and not piece
        if self._discarding:
            return
        self._line += piece
        if len(self._data) + len(self._line) > self._limit + len(_DATA) + 1:
            shown = bytes(self._data or self._line.removeprefix(_DATA))[:EXCERPT_BYTES]
            found.append(Overlong(self._limit, shown))
            self._line, self._data = bytearray(), bytearray()
            self._discarding = True

    def _end_line(self, found: list[Line]) -> None:
        line, self._line = self._line, bytearray()
        if self._at_start:
            line = line.removeprefix(BOM)
            self._at_start = False
        if self._is_blank:
            self._dispatch(found)
        elif line.startswith(_DATA):
            if self._data:
                self._data += b" "
            self._data += line[len(_DATA) :].removeprefix(b" ")
        self._is_blank = True

    def _dispatch(self, found: list[Line]) -> None:
        if self._data:
            found.append(bytes(self._data))
        self._data = bytearray()
        self._discarding = False
