"""Lines on their way to a process: which request each is of, and how far it has got.

Whoever writes takes all lines at once and writes as much as the pipe takes. Only when a request is
to be taken back does it matter which line the bytes that are left belong to; so only then is it
looked for (`take_back`, `withdraw`).
"""

from __future__ import annotations

from enum import Enum, auto
from itertools import count


class Written(Enum):
    """How much of a request was written."""

    NOTHING = auto()
    PART = auto()
    ALL = auto()


class Outgoing:
    """Lines to be written, in order."""

    def __init__(self) -> None:
        # By the request's id, or a number for a line of no request: one lookup finds a line among
        # thousands.
        self._waiting: dict[str | int, bytes] = {}
        self._taken: dict[str | int, bytes] = {}
        self._begun: str | int | None = None
        """Whose line waits that was written in part: what is kept is the rest of it."""
        self._numbers = count()
        self.unasked_bytes = 0
        """How much waits of lines that are of no request."""

    def add(self, line: bytes, request_id: str = "") -> None:
        """Queue a line; one with an id, of which a request has one, can be withdrawn."""
        if not request_id:
            self.unasked_bytes += len(line)
        self._waiting[request_id or next(self._numbers)] = line

    def take(self) -> bytes:
        """Return all that waits, to be written; what was taken before has been by now."""
        if not self._waiting:
            if self._taken:
                self._taken = {}
            return b""
        self._taken, self._waiting = self._waiting, {}
        self.unasked_bytes = 0
        return b"".join(self._taken.values())

    def take_back(self, size: int) -> None:
        """Have back the last `size` bytes of what was taken: they were not written."""
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

    def withdraw(self, request_id: str) -> Written:
        """Return how much of a request was written, and forget its line if that is nothing."""
        if request_id not in self._waiting:
            return Written.ALL
        if request_id == self._begun:
            return Written.PART
        del self._waiting[request_id]
        return Written.NOTHING
