"""Wait for a change of some module, of one module, or note the changes of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

import trio

KEPT = 10_000
"""So many changes are kept; a reader that has missed some has to look at all modules."""


class Changes:
    """Wakes the tasks that wait for a module to change, and no others.

    To tell of a change costs the same however many note it.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many there were."""
        self._any = trio.lowlevel.ParkingLot()
        self._of: dict[str, trio.lowlevel.ParkingLot] = {}
        self._told: deque[str] = deque(maxlen=KEPT)

    def tell(self, names: Iterable[str]) -> None:
        """Wake those who wait for a change of one of these, or of any."""
        for name in names:
            self.count += 1
            self._told.append(name)
            waiting = self._of.pop(name, None)
            if waiting is not None:
                waiting.unpark_all()
        self.tell_all()

    def tell_all(self) -> None:
        """Wake those who wait for any change."""
        self._any.unpark_all()

    async def wait(self) -> None:
        """Wait for any change."""
        await self._any.park()

    async def wait_of(self, name: str) -> None:
        await self._of.setdefault(name, trio.lowlevel.ParkingLot()).park()

    def since(self, count: int) -> list[str] | None:
        """Return the modules that changed since the count was this; None if that is not known."""
        number = self.count - count
        if number > len(self._told):
            return None
        return list(dict.fromkeys(islice(reversed(self._told), number)))[::-1]


class Noted:
    """Those that have changed since they were last taken."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._at = changes.count

    async def take(self) -> list[str] | None:
        """Wait until some have changed, and return them; None if they were too many."""
        changes = self._changes
        while changes.count == self._at:
            await changes.wait()
        names, self._at = changes.since(self._at), changes.count
        return names
