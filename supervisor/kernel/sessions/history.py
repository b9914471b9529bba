"""The invocations of a session: how many, and the newest of them.

The document of a session has them, and may be large. So each that ends in between is kept as a
small document of its own, in one of as many slots as the history has places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from supervisor.policy.session import Status

KIND = "past"
"""The kind of the documents."""


class Past(msgspec.Struct, frozen=True):
    """An invocation that has ended; `ts` is when, in Unix time (s)."""

    request_id: str
    module: str
    op: str
    ok: bool
    code: str | None
    duration_ms: int
    ts: float


class KeptPast(msgspec.Struct, frozen=True):
    """An invocation that no document of its session has yet; `number` counts from 1."""

    session_id: str
    number: int
    last: Status
    past: Past


class SessionHistory:
    __slots__ = ("_newest", "_places", "_session_id", "_slots", "count", "last")

    def __init__(
        self, session_id: str, newest: Iterable[Past], count: int, last: Status, *, places: int
    ) -> None:
        """Go on from `count` invocations, of which the `newest` are known."""
        self.count = count
        self.last = last
        """The status that the last one left the session in."""
        self._session_id = session_id
        self._places = places
        self._newest = deque(newest, maxlen=places)
        self._slots: set[int] = set()

    @property
    def newest(self) -> list[Past]:
        """The known ones, the oldest first."""
        return list(self._newest)

    def add(self, past: Past, last: Status) -> tuple[str, bytes]:
        """Add one; returns the name and the content of the document to keep of it."""
        self.count += 1
        self.last = last
        self._newest.append(past)
        slot = self.count % self._places
        self._slots.add(slot)
        document = KeptPast(self._session_id, self.count, last, past)
        return self._name(slot), msgspec.json.encode(document)

    def restore(self, kept: KeptPast) -> None:
        """Take over a kept one, in their order; one that is known already changes nothing."""
        self._slots.add(kept.number % self._places)
        if kept.number > self.count:
            self.count = kept.number
            self.last = kept.last
            self._newest.append(kept.past)

    def take_names(self) -> list[str]:
        """Return the names of documents that are not needed any more, and forget them."""
        names = [self._name(slot) for slot in sorted(self._slots)]
        self._slots.clear()
        return names

    def _name(self, slot: int) -> str:
        return f"{self._session_id}/{slot}"
