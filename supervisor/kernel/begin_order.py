"""Requests of one party that have not begun yet, since args of theirs are still being checked.

Requests for one module begin in the order in which they were written; an op of the daemon's own
begins when all before it have begun, and before all behind it. So a request whose args take their
time (`request_checks.Doubt`) holds up those behind it for the same module, and ops; requests for
other modules pass it by. A cancelled request is removed from the queue. An op that takes turns to
begin holds up ops in the same way (`pause`). There may be thousands: those whose time has come
begin a turn at a time, too.

    lines:  module -> those for it, the first one being checked; the order is this dictionary
    behind: all that came since the first op that has to wait, in order; empty if there are no lines
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from protocol.errors import Failure
from supervisor.kernel.parties import Party
from supervisor.kernel.request_checks import Doubt, Lookup
from supervisor.runtime.checking.checks import Check, Checks
from supervisor.runtime.turns import Turn

_PAUSED, _MOVING = "", " "
"""Lines of no module, which stay empty: while there is one, an op does not begin at once."""

BeginHeld = Callable[[Failure | None], None]
"""Begins a request, or refuses it for this reason."""


class Held:
    """A request that waits to begin; `leave` is idempotent."""

    __slots__ = ("_order", "begin", "check", "doubt", "module")

    def __init__(
        self, order: BeginOrder, module: str | None, doubt: Doubt | None, begin: BeginHeld
    ) -> None:
        self._order = order
        self.module = module
        """The module that it is for; None for an op of the daemon's own."""
        self.doubt = doubt
        self.begin: BeginHeld | None = begin
        self.check: Check | Lookup | None = None

    @property
    def why(self) -> str:
        if self.doubt is not None:
            return self.doubt.why
        return "a request before it had not begun yet"

    def leave(self) -> None:
        """Leave the queue: the request has ended."""
        if self.begin is not None:
            self.begin = None
            if self.check is not None:
                self.check.drop()
                self._order.passed(self)


class BeginOrder(dict[str, deque[Held]]):
    """The requests of one party that wait to begin: while it is empty, an op begins at once.

    A dictionary itself: each request asks whether it is empty.
    """

    __slots__ = ("_behind", "_checks", "_moving", "party")

    def __init__(self, checks: Checks, party: str) -> None:
        """`party` is the label whose turn the checks of args take."""
        super().__init__()
        self.party = party
        self._checks = checks
        self._behind: deque[Held] = deque()
        self._moving = False

    def is_clear(self, module: str) -> bool:
        """Whether a request for a module begins now, if there is no doubt about its args."""
        return not self._behind and module not in self

    def hold(self, module: str | None, doubt: Doubt | None, begin: BeginHeld) -> Held:
        """Queue a request; `begin` is called after the check of its args, in its turn."""
        one = Held(self, module, doubt, begin)
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
            failure: Failure | None = None
            if first.begin is not None and first.doubt is not None:
                asked = first.doubt.ask(self._checks, self.party, partial(self._looked_at, first))
                if not isinstance(asked, Failure):
                    first.check = asked
                    return
                failure = asked
            _begin(first, failure)
            yield
            line.popleft()
        del self[module]
        self._move_up()

    def _looked_at(self, one: Held, failure: Failure | None) -> None:
        one.check = None
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
            self._checks.in_turns(self.party, "beginning what waited", steps)


def order_of(party: Party, checks: Checks) -> BeginOrder:
    """Return the order in which a party's requests begin; the first call makes it."""
    if party.order is None:
        party.order = BeginOrder(checks, party.label)
    return party.order


def _begin(one: Held, failure: Failure | None) -> None:
    begin, one.begin = one.begin, None
    if begin is not None:
        begin(failure)
