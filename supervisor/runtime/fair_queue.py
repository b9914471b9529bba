"""Which party is served next, where more want to be than a turn of the event loop has time for.

It is the party that has had least lately (start-time fair queueing, Goyal, Vin and Cheng, 1996).
Each party has a time of its own, which goes on by what it is served, and all have one together:
that of the last party that was called. A party stands where its own time would be once it is served
what it comes with; but that begins no more than `CREDIT_S` before the time of all. So a party that
asks little is called before all those that ask much, and none saves up the right to keep them all
waiting.

In each turn of the loop some are called, as long as any wait; when all of them have come, the last
one calls the next. The first one goes whatever the others had, so that all get on; the others look
whether there is room, and else stand where they stood.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio

CREDIT_S = 0.02
"""What a party may be served at once, after it has asked for little: some fifty plain calls."""


NAMED = 1024
"""So many parties are named before any is forgotten: each process and each connection is one."""


class _Waiter:
    __slots__ = ("is_called", "is_first", "is_gone", "is_parked", "number", "place", "task")

    def __init__(self, place: float, number: int) -> None:
        self.place = place
        self.number = number
        self.task = trio.lowlevel.current_task()
        self.is_called = self.is_first = self.is_gone = self.is_parked = False

    def __lt__(self, other: _Waiter) -> bool:
        return (self.place, self.number) < (other.place, other.number)


class FairQueue:
    def __init__(self) -> None:
        self.waiting = 0
        """How many wait, or were called and have not come yet."""
        self._queue: list[_Waiter] = []
        self._numbers = itertools.count()
        self._now = 0.0
        """The time of all together (s of service)."""
        self._times: dict[str, float] = {}
        """Each party's own, of those that were served since one has been waiting; a party that is
        not named has a whole credit."""
        self._look_at = NAMED
        """How many may be named before those are dropped that need not be."""
        self._called = 0
        """How many were called and have not come yet: none only if none waits."""
        self._expected: set[trio.lowlevel.Task] = set()
        """The tasks of these."""
        self._went = 0
        """How many of those that were called with them went."""

    def charge(self, who: str, took_s: float) -> None:
        """Note that a party was served; needed only while others wait."""
        self._times[who] = self._place(who) + took_s
        if len(self._times) > self._look_at:
            since = self._now - CREDIT_S  # one with less has a whole credit, named or not
            self._times = {one: time for one, time in self._times.items() if time > since}
            self._look_at = max(2 * len(self._times), NAMED)

    def expects(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task was called and has not come yet.

        It must come before it waits for anything else, or no other would be called any more.
        """
        return task in self._expected

    def precedes(self, who: str) -> bool:
        """Whether a party would stand before all that wait."""
        self._drop_gone()
        return not self._queue or self._place(who) < self._queue[0].place

    async def wait(self, who: str, size_s: float, has_room: Callable[[], bool]) -> None:
        """Return when it is a party's turn: it is the first one, or there is room beside that.

        `size_s` is about how long it takes to serve it.
        """
        waiter = _Waiter(self._place(who) + size_s, next(self._numbers))
        self.waiting += 1
        try:
            if self._called:
                heapq.heappush(self._queue, waiter)
                await self._stand(waiter)
            else:
                self._called, waiter.is_first = 1, True
                self._expected.add(waiter.task)
                await trio.lowlevel.cancel_shielded_checkpoint()
            while not (waiter.is_first or has_room()):
                waiter.is_called = False
                self._expected.discard(waiter.task)
                heapq.heappush(self._queue, waiter)
                self._come()
                await self._stand(waiter)
        finally:
            self.waiting -= 1
            self._expected.discard(waiter.task)
        self._went += 1
        self._now = max(self._now, waiter.place - size_s)
        self._come()

    async def _stand(self, waiter: _Waiter) -> None:
        if waiter.is_called:  # by itself, in this turn of the loop
            await trio.lowlevel.cancel_shielded_checkpoint()
            return

        def leave(_: object) -> trio.lowlevel.Abort:
            waiter.is_gone = True
            return trio.lowlevel.Abort.SUCCEEDED

        waiter.is_parked = True
        await trio.lowlevel.wait_task_rescheduled(leave)
        waiter.is_parked = False

    def _come(self) -> None:
        """One that was called came; the last one calls the next: one more than went."""
        self._called -= 1
        if self._called:
            return
        count, self._went = self._went + 1, 0
        while self._called < count:
            self._drop_gone()
            if not self._queue:
                break
            waiter = heapq.heappop(self._queue)
            waiter.is_called, waiter.is_first = True, not self._called
            self._called += 1
            self._expected.add(waiter.task)
            if waiter.is_parked:
                trio.lowlevel.reschedule(waiter.task)
        if not self._called:  # none waits: what was is nothing to those that come next
            self._times.clear()

    def _drop_gone(self) -> None:
        queue = self._queue
        while queue and queue[0].is_gone:
            heapq.heappop(queue)

    def _place(self, who: str) -> float:
        return max(self._times.get(who, 0.0), self._now - CREDIT_S)
