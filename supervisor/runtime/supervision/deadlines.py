"""All deadlines, served by one task, a turn at a time: a thousand may be due in one moment.

A cancel scope per request costs as much as the rest of a small request. Most requests have a bound
of the same length, so the one that came first is due first: they stand in a queue for that length,
which is a dictionary, since nearly all leave before it is their turn. All else is in a heap.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Protocol

import trio

from supervisor.runtime.turns import LOOP, THE_DAEMON, TURN_S

COMPACT_FROM = 64
"""Below this many entries, cancelled ones are not worth sweeping out."""


MOST_LENGTHS = 64
"""With more queues than this, empty ones are dropped: clients choose lengths, too."""


DUE_AT_ONCE = 128
"""So many timers, and so many with a bound, are told in a turn of the loop: to end a request takes
some 50 us. What takes longer, such as to lay out a part of a table, has no more than `SHARE_S`."""

SHARE_S = TURN_S / 2
"""How long timers are called in a turn of the loop, and how long those with a bound are told; the
last one is finished. Not what others leave over: a time is a promise."""


class Bounded(Protocol):
    """Is to end within a time of its own, such as a request."""

    def expired(self) -> None:
        """Its time is over; must neither block nor raise."""


Queue = dict[Bounded, float]
"""When each is due, the first one first; one that has ended removes itself."""


class Timer:
    """A deadline that was set."""

    __slots__ = ("_queue", "action")

    def __init__(self, queue: Deadlines, action: Callable[[], None]) -> None:
        self._queue = queue
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Make sure the action will not run; it is let go of at once. Idempotent."""
        if self.action is not None:
            self.action = None
            queue = self._queue
            queue._cancelled += 1  # noqa: SLF001 - the two classes are one mechanism
            # Each sweep removes at least half of the entries, so a cancel costs O(1) on average,
            # and the heap never holds more than twice what is due.
            if queue._cancelled * 2 > len(queue._heap) > COMPACT_FROM:  # noqa: SLF001
                queue._sweep()  # noqa: SLF001


class Deadlines:
    """Call actions at their times; an action must neither block nor raise."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` is what a turn is measured by."""
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._queues: dict[float, Queue] = {}
        self._wakes_at = math.inf
        self._earlier = trio.Event()

    def bound(self, one: Bounded, length_s: float, now: float) -> Queue:
        """Tell `one` that it has expired, `length_s` after `now`, unless it has left the queue."""
        queue = self._queues.get(length_s)
        if queue is None:
            if len(self._queues) >= MOST_LENGTHS:
                self._queues = {length: kept for length, kept in self._queues.items() if kept}
            queue = self._queues[length_s] = {}
        queue[one] = due_at = now + length_s
        if due_at < self._wakes_at:
            self._earlier.set()
        return queue

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Call `action` `delay_s` seconds from now (monotonic)."""
        return self.at(trio.current_time() + delay_s, action)

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call `action` at a time of trio's clock; those of the same time make one wake-up."""
        timer = Timer(self, action)
        entry = (when, next(self._order), timer)
        heapq.heappush(self._heap, entry)
        if when < self._wakes_at:
            self._earlier.set()
        return timer

    async def run(self) -> None:
        while True:
            self._earlier = trio.Event()
            self._wakes_at = self._next_at()
            with trio.move_on_at(self._wakes_at):
                await self._earlier.wait()
            LOOP.begin(THE_DAEMON, "timers")
            self._tell_who_is_due(trio.current_time())
            LOOP.end()

    def _tell_who_is_due(self, now: float) -> None:
        # Apart from `run`, whose variables would hold the last one until it wakes again. What is
        # added meanwhile waits for the next turn, even if the clock stands still, and so does the
        # rest when many are due.
        first_added = next(self._order)
        bounded = (
            (queue, one)
            for queue in self._queues.values()
            for one, _ in itertools.takewhile(lambda kept: kept[1] <= now, queue.items())
        )
        due = list(itertools.islice(bounded, DUE_AT_ONCE))
        until = self._clock() + SHARE_S
        for _ in range(DUE_AT_ONCE):
            if not self._heap or self._heap[0][0] > now or self._heap[0][1] > first_added:
                break
            _, _, timer = heapq.heappop(self._heap)
            action, timer.action = timer.action, None
            if action is None:
                self._cancelled -= 1
            else:
                action()
                if self._clock() >= until:
                    break
        until = self._clock() + SHARE_S
        for queue, one in due:
            if queue.get(one, math.inf) <= now:  # else it has left
                del queue[one]
                one.expired()
                if self._clock() >= until:
                    break

    def _next_at(self) -> float:
        # A cancelled entry is no reason to wake up.
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        firsts = [next(iter(queue.values())) for queue in self._queues.values() if queue]
        return min([*firsts, self._heap[0][0] if self._heap else math.inf])

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._cancelled = 0
