"""How many processes of a fleet start at the same time: a thousand at once would all be slow.

A start takes a turn before it spawns and gives it back when it is ready, or has failed. It is not
asked to be quick: after `HELD_S` its turn goes to the next one, so a module that never gets ready
delays its neighbours by that at the most, and by nothing while turns are free. Starts for which
requests wait, and those after a crash, come before others; else who came first is first.
"""

from __future__ import annotations

import heapq
import itertools

import trio

from supervisor.runtime.supervision.deadlines import Deadlines, Timer

AT_ONCE = 32
"""More than are spawned at once (`spawn_threads.AT_ONCE`), so that those threads have work."""

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
            self._starts.given_up()

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
        self._waiting: list[tuple[bool, int, StartTurn]] = []
        self._order = itertools.count()
        self._given_up = 0

    def turn(self, *, urgent: bool) -> StartTurn:
        """Return a turn, which has come if one is free."""
        turn = StartTurn(self)
        if self._free:
            self._free -= 1
            turn.begin(self._deadlines)
        else:
            heapq.heappush(self._waiting, (not urgent, next(self._order), turn))
        return turn

    def returned(self) -> None:
        """Give the turn that came back to the next one that still waits."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if turn.open:
                turn.begin(self._deadlines)
                return
            self._given_up -= 1
        self._free += 1

    def given_up(self) -> None:
        # Swept out once they are half of all, as in `Deadlines`: O(1) on average, and bounded.
        self._given_up += 1
        if self._given_up * 2 > len(self._waiting):
            self._waiting = [entry for entry in self._waiting if entry[2].open]
            heapq.heapify(self._waiting)
            self._given_up = 0
