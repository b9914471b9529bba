"""Coroutines without an event loop: what a method of MCP waits for comes in by `McpServer`.

A method is one `async def`. Where it awaits a `Pending` that has no value yet, it stops until
`set` has given that; `Tasks.run` goes on with all that can. Times are relative until the host says
what time it is (`Tasks.time_passed`).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SIFTED = 256
"""Timers before the cancelled ones among them are dropped."""


class CancelledError(BaseException):
    """Raised where a cancelled task waits."""


class Pending(Generic[T]):
    """A value to come, for one or more tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self.is_set = False
        self._value: Any = None
        self._waiting: list[Task] = []
        self._tasks = tasks

    def set(self, value: T) -> None:
        """Give the value; the first one counts."""
        if not self.is_set:
            self.is_set, self._value = True, value
            self._tasks.ready.extend(self._waiting)
            self._waiting.clear()

    def __await__(self) -> Generator[Pending[T], None, T]:
        while not self.is_set:
            yield self
        value: T = self._value
        return value

    def wait(self, task: Task) -> None:
        self._waiting.append(task)


class Task:
    """A coroutine that is under way."""

    def __init__(self, coroutine: Coroutine[Pending[Any], None, None], tasks: Tasks) -> None:
        self.is_over = False
        self._coroutine = coroutine
        self._name: str = getattr(coroutine, "__qualname__", "a task")
        self._is_cancelled = False
        self._tasks = tasks

    def cancel(self) -> None:
        """Raise `CancelledError` where it waits, once it is its turn; idempotent."""
        if not self.is_over and not self._is_cancelled:
            self._is_cancelled = True
            self._tasks.ready.append(self)

    def step(self) -> None:
        """Run it to where it waits next; a fault ends it, and is a remark."""
        if self.is_over:
            return
        try:
            if self._is_cancelled:
                pending = self._coroutine.throw(CancelledError())
            else:
                pending = self._coroutine.send(None)
        except (StopIteration, CancelledError):
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one task only
            self.is_over = True
            self._tasks.remarks.append(f"{self._name} failed: {error!r}")
        else:
            pending.wait(self)


class TimerHandle:
    def __init__(self, delay_s: float, function: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.function: Callable[[], object] | None = function
        """None once it is not to be called any more."""

    def cancel(self) -> None:
        self.function = None


class Tasks:
    """The tasks and timers of one server."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        """For the host's log, which takes them away."""
        self.ready: deque[Task] = deque()
        self._numbers = itertools.count()
        self._begun: list[TimerHandle] = []
        """Since the last `time_passed`."""
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._sifted_at = SIFTED

    def spawn(self, coroutine: Coroutine[Pending[Any], None, None]) -> Task:
        """Begin a coroutine, at the next `run`."""
        task = Task(coroutine, self)
        self.ready.append(task)
        return task

    def run(self) -> None:
        """Go on with each task that can."""
        while self.ready:
            self.ready.popleft().step()

    def call_later(self, delay_s: float, function: Callable[[], object]) -> TimerHandle:
        timer = TimerHandle(delay_s, function)
        self._begun.append(timer)
        return timer

    async def sleep(self, delay_s: float) -> None:
        passed: Pending[None] = Pending(self)
        timer = self.call_later(delay_s, lambda: passed.set(None))
        try:
            await passed
        finally:
            timer.cancel()

    async def in_steps(self, work: Generator[None, None, T], most: int) -> T:
        """Do long work; the host has its turn after so many steps."""
        number = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            number += 1
            if number % most == 0:
                await self.sleep(0)

    def close(self) -> None:
        """Drop what has not ended: the timers hold it, and it holds them."""
        self.ready.clear()
        self._begun.clear()
        self._timers.clear()

    @property
    def deadline(self) -> float | None:
        """When `time_passed` is to be called next; minus infinity is at once."""
        if self._begun:
            return float("-inf")
        while self._timers and self._timers[0][2].function is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def time_passed(self, now: float) -> None:
        for timer in self._begun:
            heapq.heappush(self._timers, (now + timer.delay_s, next(self._numbers), timer))
        self._begun.clear()
        if len(self._timers) > self._sifted_at:
            self._timers = [one for one in self._timers if one[2].function is not None]
            heapq.heapify(self._timers)
            self._sifted_at = 2 * len(self._timers) + SIFTED
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.function is not None:
                timer.function()
        self.run()
