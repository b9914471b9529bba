"""What the daemon holds in memory for others: a ledger of bytes, with an account for each party.

A party is a client, a module that calls the host, a user whose requests go on without a client, or
what keeps something for many: a log that is followed, a hook's queue, the daemon's own log. What is
held for it has a name (`HELD`), and two bounds:

    PARTY_BYTES  of its own: then it is not read from, until it has less
    ALL_BYTES    all together: no party may have more than is left of that. So a late party finds
                 room, though less than those before, and what is full is never quite full
                 (dynamic thresholds, Choudhury and Hahne, 1998). What finds no room is refused

A principal may have many parties: connections, and logins as which programs ask. The args of all of
them together have a bound, `PRINCIPAL_ARGS_BYTES`, beside what is free in any case.

`FREE_BYTES` of each party are free: one that asks little notices nothing of those that ask much.
Once all have `ALL_BYTES`, only `LEAST_FREE_BYTES` are, so that not even many such parties have much
more. Lines are on top of all that: what a party writes is refused when it has been read, and not
before. So the total is at most

    ALL_BYTES + FREE_BYTES + UNFINISHED_BYTES
              + what each party has free, and what may wait of its lines (`faces.conversation`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

FREE_BYTES = 1 << 20
"""As much as may wait for a client to read it, before it is congested (`faces.outbox`)."""

LEAST_FREE_BYTES = 64 << 10
"""Of a party whose outbox has less, nothing is counted anyway (`faces.outbox.COUNTED_BYTES`)."""

PARTY_BYTES = 32 << 20
"""Two requests of the greatest length, or eight answers of 4 MiB."""

PRINCIPAL_ARGS_BYTES = 64 << 20
"""Two parties at their bound. The gateway opens a login for each long request of its clients."""

ALL_BYTES = 256 << 20
"""Eight parties at their bound; a small machine has that."""

UNFINISHED_BYTES = 64 << 20
"""Of lines without an end: they may never have one. Beyond it the longest is dropped, and its
writer is told so: one request is lost, and no connection."""

LINES = "lines"
"""Written by the party, and not begun."""
ARGS = "args"
"""Of requests that have no answer yet."""
ANSWERS = "answers"
"""Events and answers that the party has not read."""
ASSETS = "assets"
"""Files that are taken in, and the events that wait for them."""
TRANSCRIPTS = "transcripts"
"""What was recorded and not sent."""

LOGS = "logs"
"""Lines of logs that were read for the party, or kept for who follows, and not sent."""

HELD = (LINES, ARGS, ANSWERS, ASSETS, TRANSCRIPTS, LOGS)

SHOWN = 16
"""So many parties are in `status`: those that hold most."""


class HeldBounds(msgspec.Struct, frozen=True, kw_only=True):
    party: int = PARTY_BYTES
    principal_args: int = PRINCIPAL_ARGS_BYTES
    all: int = ALL_BYTES
    free: int = FREE_BYTES
    least_free: int = LEAST_FREE_BYTES
    unfinished: int = UNFINISHED_BYTES


class Account:
    __slots__ = (
        "_drop",
        "_ledger",
        "bounds",
        "by",
        "bytes",
        "is_full",
        "party",
        "total",
        "unfinished",
    )

    def __init__(self, ledger: HeldBytes, party: str, by: msgspec.Raw | None = None) -> None:
        """`by` says who the party is."""
        self.party = party
        self.by = by
        self.bounds = ledger.bounds
        self.bytes = dict.fromkeys(HELD, 0)
        self.total = 0
        self.is_full = False
        """Whether no more is to be read from the party for now."""
        self.unfinished = 0
        """How much of `LINES` is a line without an end."""
        self._drop: Callable[[], None] | None = None
        self._ledger = ledger

    def hold(self, what: str, size: int) -> None:
        more = size - self.bytes[what]
        if more:
            self.bytes[what] = size
            self.total += more
            self.is_full = self.bytes[ARGS] + self.bytes[ANSWERS] > self.bounds.party
            self._ledger.changed(self, more)

    def add(self, what: str, size: int) -> None:
        """Hold so much more, or less."""
        self.hold(what, self.bytes[what] + size)

    def hold_unfinished(self, size: int, drop: Callable[[], None]) -> None:
        """Set the length of a line without an end; `drop` drops it and tells its writer."""
        self._drop = drop
        self._set_unfinished(size)
        self._ledger.bound_unfinished()

    def drop_unfinished(self) -> None:
        self._set_unfinished(0)
        if self._drop is not None:
            self._drop()

    def _set_unfinished(self, size: int) -> None:
        more = size - self.unfinished
        self.unfinished = size
        self._ledger.unfinished += more
        self.add(LINES, more)

    def fits(self, size: int) -> bool:
        bounds = self.bounds
        held, left = self.total + size, bounds.all - self._ledger.total
        return held <= left or held <= (bounds.free if size <= left else bounds.least_free)

    def takes_args(self, size: int) -> bool:
        """Whether a request of so many bytes may begin, with all that its principal has open."""
        if self.total + size <= self.bounds.least_free:
            return self.fits(size)
        open_bytes = self._ledger.args_of(self.by)
        return open_bytes + size <= self.bounds.principal_args and self.fits(size)

    @property
    def free_bytes(self) -> int:
        """How much may be held for the party now, whatever the others have."""
        bounds = self.bounds
        return bounds.free if self._ledger.total < bounds.all else bounds.least_free

    def takes_answer(self, size: int) -> bool:
        """Whether so much more may wait for the party to read it; a single answer always may."""
        unread = self.bytes[ANSWERS]
        return (not unread or unread + size <= self.bounds.party) and self.fits(size)

    def close(self) -> None:
        """Hold nothing any more: the party has gone; idempotent."""
        self._set_unfinished(0)
        for what in HELD:
            self.hold(what, 0)
        self._drop = None
        self._ledger = HeldBytes(self.bounds)  # what is let go of later counts no more


class HeldBytes:
    """The ledger: the accounts of a daemon that hold something."""

    def __init__(self, bounds: HeldBounds | None = None) -> None:
        self.bounds = bounds or HeldBounds()
        self.total = 0
        self.most = 0
        """The greatest `total` there ever was."""
        self.unfinished = 0
        self._holding: set[Account] = set()

    def changed(self, account: Account, more: int) -> None:
        self.total += more
        self.most = max(self.most, self.total)
        if not account.total:
            self._holding.discard(account)
        elif account.total == more:
            self._holding.add(account)

    def args_of(self, by: msgspec.Raw | None) -> int:
        """Return the bytes of all open requests of a principal."""
        return sum(one.bytes[ARGS] for one in self._holding if one.by == by)

    def bound_unfinished(self) -> None:
        """Drop the longest lines without an end, as long as all together are too much."""
        while self.unfinished > self.bounds.unfinished:
            max(self._holding, key=lambda one: one.unfinished).drop_unfinished()

    def status(self) -> dict[str, Any]:
        holding = sorted(self._holding, key=lambda one: one.total, reverse=True)
        return {
            "total": self.total,
            "most": self.most,
            "limit": self.bounds.all,
            "party_limit": self.bounds.party,
            "parties": [
                {"party": one.party, "by": one.by, "total": one.total, **one.bytes}
                for one in holding[:SHOWN]
            ],
            "more_parties": len(holding[SHOWN:]),
        }
