"""New lines of a module's log, for all its followers: kept once, within bounds.

Each follower reads at its own pace, in its own turns. Lines beyond the bounds are left out, and the
follower is told how many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio

from supervisor.kernel.last_items import LastItems
from supervisor.runtime.files.module_log import LogLine, ModuleLog
from supervisor.runtime.held_bytes import LOGS, Account, HeldBytes

FOLLOWED_LINES = 1000
FOLLOWED_BYTES = 4 << 20
"""Bytes kept of one log; the oldest lines are lost beyond that, or where the ledger has no room."""

LINE_COST_BYTES = 128
"""The cost of a line beside its text."""


class FollowedLogs:
    """The logs of one daemon that have followers."""

    def __init__(self, ledger: HeldBytes) -> None:
        self._ledger = ledger
        self._followed: dict[ModuleLog, _Followed] = {}

    @contextlib.contextmanager
    def following(self, log: ModuleLog) -> Iterator[Follower]:
        followed = self._followed.get(log)
        if followed is None:
            followed = self._followed[log] = _Followed(log, self._ledger)
        followed.followers += 1
        try:
            yield Follower(followed)
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[log]
                followed.end()


class Follower:
    """The place of one follower in a log."""

    def __init__(self, followed: _Followed) -> None:
        self._followed = followed
        self._next = followed.lines.end_number

    async def next(self) -> tuple[int, LogLine]:
        """Wait for the next line; returns how many were left out before it, and the line."""
        lines = self._followed.lines
        while self._next >= lines.end_number:
            await self._followed.some.park()
        left_out = max(lines.first_number - self._next, 0)
        self._next += left_out + 1
        return left_out, lines[self._next - 1]


class _Followed:
    """The last lines of one log."""

    def __init__(self, log: ModuleLog, ledger: HeldBytes) -> None:
        self.followers = 0
        self._account = Account(ledger, f"the followed log of {log.module}")
        self.lines: LastItems[LogLine] = LastItems(
            self._account, LOGS, FOLLOWED_LINES, FOLLOWED_BYTES
        )
        self.some = trio.lowlevel.ParkingLot()
        self._unfollow = log.follow(self._keep)

    def end(self) -> None:
        self._unfollow()
        self._account.close()

    def _keep(self, line: LogLine) -> None:
        self.lines.keep(line, LINE_COST_BYTES + len(line.text))
        self.some.unpark_all()
