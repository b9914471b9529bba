r"""Cut a byte stream into lines: linear in its length however it is cut, and bounded in memory.

The other way, `Outgoing` has the lines that are to be written.

Rules that live here (docs/protocol.md), and nowhere else:

- a line ends with `\n` and nothing else; one `\r` before it belongs to the ending;
- byte order marks at the beginning of a line are skipped;
- lines of white space only are skipped;
- a line of more than `limit_bytes` is reported once, when it passes the limit, and dropped up to
  its `\n` without being held; the line after it is delivered as usual;
- a long line of more than `most_values` values is dropped in the same way, as soon as it has them
  (`weight`).
"""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from itertools import accumulate, count, islice, takewhile
from typing import final

import msgspec

from protocol.weight import LONG_BYTES, MOST_VALUES, ValueCount

BOM = b"\xef\xbb\xbf"
_MARKS = re.compile(b"(?:%b)+" % BOM)
EXCERPT_BYTES = 200
"""How much of a bad line is shown: enough to recognise it, too little to hurt a log."""

UNCOUNTED = sys.maxsize
"""For lines that are kept undecoded: their number of values does not matter."""


@final
class Overlong(msgspec.Struct, frozen=True):
    """A line over the limit of bytes or values; its beginning, for the report."""

    limit: int
    excerpt: bytes
    values: str = ""
    """The words for what `limit` counts (`ValueCount.name`); empty if it counts bytes."""


Line = bytes | Overlong


