"""The order in which the requests of one party begin, while one waits for its module's list.

Requests for one module begin in the order in which they were written; an op of the daemon's own
begins when all before it have begun, and before all behind it. So a request for an op that is not
listed yet (`request_checks.Unlisted`) holds up those behind it for the same module, and ops;
requests for other modules pass it by. Each request that has to wait takes a place, and its task
leaves the place when the request has begun or has ended:

    lines:  module -> the places of its requests; the first one may begin
    behind: all places that were taken since the first op that has to wait, in order

There may be thousands: they begin in turns of their party.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType

import trio

from supervisor.runtime.turns import SharedTurn

OWN_OPS = ""
"""The line of the op that may begin; no module has this name."""


class PlaceInOrder:
    """The place of a request that waits to begin; leaving the block leaves the place."""

    __slots__ = ("_order", "first", "left", "line")

    def __init__(self, order: BeginOrder, line: str) -> None:
        self.line = line
        """The module that the request is for, or `OWN_OPS`."""
        self.left = False
        self.first = trio.Event()
        """Set when all that it has to wait for have begun."""
        self._order = order

    async def turn(self) -> None:
        """Return when the request may begin."""
        await self.first.wait()
        if self._order.shared.is_over:
            await self._order.shared.wait()

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._order.leave(self)


class BeginOrder(dict[str, deque[PlaceInOrder]]):
    """The places of one party's requests; while it is empty, a request begins at once.

    A dictionary itself: each request asks whether it is empty.
    """

    __slots__ = ("_behind", "shared")

    def __init__(self, shared: SharedTurn) -> None:
        """Requests that waited begin in the party's turns."""
        super().__init__()
        self.shared = shared
        self._behind: deque[PlaceInOrder] = deque()

    def is_clear(self, module: str) -> bool:
        """Whether a request for a module begins now, if its op is listed."""
        return not self._behind and module not in self and OWN_OPS not in self

    def place(self, line: str) -> PlaceInOrder:
        """Take the last place, for a request to a module or for one of the `OWN_OPS`."""
        one = PlaceInOrder(self, line)
        self._behind.append(one)
        self._move_up()
        return one

    def leave(self, one: PlaceInOrder) -> None:
        one.left = True
        line = self.get(one.line)
        if line is not None:
            while line and line[0].left:
                line.popleft()
            if line:
                line[0].first.set()
            else:
                del self[one.line]
        self._move_up()

    def _move_up(self) -> None:
        """Move places from behind into their lines, up to an op that has to wait."""
        while self._behind and OWN_OPS not in self:
            one = self._behind[0]
            if not one.left:
                if one.line == OWN_OPS and self:
                    return
                line = self.setdefault(one.line, deque())
                line.append(one)
                line[0].first.set()
            self._behind.popleft()
