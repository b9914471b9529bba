"""Threads for work that may block: each kind within a bound of its own, all of it named.

A file system that does not answer (a dead mount, a stalled disk) keeps every thread that looks at
it, for as long as it likes. So no two kinds of work wait for each other's threads, and where
modules differ, their names are part of the kind: what is stuck for one is stuck for nobody else.
What has been at work for a while is shown by `status`.

    await blocking.run("reading the descriptors", read)          waits only for another such reading
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
import trio

if TYPE_CHECKING:
    from supervisor.runtime.containment.spawn_threads import SpawnThreads

STUCK_S = 2.0
"""Work that takes longer is shown; most takes less than a millisecond."""

ABANDON_AFTER_S = 5.0
"""A cancelled caller waits so long for its thread, which is stuck after that."""

END_S = 5.0
"""How long the daemon's end waits for what does not answer: for all of it together."""

LEAST_S = 0.5
"""What each has of the end all the same, when others have used that up: it may answer."""

LOOK_S = 0.001
"""Between two looks whether it is done."""

T = TypeVar("T")


class Stuck(msgspec.Struct, frozen=True):
    """Work that has taken long and still runs."""

    doing: str
    for_s: float
    waiting: int
    """How much more of its kind waits for it."""


class BlockingWork:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A kind without work has no limiter.
        self._limiters: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
        self._at_work: dict[object, tuple[str, float]] = {}
        self.spare: SpawnThreads | None = None
        """Does the work if the system gives no further thread."""
        self._ends_at: float | None = None

    def begin_end(self, waited_s: float = 0.0) -> None:
        """Let the daemon's end wait for no thread longer than `END_S` from now, or `LEAST_S`.

        It has waited for `waited_s` of that already.
        """
        if self._ends_at is None:
            self._ends_at = self._clock() + END_S - waited_s

    def end_left_s(self) -> float:
        """Return how long the daemon's end may wait for the next thing (s); begins the end."""
        self.begin_end()
        assert self._ends_at is not None  # noqa: S101 - as of now
        return max(self._ends_at - self._clock(), LEAST_S)

    async def run(
        self,
        doing: str,
        function: Callable[[], T],
        *,
        at_once: int = 1,
        abandon_after_s: float = ABANDON_AFTER_S,
        in_any_case: bool = False,
    ) -> T:
        """Return what `function` returns, in a thread; `doing` says what it does, and is its kind.

        There are at most `at_once` threads of a kind. If it is cancelled, the thread is waited for
        so long; it keeps its place until it is done. If the system gives no further thread, as when
        a module has begun as many as there may be, `spare` does it, or `OSError` is raised; what
        has to be done `in_any_case`, as killing that module, is done here then.
        """
        limiter = self._limiters.get(doing)
        if limiter is None:
            limiter = self._limiters[doing] = trio.CapacityLimiter(at_once)

        key = object()
        gone = begun = False

        def work() -> T | None:
            nonlocal begun
            begun = True
            with self.naming(doing, key):
                return None if gone else function()

        try:
            try:
                done = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
            except RuntimeError as error:
                if begun:
                    raise
                if in_any_case:
                    return function()
                if self.spare is None:
                    raise OSError(errno.EAGAIN, f"no thread for {doing}: {error}") from None
                await limiter.acquire_on_behalf_of(key)
                done = await self.spare.lend(work, partial(limiter.release_on_behalf_of, key))
        except trio.Cancelled:
            # In this order: either it sees that it was left, or it is seen at work.
            gone = True
            if self._ends_at is not None:
                abandon_after_s = min(abandon_after_s, self.end_left_s())
            with trio.move_on_after(abandon_after_s, shield=True):
                while key in self._at_work:  # noqa: ASYNC110 - rare, and costs no call a wake-up
                    await trio.sleep(LOOK_S)
            raise
        return cast("T", done)

    async def run_or_leave(
        self,
        doing: str,
        function: Callable[[], T],
        at_work: set[object],
        *,
        leave_after_s: float,
        at_once: int = 1,
    ) -> T | None:
        """Return what `function` returns, or None if it takes too long; it is not cancelled.

        `at_work` is not empty for as long as the thread that was left is at it. It is done in any
        case, see `run`, unless it had to wait for too long for others of its kind.
        """
        key = object()
        left = False

        def work() -> T | None:
            # In this order: either it sees that it was left, or it is seen at work.
            at_work.add(key)
            try:
                return None if left else function()
            finally:
                at_work.discard(key)

        with trio.move_on_after(leave_after_s, shield=True):
            return await self.run(doing, work, at_once=at_once, abandon_after_s=0, in_any_case=True)
        left = True
        return None

    @contextlib.contextmanager
    def naming(self, doing: str, key: object = None) -> Iterator[None]:
        """Show the block as stuck if it takes long; for any thread."""
        key = key or object()
        self._at_work[key] = doing, self._clock()
        try:
            yield
        finally:
            del self._at_work[key]

    def stuck(self) -> list[Stuck]:
        """Return the work that has taken long, the longest first."""
        now = self._clock()
        # A copy first, in one step: threads add and remove meanwhile.
        found = list(self._at_work.values())
        found.sort(key=lambda one: one[1])
        return [
            Stuck(doing, round(now - since, 1), self._waiting(doing))
            for doing, since in found
            if now - since > STUCK_S
        ]

    def _waiting(self, doing: str) -> int:
        limiter = self._limiters.get(doing)
        return 0 if limiter is None else limiter.statistics().tasks_waiting