class LineSplitter:
    """Turn chunks of bytes into whole lines; hold at most one unfinished line."""

    def __init__(self, limit_bytes: int, most_values: int = MOST_VALUES) -> None:
        r"""Accept lines of up to `limit_bytes` bytes, their `\n` not counted.

        `most_values` is how many values a long line may hold.
        """
        self._limit = limit_bytes
        self._most_values = most_values
        self._count: ValueCount | None = None  # of the unfinished line, once it is long
        # What is longer than this is looked at by itself.
        self._plain = min(limit_bytes, LONG_BYTES)
        # Never more than any cut of the stream lets us see: the excerpt does not depend on the cut.
        self._shown = min(EXCERPT_BYTES, limit_bytes)
        self._partial = bytearray()
        self._discarding = False

    @property
    def pending(self) -> bytes:
        return bytes(self._partial[: EXCERPT_BYTES + 1])

    @property
    def pending_bytes(self) -> int:
        return len(self._partial)

    def take_pending(self) -> bytes:
        """Return the unfinished line, of which this has nothing any more."""
        pending, self._partial = bytes(self._partial), bytearray()
        return pending

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that `data` completes."""
        lines: list[Line] = []
        # Only the new chunk is searched for a newline: what is held is known to have none, so the
        # whole costs linear time however the stream is cut.
        if self._partial or self._discarding:
            head, newline, data = data.partition(b"\n")
            self._extend(head, lines)
            if not newline:
                return lines
            self._complete(lines)
        whole = data.split(b"\n")
        tail = whole.pop()
        if b"\r" in data or BOM[:1] in data or len(data) > self._plain:
            for line in whole:
                if len(line) > self._plain:
                    self._extend(line, lines)
                    self._complete(lines)
                else:
                    self._deliver(line, lines)
        elif whole and min(whole) > b"!":
            lines += whole  # white space is below `!`, what begins a JSON text is not
        else:
            lines += [line for line in whole if line and not line.isspace()]
        if tail:
            self._extend(tail, lines)
        return lines

    def finish(self) -> Line | None:
        """Return the line without a newline at the end of the stream, if any."""
        lines: list[Line] = []
        self._complete(lines)
        return lines[0] if lines else None

    def drop_pending(self) -> bytes:
        r"""Drop the unfinished line up to its `\n`; return its beginning."""
        shown = self._shown_of(self._partial)
        self._discard()
        return shown

    def _extend(self, piece: bytes, lines: list[Line]) -> None:
        if self._discarding:
            return
        before = len(self._partial)
        self._partial += piece
        if before < len(BOM):
            if (marks := _MARKS.match(self._partial)) is not None:
                del self._partial[: marks.end()]
            if BOM.startswith(self._partial):
                return  # perhaps the beginning of one, which does not count
        if len(self._partial) > LONG_BYTES and (values := self._too_many(before)):
            lines.append(Overlong(self._most_values, self._shown_of(self._partial), values))
            self._discard()
            return
        excess = len(self._partial) - self._limit
        # One byte more is let in while it may be the `\r` of a `\r\n`.
        if excess > 1 or (excess == 1 and not self._partial.endswith(b"\r")):
            lines.append(Overlong(self._limit, self._shown_of(self._partial)))
            self._discard()

    def _too_many(self, before: int) -> str:
        """Return what a line that has become long has too many of, or nothing.

        Its new bytes are counted, as far as it is within the limit: by pieces, so that no cut of
        the stream makes a long line be counted at once.
        """
        if self._most_values == UNCOUNTED:
            return ""
        if self._count is None:
            self._count, before = ValueCount(), 0
        with memoryview(self._partial) as held:
            values = self._count.feed(held[before : self._limit])
        return self._count.name if values > self._most_values else ""

    def _discard(self) -> None:
        # A new object and not `clear()`: a line of many megabytes gives its memory back.
        self._partial = bytearray()
        self._count = None
        self._discarding = True

    def _complete(self, lines: list[Line]) -> None:
        line = bytes(self._partial)
        self._partial = bytearray()  # as in `_discard`
        self._count = None
        if not self._discarding:
            self._deliver(line, lines)
        self._discarding = False

    def _shown_of(self, line: bytes | bytearray) -> bytes:
        return bytes(line[: self._shown])

    def _deliver(self, raw: bytes, lines: list[Line]) -> None:
        line = raw.removesuffix(b"\r")
        if (marks := _MARKS.match(line)) is not None:
            line = line[marks.end() :]
        if len(line) > self._limit:
            lines.append(Overlong(self._limit, line[: self._shown]))
        elif line and not line.isspace():
            lines.append(line)


class Written(Enum):
    NOTHING = auto()
    PART = auto()
    ALL = auto()


AT_ONCE_BYTES = 1 << 18
"""More than any pipe takes at once. Lines of many megabytes are not joined before they are written:
it would take the event loop some 1.5 ms for each."""


class Outgoing:
    """Lines to be written to a process, in order, with their requests and how far each got.

    The writer takes many lines at once and writes as much as the pipe accepts. The line to which
    the remaining bytes belong is looked for only when a request is taken back (`take_back`,
    `withdraw`).
    """

    def __init__(self) -> None:
        # By the request's id, or a number for a line of no request: one lookup finds a line among
        # thousands.
        self._waiting: dict[str | int, bytes] = {}
        self._taken: dict[str | int, bytes] = {}
        self._begun: str | int | None = None
        """The owner of the line that was written in part; the rest of it is kept."""
        self._numbers = count()
        self.unasked_bytes = 0
        """Waiting bytes of lines that belong to no request."""

    def add(self, line: bytes, request_id: str = "") -> None:
        """Queue a line; a line with a request's id can be withdrawn."""
        if not request_id:
            self.unasked_bytes += len(line)
        self._waiting[request_id or next(self._numbers)] = line

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def waiting_bytes(self) -> int:
        return sum(map(len, self._waiting.values()))

    def take(self) -> bytes:
        """Return bytes to be written; those taken before count as written now.

        The first line, and as many more as fit in `AT_ONCE_BYTES` with it.
        """
        if not self._waiting:
            if self._taken:
                self._taken = {}
            return b""
        self._taken, self._waiting = self._waiting, {}
        if len(self._taken) > 1 and sum(map(len, self._taken.values())) > AT_ONCE_BYTES:
            self._leave_some()
        else:
            self.unasked_bytes = 0
        return b"".join(self._taken.values())

    def _leave_some(self) -> None:
        lines = self._taken.items()
        sizes = accumulate(map(len, self._taken.values()))
        fitting = len(list(takewhile(AT_ONCE_BYTES.__ge__, sizes))) or 1
        self._waiting = dict(islice(lines, fitting, None))
        self._taken = dict(islice(lines, fitting))
        taken = self._taken.items()
        self.unasked_bytes -= sum(len(line) for key, line in taken if isinstance(key, int))

    def take_back(self, size: int) -> None:
        """Put back the last `size` bytes that were taken: they were not written."""
        back: list[tuple[str | int, bytes]] = []
        while size:
            key, line = self._taken.popitem()
            if size < len(line):
                line, self._begun = line[-size:], key
            back.append((key, line))
            if isinstance(key, int):
                self.unasked_bytes += len(line)
            size -= len(line)
        self._waiting = dict(reversed(back)) | self._waiting
        self._taken = {}

    def holds(self, request_id: str) -> bool:
        """Whether a request's line is not written whole, as far as is known."""
        return request_id in self._waiting or request_id in self._taken

    def withdraw(self, request_id: str) -> Written:
        """Return how much of a request was written; forget its line if nothing was."""
        if request_id not in self._waiting:
            return Written.ALL
        if request_id == self._begun:
            return Written.PART
        del self._waiting[request_id]
        return Written.NOTHING
