"""Requests of one party that have not begun yet, since one before them waits for a module's list.

Requests for one module begin in the order in which they were written; an op of the daemon's own
begins when all before it have begun, and before all behind it. So a request for an op that is not
listed yet (`request_checks.Unlisted`) holds up those behind it for the same module, and ops;
requests for other modules pass it by. A cancelled request is removed from the queue. An op that
takes turns to begin holds up ops in the same way (`pause`). There may be thousands: those whose
time has come begin a turn at a time, too.

    lines:  module -> those for it, the first one being looked up; the order is this dictionary
    behind: all that came since the first op that has to wait, in order; empty if there are no lines
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import trio

from protocol.errors import Failure
from supervisor.kernel.parties import Party
from supervisor.kernel.request_checks import Unlisted
from supervisor.runtime.turns import Turn, in_turns

_PAUSED, _MOVING = "", " "
"""Lines of no module, which stay empty: while there is one, an op does not begin at once."""

BeginHeld = Callable[[Failure | None], None]
"""Begins a request, or refuses it for this reason."""


class Held:
    """A request that waits to begin; `leave` is idempotent."""

    __slots__ = ("_order", "begin", "lookup", "module", "unlisted")

    def __init__(
        self, order: BeginOrder, module: str | None, unlisted: Unlisted | None, begin: BeginHeld
    ) -> None:
        self._order = order
        self.module = module
        """The module that it is for; None for an op of the daemon's own."""
        self.unlisted = unlisted
        self.begin: BeginHeld | None = begin
        self.lookup: trio.CancelScope | None = None
        """The look at its module's list, once it is the first of its line."""

    @property
    def why(self) -> str:
        if self.unlisted is not None:
            return self.unlisted.why
        return "a request before it had not begun yet"

    def leave(self) -> None:
        """Leave the queue: the request has ended."""
        if self.begin is not None:
            self.begin = None
            if self.lookup is not None:
                self.lookup.cancel()
                self._order.passed(self)


class BeginOrder(dict[str, deque[Held]]):
    """The requests of one party that wait to begin: while it is empty, an op begins at once.

    A dictionary itself: each request asks whether it is empty.
    """

    __slots__ = ("_behind", "_moving", "_nursery", "party")

    def __init__(self, nursery: trio.Nursery, party: str) -> None:
        """`party` is the label in whose turns requests that waited begin."""
        super().__init__()
        self.party = party
        self._nursery = nursery
        self._behind: deque[Held] = deque()
        self._moving = False

    def is_clear(self, module: str) -> bool:
        """Whether a request for a module begins now, if its op is listed."""
        return not self._behind and module not in self

    def hold(self, module: str | None, unlisted: Unlisted | None, begin: BeginHeld) -> Held:
        """Queue a request; `begin` is called in its turn, once its op is settled."""
        one = Held(self, module, unlisted, begin)
        if self._behind or module is None:
            self._behind.append(one)
        else:
            self._line_up(one, module)
        return one

    def pause(self) -> None:
        """Make ops wait until `go_on`: the op before them has not begun yet."""
        self[_PAUSED] = deque()

    def go_on(self) -> None:
        del self[_PAUSED]
        self._move_up()

    def passed(self, one: Held) -> None:
        """Remove the first request of a line."""
        assert one.module is not None  # noqa: S101 - ops are in no line
        self[one.module].popleft()
        self._take(self._advancing(one.module))

    def _line_up(self, one: Held, module: str) -> None:
        line = self.setdefault(module, deque())
        line.append(one)
        if len(line) == 1:
            self._take(self._advancing(module))

    def _advancing(self, module: str) -> Iterator[None]:
        """Begin the requests of a line as far as possible, one with each step.

        The first one stays in the line.
        """
        line = self[module]
        while line:
            first = line[0]
            if first.begin is not None and first.unlisted is not None:
                first.lookup = trio.CancelScope()
                self._nursery.start_soon(self._look_up, first, first.unlisted, first.lookup)
                return
            _begin(first, None)
            yield
            line.popleft()
        del self[module]
        self._move_up()

    async def _look_up(self, one: Held, unlisted: Unlisted, lookup: trio.CancelScope) -> None:
        with lookup:
            failure = await unlisted.settled()
            if not lookup.cancel_called:
                one.lookup = None
                _begin(one, failure)
                self.passed(one)

    def _move_up(self) -> None:
        if not self._moving:  # else a line is empty again at once: that goes on
            self._moving = True
            self._take(self._moving_up())

    def _moving_up(self) -> Iterator[None]:
        while self._behind and not (self._behind[0].module is None and self):
            one = self._behind.popleft()
            if one.module is None:
                _begin(one, None)
            elif one.begin is not None:
                self._line_up(one, one.module)
            self[_MOVING] = deque()
            yield
            del self[_MOVING]
        self._moving = False

    def _take(self, steps: Iterator[None]) -> None:
        """Take steps for as long as a turn is, and the others in later turns."""
        turn = Turn()
        turn.begin()
        if any(turn.over for _ in steps):
            self._nursery.start_soon(in_turns, self.party, "beginning what waited", steps)


def order_of(party: Party, nursery: trio.Nursery) -> BeginOrder:
    """Return the order in which a party's requests begin; the first call makes it."""
    if party.order is None:
        party.order = BeginOrder(nursery, party.label)
    return party.order


def _begin(one: Held, failure: Failure | None) -> None:
    begin, one.begin = one.begin, None
    if begin is not None:
        begin(failure)
