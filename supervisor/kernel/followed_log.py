"""What is said in a module's log from now on, for all that follow it: kept once, within bounds.

Each follower reads at its own pace, in its own turns. What is beyond the bounds by the time that it
comes is left out, and it is told how much that was.
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
"""What is kept of one log; the oldest are lost beyond either, or where the ledger has no room."""

LINE_COST_BYTES = 128
"""What a line costs beside its text."""


class FollowedLogs:
    """The logs of one daemon that somebody follows."""

    def __init__(self, ledger: HeldBytes) -> None:
        """Count what is kept in `ledger`."""
        self._ledger = ledger
        self._followed: dict[ModuleLog, _Followed] = {}

    @contextlib.contextmanager
    def following(self, log: ModuleLog) -> Iterator[Follower]:
        """Follow a log within the block."""
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
    """Where one of them is."""

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
