"""Results that are too long for an event of a stream: kept for a while, for whoever got the link.

What they take together has a bound. For one more, the oldest of him goes who has most of it.
"""

from __future__ import annotations

import secrets
from collections import Counter

import msgspec

from supervisor.policy.principals import Principal
from supervisor.runtime.held_bytes import ANSWERS, Account, HeldBytes
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

SCHEME = "stdiod://results/"

KEPT_S = 600.0

KEPT_BYTES = 64 << 20
"""Of all clients; one result has at most what a line of a module may have."""


class _Result(msgspec.Struct):
    whose: Principal
    data: bytes
    timer: Timer


class SetAside:
    """The results of one daemon that wait to be read."""

    def __init__(self, deadlines: Deadlines, ledger: HeldBytes) -> None:
        self._deadlines = deadlines
        self._account = Account(ledger, "long results of MCP clients")
        self._all: dict[str, _Result] = {}
        self._bytes: Counter[Principal] = Counter()

    def keep(self, data: bytes, whose: Principal) -> str:
        """Keep a result; returns the URI by which it is read."""
        uri = f"{SCHEME}{secrets.token_urlsafe(18)}"
        timer = self._deadlines.after(KEPT_S, lambda: self._drop(uri))
        self._all[uri] = _Result(whose, data, timer)
        self._count(whose, len(data))
        while self._bytes.total() > KEPT_BYTES and len(self._all) > 1:
            most, _ = self._bytes.most_common(1)[0]
            self._drop(next(one for one, result in self._all.items() if result.whose == most))
        return uri

    def find(self, uri: str, whose: Principal) -> bytes | None:
        """Return a result of his, if there is one of that name (any more)."""
        found = self._all.get(uri)
        return found.data if found is not None and found.whose == whose else None

    def _drop(self, uri: str) -> None:
        found = self._all.pop(uri)
        found.timer.cancel()
        self._count(found.whose, -len(found.data))

    def _count(self, whose: Principal, more: int) -> None:
        self._bytes[whose] += more
        if not self._bytes[whose]:
            del self._bytes[whose]
        self._account.hold(ANSWERS, self._bytes.total())
