"""What all clients together have written of lines that they have not ended: bounded in bytes.

Each may write a line of many megabytes; a few that never end theirs would have the daemon hold
them all. When there is too much, the longest unfinished line is dropped, and its client told so:
one request is lost, and no connection.
"""

from __future__ import annotations

from typing import Protocol

UNFINISHED_BYTES = 64 << 20


class Holder(Protocol):
    """Somebody who holds an unfinished line."""

    def drop_unfinished(self) -> None:
        """Drop it, and tell who wrote it."""


class UnfinishedLines:
    """The sizes of the unfinished lines of all clients of a face."""

    def __init__(self, most_bytes: int = UNFINISHED_BYTES) -> None:
        self.held_bytes = 0
        self._most = most_bytes
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """Take note that a holder's line has this many bytes by now; 0 if it holds none."""
        self.held_bytes += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.held_bytes > self._most:
            largest = max(self._held, key=self._held.__getitem__)
            self.held_bytes -= self._held.pop(largest)
            largest.drop_unfinished()
