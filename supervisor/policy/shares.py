"""Shares by owner of a room that all owners use, such as the sessions that a daemon remembers.

    there is room                  whoever asks has it, one owner all of it
    the room is full               the owner who holds most loses its oldest things
    the owner who holds most asks  it is refused, or loses its own oldest; nobody else does

So an owner may fill the room, and takes nothing from those who hold less. An owner is the name of a
principal (`policy.principals`); None, of things from before there were owners, counts as another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import KeysView
from typing import Generic, TypeVar

K = TypeVar("K")


class Shares(Generic[K]):
    """Who holds which things, each by its key and its size."""

    __slots__ = ("_held", "_things", "room", "total")

    def __init__(self, room: int) -> None:
        """`room` is in the unit of the sizes: a number of things, or of bytes."""
        self.room = room
        self.total = 0
        self._held: Counter[str | None] = Counter()
        self._things: dict[str | None, dict[K, int]] = {}
        """The sizes by owner, in the order in which the things came."""

    @property
    def left(self) -> int:
        return self.room - self.total

    def __len__(self) -> int:
        return sum(map(len, self._things.values()))

    def put(self, owner: str | None, key: K, size: int = 1) -> None:
        """Add a thing, or change its size; then it keeps its place."""
        things = self._things.setdefault(owner, {})
        more = size - things.get(key, 0)
        things[key] = size
        self._held[owner] += more
        self.total += more

    def take(self, owner: str | None, key: K) -> None:
        """Remove a thing; idempotent."""
        things = self._things.get(owner, {})
        size = things.pop(key, 0)
        self._held[owner] -= size
        self.total -= size
        if not things:
            self._things.pop(owner, None)
            del self._held[owner]

    def growth(self, owner: str | None, wanted: int) -> int:
        """Return how much more an owner may hold: all that is `wanted`, if it is not less.

        It gets what is left, and what each other owner holds beyond what this one would then hold.
        """
        if self.left >= wanted:
            return self.left
        own = self._held[owner] + wanted
        return self.left + sum(held - own for held in self._held.values() if held > own)

    def most(self, owner: str | None, size: int) -> KeysView[K] | None:
        """Return the things of the other who holds most, the oldest first.

        None if nobody holds more than `owner` would with `size` more.
        """
        most = max(self._held, key=self._held.__getitem__, default=owner)
        more = self._held[most] > self._held[owner] + size
        return self._things[most].keys() if more else None

    def to_lose(self, owner: str | None) -> KeysView[K]:
        """Return the things of the owner who holds most, the oldest first.

        Of those who hold as much, it is the one because of whom there is no room: `owner`.
        """
        most = max(self._held, key=lambda one: (self._held[one], one == owner))
        return self._things[most].keys()
