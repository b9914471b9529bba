"""One queue for all deadlines, served by one task.

A cancel scope per request costs as much as the rest of a small request; a heap entry does not.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

import trio

from supervisor.runtime.serving import SERVING

COMPACT_FROM = 64
"""Below this many entries, cancelled ones are not worth sweeping out."""


class Timer:
    """A deadline that was set; `cancel` is idempotent."""

    __slots__ = ("_queue", "action")

    def __init__(self, queue: Deadlines, action: Callable[[], None]) -> None:
        self._queue = queue
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Make sure the action will not run; it is let go of at once."""
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

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._earlier = trio.Event()

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Have `action` called `delay_s` seconds from now (monotonic)."""
        return self.at(trio.current_time() + delay_s, action)

    def at(self, time: float, action: Callable[[], None]) -> Timer:
        """Have `action` called at a time of trio's clock; those of one time make one wake-up."""
        timer = Timer(self, action)
        entry = (time, next(self._order), timer)
        heapq.heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._earlier.set()
        return timer

    async def run(self) -> None:
        """Serve the queue until cancelled."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self._next_at()):
                await self._earlier.wait()
            now = trio.current_time()
            SERVING.begin("the daemon", "timers")
            while self._heap and self._heap[0][0] <= now:
                _, _, timer = heapq.heappop(self._heap)
                action, timer.action = timer.action, None
                if action is None:
                    self._cancelled -= 1
                else:
                    action()
            SERVING.end()

    def _next_at(self) -> float:
        # A cancelled entry is no reason to wake up.
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else math.inf

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._cancelled = 0
