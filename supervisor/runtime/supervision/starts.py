"""How many processes of a fleet start at the same time: a thousand at once would all be slow.

A start takes a turn before it spawns and gives it back when it is ready, or has failed. It is not
asked to be quick: after `HELD_S` its turn goes to the next one, so a module that never gets ready
delays its neighbours by that at the most, and by nothing while turns are free. Starts for which
requests wait, and those after a crash, come before others; else who came first is first.
"""

from __future__ import annotations

from collections import OrderedDict

import trio

from supervisor.runtime.supervision.deadlines import Deadlines, Timer

AT_ONCE = 32
"""More than are spawned at once (`spawn.AT_ONCE`), so that those threads have work."""

HELD_S = 1.0


class StartTurn:
    """The right to start; it can be given up and back any number of times."""

    __slots__ = ("_decided", "_starts", "_timer", "came")

    def __init__(self, starts: Starts) -> None:
        self.came = False
        """Whether it came before it was given back."""
        self._starts = starts
        self._decided = trio.Event()
        self._timer: Timer | None = None

    @property
    def open(self) -> bool:
        return not self._decided.is_set()

    async def wait(self) -> bool:
        """Wait until it has come, or was given back before: then False."""
        if self.open:
            await self._decided.wait()
        return self.came

    def begin(self, deadlines: Deadlines) -> None:
        self.came = True
        self._timer = deadlines.after(HELD_S, self.give_back)
        self._decided.set()

    def give_up(self) -> None:
        """Stop waiting for it, if it has not come."""
        if self.open:
            self._decided.set()
            self._starts.given_up(self)

    def give_back(self) -> None:
        """Let the next one start, if this one has come."""
        self.give_up()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._starts.returned()


class Starts:
    def __init__(self, deadlines: Deadlines, at_once: int = AT_ONCE) -> None:
        self._deadlines = deadlines
        self._free = at_once
        # Those that give up leave in O(1), wherever they stand.
        self._urgent: OrderedDict[StartTurn, None] = OrderedDict()
        self._others: OrderedDict[StartTurn, None] = OrderedDict()

    def turn(self, *, urgent: bool) -> StartTurn:
        """Return a turn, which has come if one is free."""
        turn = StartTurn(self)
        if self._free:
            self._free -= 1
            turn.begin(self._deadlines)
        else:
            (self._urgent if urgent else self._others)[turn] = None
        return turn

    def returned(self) -> None:
        """Give the turn that came back to the next one that waits."""
        waiting = self._urgent or self._others
        if waiting:
            turn, _ = waiting.popitem(last=False)
            turn.begin(self._deadlines)
        else:
            self._free += 1

    def given_up(self, turn: StartTurn) -> None:
        self._urgent.pop(turn, None)
        self._others.pop(turn, None)
