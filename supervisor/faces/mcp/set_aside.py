"""Results that are too long for an event of a stream.

Kept for a while, for the client with the link. They have a bound together. Beyond it, the oldest of
the principal that holds most goes.
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
"""Of all clients; one result is at most as long as a line of a module."""


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
        """Return the principal's result of that name, if it is still kept."""
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
