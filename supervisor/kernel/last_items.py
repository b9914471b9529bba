"""The last items of a feed with many readers: kept once, numbered, and counted by the ledger.

Each reader knows the number of the item that it reads next, and reads in its own turns. So an item
costs the same however many read it, and a slow reader holds no memory of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from supervisor.runtime.held_bytes import Account

T = TypeVar("T")


class LastItems(Generic[T]):
    """The last items; the oldest are lost beyond either bound, or where the ledger has no room."""

    def __init__(
        self,
        account: Account,
        what: str,
        most: int,
        most_bytes: int,
        lost: Callable[[int, T], None] | None = None,
    ) -> None:
        """Hold them in `account` as `what` (`held_bytes.HELD`); `lost` gets each lost item."""
        self.first_number = 0
        self._account = account
        self._what = what
        self._most = most
        self._most_bytes = most_bytes
        self._lost = lost
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0

    @property
    def end_number(self) -> int:
        """The number of the item that comes next."""
        return self.first_number + len(self._items)

    def __getitem__(self, number: int) -> T:
        return self._items[number - self.first_number][0]

    def keep(self, item: T, size: int) -> None:
        """Add an item; one that is larger than the bounds by itself is kept alone."""
        account, items = self._account, self._items
        items.append((item, size))
        self._hold(size)
        while len(items) > 1 and (
            len(items) > self._most or self._bytes > self._most_bytes or not account.fits(0)
        ):
            oldest, size = items.popleft()
            self._hold(-size)
            self.first_number += 1
            if self._lost is not None:
                self._lost(self.first_number - 1, oldest)

    def forget(self) -> None:
        """Drop all items: everybody has read them, or nobody reads."""
        self.first_number = self.end_number
        self._items.clear()
        self._hold(-self._bytes)

    def _hold(self, more: int) -> None:
        self._bytes += more
        self._account.add(self._what, more)
