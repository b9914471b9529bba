"""The events that wait for an observer: bounded in number and bytes, losses counted."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from protocol.descriptor import Drop

QUEUE_BYTES = 16 << 20
"""What may wait for an observer, whatever its `queue` says: an entry may be a large patch."""


class Waiting(NamedTuple):
    """An event for an observer: its name, the document as JSON, and the hooks behind it."""

    event: str
    body: bytes
    behind: frozenset[str]


class EventQueue:
    """What waits for one observer."""

    def __init__(self, limit: int, drop: Drop, limit_bytes: int = QUEUE_BYTES) -> None:
        self.dropped = 0
        self.held_bytes = 0
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._drop = drop
        self._waiting: deque[Waiting] = deque()

    def bound(self, limit: int, drop: Drop) -> None:
        """Keep within another limit from now on."""
        self._limit, self._drop = limit, drop
        self._shrink()

    def put(self, one: Waiting) -> None:
        """Add an event; where there is no room, lose the oldest ones, or this one."""
        size = len(one.body)
        full = len(self._waiting) >= self._limit or self.held_bytes + size > self._limit_bytes
        if full and (self._drop is Drop.NEWEST or size > self._limit_bytes):
            self.dropped += 1
            return
        self._waiting.append(one)
        self.held_bytes += size
        self._shrink()

    def take(self) -> Waiting:
        """Remove and return the oldest; raises `IndexError` if nothing waits."""
        one = self._waiting.popleft()
        self.held_bytes -= len(one.body)
        return one

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def _shrink(self) -> None:
        while len(self._waiting) > self._limit or self.held_bytes > self._limit_bytes:
            self.take()
            self.dropped += 1
