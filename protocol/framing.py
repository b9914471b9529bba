r"""Cut a byte stream into lines: linear in its length however it is cut, and bounded in memory.

Rules that live here (DESIGN 5), and nowhere else:

- a line ends with `\n` and nothing else; one `\r` before it belongs to the ending;
- a byte order mark before the first line is skipped;
- lines of white space only are skipped;
- a line of more than `limit_bytes` is reported once, when it passes the limit, and dropped up to
  its `\n` without being held; the line after it is delivered as usual.
"""

from __future__ import annotations

import msgspec

BOM = b"\xef\xbb\xbf"
EXCERPT_BYTES = 200
"""How much of a bad line is shown: enough to recognise it, too little to hurt a log."""


class Overlong(msgspec.Struct, frozen=True):
    """A line that passed the limit; its beginning, for the report."""

    limit_bytes: int
    excerpt: bytes


Line = bytes | Overlong


class LineSplitter:
    """Turn chunks of bytes into whole lines; hold at most one unfinished line."""

    def __init__(self, limit_bytes: int) -> None:
        r"""Accept lines of up to `limit_bytes` bytes, their `\n` not counted."""
        self._limit = limit_bytes
        # Never more than any cut of the stream lets us see: the excerpt does not depend on the cut.
        self._shown = min(EXCERPT_BYTES, limit_bytes)
        self._partial = bytearray()
        self._discarding = False
        self._at_start = True

    @property
    def pending(self) -> bytes:
        """The beginning of the unfinished line that is held."""
        return bytes(self._partial[: EXCERPT_BYTES + 1])

    @property
    def pending_bytes(self) -> int:
        """The size of the unfinished line that is held."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that `data` completes."""
        if self._at_start:
            data = self._skip_bom(data)
            if not data:
                return []
        # Only the new chunk is searched for a newline: what is held is known to have none, so the
        # whole costs linear time however the stream is cut.
        head, newline, rest = data.partition(b"\n")
        lines: list[Line] = []
        self._extend(head, lines)
        if not newline:
            return lines
        self._complete(lines)
        *whole, tail = rest.split(b"\n")
        if b"\r" in rest or len(rest) > self._limit:
            for line in whole:
                self._deliver(line, lines)
        else:
            lines += [line for line in whole if line and not line.isspace()]
        self._extend(tail, lines)
        return lines

    def finish(self) -> bytes | None:
        """Return what stands after the last newline, if anything; the stream has ended."""
        lines: list[Line] = []
        self._complete(lines)
        remainder = lines[0] if lines else None
        # What is held never passed the limit, so it cannot be `Overlong`.
        return remainder if isinstance(remainder, bytes) else None

    def _skip_bom(self, data: bytes) -> bytes:
        seen = bytes(self._partial) + data
        if len(seen) < len(BOM) and BOM.startswith(seen):
            self._partial = bytearray(seen)
            return b""
        self._partial = bytearray()
        self._at_start = False
        return seen.removeprefix(BOM)

    def _extend(self, piece: bytes, lines: list[Line]) -> None:
        if self._discarding:
            return
        self._partial += piece
        excess = len(self._partial) - self._limit
        # One byte more is let in while it may be the `\r` of a `\r\n`.
        if excess > 1 or (excess == 1 and not self._partial.endswith(b"\r")):
            lines.append(Overlong(self._limit, bytes(self._partial[: self._shown])))
            self._partial = bytearray()
            self._discarding = True

    def _complete(self, lines: list[Line]) -> None:
        line = bytes(self._partial)
        # A new object and not `clear()`: a line of many megabytes gives its memory back.
        self._partial = bytearray()
        if not self._discarding:
            self._deliver(line, lines)
        self._discarding = False

    def _deliver(self, raw: bytes, lines: list[Line]) -> None:
        line = raw.removesuffix(b"\r")
        if len(line) > self._limit:
            lines.append(Overlong(self._limit, line[: self._shown]))
        elif line and not line.isspace():
            lines.append(line)
