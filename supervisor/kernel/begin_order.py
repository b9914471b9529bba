"""The order in which the requests of one party begin, while one waits for its module's list.

Requests for one module begin in the order in which they were written; an op of the daemon's own
begins when all before it have begun, and before all behind it. So a request for an op that is not
listed yet (`request_checks.Unlisted`) holds up those behind it for the same module, and ops;
requests for other modules pass it by. Each request that has to wait takes a place, and leaves it
when it has begun or has ended:

    lines:  module -> the places of its requests; the first one may begin
    behind: all places that were taken since the first op that has to wait, in order

There may be thousands: one task begins those that may, as many at once as a turn of the party
allows. It ends with the last place; if it is cancelled, it ends all requests that still wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

import trio

from protocol.errors import Failure, Reason
from supervisor.policy.verdict import Stopped
from supervisor.runtime.turns import SharedTurn

if TYPE_CHECKING:
    from supervisor.kernel.parties import Handle
    from supervisor.kernel.request_checks import Unlisted

OWN_OPS = ""
"""The line of the op that may begin; no module has this name."""

BeginHeld = Callable[[Failure | None], Iterable[None] | None]
"""Begins a request, or refuses it for this reason; returns further steps that belong to that."""


class PlaceInOrder:
    """The place of a request that waits to begin."""

    __slots__ = ("_order", "begin", "left", "line", "lookup", "request", "unlisted")

    def __init__(
        self,
        order: BeginOrder,
        line: str,
        request: Handle,
        begin: BeginHeld,
        unlisted: Unlisted | None,
    ) -> None:
        self.line = line
        """The module that the request is for, or `OWN_OPS`."""
        self.request = request
        self.begin = begin
        self.unlisted = unlisted
        """Its op, if its module is to be asked for it first."""
        self.lookup: trio.CancelScope | None = None
        """The scope in which the module is asked."""
        self.left = False
        self._order = order

    @property
    def why(self) -> str:
        """The words for a request that ends here."""
        if self.unlisted is not None:
            return self.unlisted.why
        return "a request before it had not begun yet"

    def leave(self) -> None:
        """Let those behind it begin; idempotent."""
        if not self.left:
            self.left = True
            if self.lookup is not None:
                self.lookup.cancel()
            self._order.passed(self)


class BeginTasks:
    """The tasks of all orders in which requests wait."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.count = 0
        self._none = trio.lowlevel.ParkingLot()

    def ended(self) -> None:
        self.count -= 1
        if not self.count:
            self._none.unpark_all()

    async def wait_none(self) -> None:
        """Return when no request waits to begin."""
        while self.count:
            await self._none.park()


class BeginOrder(dict[str, deque[PlaceInOrder]]):
    """The places of one party's requests; while it is empty, a request begins at once.

    A dictionary itself: each request asks whether it is empty.
    """

    __slots__ = ("_behind", "_idle", "_shared", "_tasks", "_to_begin")

    def __init__(self, shared: SharedTurn) -> None:
        """Requests that waited begin in the party's turns."""
        super().__init__()
        self._shared = shared
        self._behind: deque[PlaceInOrder] = deque()
        self._to_begin: deque[PlaceInOrder] = deque()
        """The first places of lines, for the task."""
        self._tasks: BeginTasks | None = None
        """Where its task is, while there is one."""
        self._idle = trio.lowlevel.ParkingLot()

    def is_clear(self, module: str) -> bool:
        """Whether a request for a module begins now, if its op is listed."""
        return not self._behind and module not in self and OWN_OPS not in self

    def place(
        self,
        line: str,
        request: Handle,
        begin: BeginHeld,
        tasks: BeginTasks,
        unlisted: Unlisted | None = None,
    ) -> PlaceInOrder:
        """Take the last place, for a request to a module or for one of the `OWN_OPS`.

        `begin` is called in its turn, and once its op is settled, unless it has ended.
        """
        if self._tasks is None:
            self._tasks = tasks
            tasks.count += 1
            tasks.nursery.start_soon(self._run, tasks)
        one = PlaceInOrder(self, line, request, begin, unlisted)
        self._behind.append(one)
        self._move_up()
        return one

    def passed(self, one: PlaceInOrder) -> None:
        """Let those behind a place begin that was left."""
        line = self.get(one.line)
        if line and line[0] is one:
            while line and line[0].left:
                line.popleft()
            if line:
                self._may_begin(line[0])
            else:
                del self[one.line]
        self._move_up()
        self._idle.unpark()

    def _move_up(self) -> None:
        """Move places from behind into their lines, up to an op that has to wait."""
        while self._behind and OWN_OPS not in self:
            one = self._behind[0]
            if not one.left:
                if one.line == OWN_OPS and self:
                    return
                line = self.setdefault(one.line, deque())
                line.append(one)
                if len(line) == 1:
                    self._may_begin(one)
            self._behind.popleft()

    def _may_begin(self, one: PlaceInOrder) -> None:
        if one.unlisted is None or self._tasks is None:
            self._to_begin.append(one)
        else:
            one.lookup = trio.CancelScope()
            self._tasks.nursery.start_soon(self._look_up, one, one.unlisted, one.lookup)

    async def _look_up(
        self, one: PlaceInOrder, unlisted: Unlisted, lookup: trio.CancelScope
    ) -> None:
        with lookup:
            refusal = await unlisted.settled()
            if not one.left:  # by a cancel in the same moment
                one.begin(refusal)
                one.leave()

    async def _run(self, tasks: BeginTasks) -> None:
        try:
            await self._shared.serve(self._begin_all(), "beginning what waited")
        finally:
            waiting = [*chain.from_iterable(self.values()), *self._behind]
            for places in (self, self._behind, self._to_begin):
                places.clear()
            self._tasks = None
            for one in waiting:  # the daemon ends without waiting
                one.left = True
                one.request.cancel(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))
            tasks.ended()

    async def _begin_all(self) -> None:
        while self:
            while self._to_begin:
                one = self._to_begin.popleft()
                steps = None if one.left or one.request.ended else one.begin(None)
                for _ in steps or ():
                    await self._go_on()
                one.leave()
                await self._go_on()
            if self:
                await self._idle.park()

    async def _go_on(self) -> None:
        """Go on in this turn, or in the party's next one (`SharedTurn.serve`)."""
        if self._shared.is_over:
            await trio.lowlevel.checkpoint()
