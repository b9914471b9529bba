"""Lines of one client that wait to be served, in order: for their turn, or until it reads again.

Bounded in bytes by the one who fills it: it looks for room after each chunk that it has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from protocol.framing import Line, Overlong
from supervisor.runtime.held_bytes import LINES, Account

HELD_BYTES = 1 << 18

LINE_COST_BYTES = 128
"""What a line costs beside its bytes, so that many short ones have a bound too."""


class Inbox:
    """Lines that wait, put by the task that reads, and taken by the one that serves them."""

    def __init__(self, account: Account) -> None:
        """Hold what waits for `account`."""
        self.held_bytes = 0
        self._account = account
        self._lines: deque[Line] = deque()
        self._some = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._lines

    def put(self, lines: Sequence[Line]) -> None:
        """Let lines wait."""
        self._lines.extend(lines)
        if lines:
            self._hold(sum(map(_cost_bytes, lines)))
            self._some.unpark_all()

    def take(self) -> Line:
        """Return the line that has waited longest; there must be one."""
        line = self._lines.popleft()
        self._hold(-_cost_bytes(line))
        if self.held_bytes <= HELD_BYTES:
            self._room.unpark_all()
        return line

    async def wait_some(self) -> None:
        """Return once a line waits."""
        while self.empty:
            await self._some.park()

    async def wait_room(self) -> None:
        """Return once less waits than the bound."""
        while self.held_bytes > HELD_BYTES:
            await self._room.park()

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self._account.add(LINES, more)


def _cost_bytes(line: Line) -> int:
    return LINE_COST_BYTES + len(line.excerpt if isinstance(line, Overlong) else line)
