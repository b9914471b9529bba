"""The bytes that the gateway holds for its clients, counted by the owner who causes them.

Counted are requests that were not passed on to the daemon yet, WebSocket messages without an end,
what the daemon was not given or has said and a client does not read, and what an MCP session keeps:
events, long results, files for an answer, and parked answers. All have one room. While it is full,
the owner who holds most loses, its oldest holder first (`policy.shares`), so that nobody takes room
from those who hold less.

An owner is a principal by its name; before the login it is the client's address, or its user.
"""

from __future__ import annotations

from supervisor.policy.shares import Shares

ROOM_BYTES = 64 << 20
"""Four bodies of the greatest length."""

FREE_BYTES = 4096
"""Of each holder: nobody has more holders than there may be connections."""


class Holder:
    """A client's connection, or an MCP server: what bytes are held for, and what is lost whole."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.held_bytes = 0
        self._has_lost = False

    def hold(self, more: int) -> None:
        """Hold so many bytes more, or less; the owner who holds most loses if there is no room."""
        if self._has_lost:
            return
        self.held_bytes += more
        if self.held_bytes > FREE_BYTES:
            _ROOM.put(self.owner, self, self.held_bytes)
            while _ROOM.left < 0:
                oldest = next(iter(_ROOM.to_lose(self.owner)))
                oldest.hold_nothing()
                oldest.lose()
        elif self.held_bytes - more > FREE_BYTES:
            _ROOM.take(self.owner, self)

    def hold_nothing(self) -> None:
        """Hold nothing from now on: it is over."""
        self._has_lost = True
        _ROOM.take(self.owner, self)

    def belong_to(self, owner: str) -> None:
        """Count for another owner."""
        if owner != self.owner:
            _ROOM.take(self.owner, self)
            self.owner = owner
            self.hold(0)

    def lose(self) -> None:
        """End, and let go of what is held."""
        raise NotImplementedError


_ROOM: Shares[Holder] = Shares(ROOM_BYTES)
