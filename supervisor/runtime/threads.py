"""Threads for all that may block: files on a disk that does not answer, a program on a dead mount.

Such a call keeps its thread for as long as it likes. So there are as many threads as there is work
at the same time, and the bounds are on the work:

    begin          of each kind at most `at_once` is at work; where modules differ, their names are
                   part of the kind, so that what is stuck for one is stuck for nobody else
    run            is waited for; a caller that is cancelled gives its thread up after a bound
    run_or_leave   is not cancelled, and given up after a bound
    look_at_each   the same from a thread or a program without an event loop, one after the other

What was given up before it began is not done. Else it stays at work, keeps its place among those of
its kind, and `status` shows it (`stuck`).

A thread that has done its work waits for more, which costs no wake-up, and ends if `KEPT` others
wait already. Threads that fork are others, and never end: a child is in the list of the thread that
forked it, and passes to the main thread's when that one ends (kernel: find_new_reaper). The main
thread's list is where orphans are looked for, again and again (`containment.orphans`): so it stays
short, whatever the number of modules. If the system gives no further thread (`ulimit -u`,
`pids.max`), work waits for those that there are; a spawn is refused, since it would get no process
either.
"""

from __future__ import annotations

import contextlib
import errno
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from protocol.problem import printable

if TYPE_CHECKING:
    # Imported where it is used: verbs look at files, too, and need no event loop for that.
    import trio

STUCK_S = 2.0
"""Work that takes longer is shown; most takes less than a millisecond."""

ABANDON_AFTER_S = 5.0
"""A cancelled caller waits so long for its thread, which is stuck after that."""

END_S = 5.0
"""How long the daemon's end waits for what does not answer: for all of it together."""

LEAST_S = 0.5
"""What each has of the end all the same, when others have used that up: it may answer."""

KEPT = 2
"""A thread that is free ends if so many others are, unless it forks."""

PATIENCE_S = 2.0
"""What a look may take; a disk that has to spin up, or a slow network, is given that time."""

LEAST_PATIENCE_S = 0.05
"""Each look that was left halves the patience with the others, down to this: a hundred files on one
dead mount do not take a hundred times as long."""

NEEDED_PATIENCE_S = 5.0
"""What a look may take that a daemon cannot start without."""

NO_ANSWER = "does not answer: a dead mount, or a pipe that nobody writes to"

T = TypeVar("T")

Look = tuple[str, Callable[[], T]]
"""Words for what it does, and the look itself."""


class NoAnswerError(OSError):
    """A needed place does not answer; the text names it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{printable(str(path))} {NO_ANSWER}")


class NoAnswer(Enum):
    UNANSWERED = "unanswered"


UNANSWERED: Final = NoAnswer.UNANSWERED


class Stuck(msgspec.Struct, frozen=True):
    """Work that has taken long and still runs."""

    doing: str
    for_s: float
    waiting: int
    """How much more of its kind waits for it."""


def begin_thread(run: Callable[[], None], name: str) -> threading.Thread | None:
    """Return a thread that calls a function; None if the system gives none, as it may at any time.

    A daemon thread: what hangs for good must not keep the process from ending.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Job(Generic[T]):
    """A function that a thread calls."""

    done: trio.Event
    """Of one that the event loop waits for."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.thread = 0
        """The native id of the thread that is at it; 0 before one is."""
        self.limiter: trio.CapacityLimiter | None = None
        """Of its kind, while it has a place there."""
        self._function = function
        self._claim = threading.Lock()
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        self.thread = threading.get_native_id()
        if not self.leave():
            return
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            # Without this frame, which would lead back to the error: nothing else frees a cycle.
            here = error.__traceback__
            self._error = error.with_traceback(here and here.tb_next)

    def leave(self) -> bool:
        """Forbid threads to begin it; False if it was begun, or left, before."""
        return self._claim.acquire(blocking=False)

    def result(self) -> T:
        """Return what the function returned, once; raises what it raised."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return self._results.pop()

    def leave_place(self) -> None:
        """Let another one of its kind begin."""
        if self.limiter is not None:
            self.limiter.release_on_behalf_of(self)
            self.limiter = None

    def end(self) -> None:
        self.leave_place()
        self.done.set()


class _Pool:
    """Threads that wait for work of one sort."""

    def __init__(self, kept: float) -> None:
        """A thread ends if `kept` others are free."""
        self._kept = kept
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0
        """The threads that wait for work, less the work that waits for a thread."""
        self.work: queue.SimpleQueue[_Given | None] = queue.SimpleQueue()

    def give(self, job: Job[Any], tell: Callable[[], object], *, may_wait: bool) -> None:
        """Have a thread do a job, and call `tell` at last.

        Raises `OSError` if there is none to be had; with `may_wait` only if there is none at all,
        else it waits for one.
        """
        with self._lock:
            if self._free <= 0:
                if begin_thread(partial(_serve, self.work), "stdiod-work") is not None:
                    self._count += 1
                    self._free += 1
                elif not (may_wait and self._count):
                    raise OSError(errno.EAGAIN, "no thread for it: can't start new thread")
            self._free -= 1
        self.work.put((self, job, tell))

    def stays(self) -> bool:
        """Whether a thread of these, which has done its work, waits for more."""
        with self._lock:
            stays = self._free < self._kept
            if stays:
                self._free += 1
            else:
                self._count -= 1
        return stays


class Threads:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin()
        # A kind without work has no limiter.
        self._limiters: weakref.WeakValueDictionary[str, trio.CapacityLimiter]
        self._limiters = weakref.WeakValueDictionary()
        self._at_work: dict[object, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._unanswered: set[str] = set()
        """The looks that were left, and that no thread has come back from."""
        self._ends_at: float | None = None

    def _begin(self) -> None:
        self._pool, self._forking = _Pool(KEPT), _Pool(math.inf)
        self._end = weakref.finalize(self, _end, self._pool.work, self._forking.work)

    def close(self) -> None:
        """End the threads, once they have done what there is; what comes then has new ones."""
        self._end()
        self._begin()

    def begin_at_once(self, count: int) -> None:
        """Begin so many threads, of which `KEPT` stay; raises `OSError` if there are too few."""
        may_end = threading.Event()
        try:
            for _ in range(count):
                self._pool.give(Job(may_end.wait), bool, may_wait=False)
        finally:
            may_end.set()

    # For tasks.

    async def begin(
        self,
        doing: str,
        function: Callable[[], T],
        *,
        at_once: int = 1,
        kind: str | None = None,
        forks: bool = False,
    ) -> Job[T]:
        """Have a thread call `function`, as soon as fewer than `at_once` of its kind are at work.

        `doing` says what it does, and is its kind unless another one is given; `forks`: it makes
        processes. Raises `OSError` if there is no thread.
        """
        import trio  # noqa: PLC0415 - see the top

        await trio.lowlevel.checkpoint_if_cancelled()
        job = Job(partial(self._named, doing, function))
        job.done = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def tell() -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(job.end)

        kind = kind or doing
        limiter = self._limiters.get(kind)
        if limiter is None:
            limiter = self._limiters[kind] = trio.CapacityLimiter(at_once)
        try:
            limiter.acquire_on_behalf_of_nowait(job)  # no turn of the loop where there is room
        except trio.WouldBlock:
            await limiter.acquire_on_behalf_of(job)
        job.limiter = limiter
        try:
            (self._forking if forks else self._pool).give(job, tell, may_wait=not forks)
        except OSError:
            job.leave_place()
            raise
        return job

    async def run(
        self,
        doing: str,
        function: Callable[[], T],
        *,
        at_once: int = 1,
        abandon_after_s: float = ABANDON_AFTER_S,
    ) -> T:
        """Return what `function` returns, in a thread; see `begin`.

        If it is cancelled, the thread is waited for so long.
        """
        import trio  # noqa: PLC0415 - see the top

        job = await self.begin(doing, function, at_once=at_once)
        try:
            await job.done.wait()
        except trio.Cancelled:
            if not job.leave():
                if self._ends_at is not None:
                    abandon_after_s = min(abandon_after_s, self.end_left_s())
                with trio.move_on_after(abandon_after_s, shield=True):
                    await job.done.wait()
            raise
        return job.result()

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

        `at_work` is not empty for as long as it may be at work.
        """
        import trio  # noqa: PLC0415 - see the top

        key, job = object(), None

        def work() -> T:
            try:
                return function()
            finally:
                at_work.discard(key)

        at_work.add(key)
        try:
            with trio.move_on_after(leave_after_s, shield=True):
                job = await self.begin(doing, work, at_once=at_once)
                await job.done.wait()
                return job.result()
        finally:
            if job is None or job.leave():
                at_work.discard(key)
        return None

    # For threads, and programs without an event loop.

    def look_at_each(self, looks: Iterable[Look[T]]) -> list[T | NoAnswer]:
        """Return what comes of looks, in their order; raises what the first one raises that does.

        A look that takes longer than `PATIENCE_S` is left. Until it answers nobody looks there.
        """
        looks, patience_s = tuple(looks), PATIENCE_S
        seen = list[T | NoAnswer]()
        while len(seen) < len(looks):
            seen += self._look_on(looks[len(seen) :], patience_s)
            patience_s = max(patience_s / 2, LEAST_PATIENCE_S)
        return seen

    def look_at(self, path: Path, look: Callable[[], T]) -> T:
        """Return what comes of a look at a path that there is no way without.

        Raises `NoAnswerError`, and what the look raises.
        """
        (seen,) = self._look_on([(f"looking at {path}", look)], NEEDED_PATIENCE_S)
        if isinstance(seen, NoAnswer):
            raise NoAnswerError(path)
        return seen

    def _look_on(self, looks: Sequence[Look[T]], patience_s: float) -> list[T | NoAnswer]:
        """Return what comes of looks up to the first one that takes too long, and of that one.

        One thread does them all: to hand over each costs fifty times as much as most looks.
        """
        seen, over, left = list[T | NoAnswer](), threading.Event(), set[str]()

        def run() -> None:
            for doing, look in looks:
                one: T | NoAnswer = UNANSWERED
                if doing not in self._unanswered:
                    one = self._named(doing, look)
                with self._lock:  # either it is left, or it goes on
                    if left:
                        return
                    seen.append(one)

        def tell() -> None:
            with self._lock:
                over.set()
                self._unanswered -= left

        job = Job(run)
        try:
            self._pool.give(job, tell, may_wait=False)
        except OSError:
            run()  # In this thread, however long that takes: it is never the event loop's.
            return seen
        count = 0
        while not over.wait(patience_s):
            with self._lock:
                if not over.is_set() and len(seen) == count:
                    left.add(looks[count][0])
                    self._unanswered |= left
                    return [*seen, UNANSWERED]
                count = len(seen)
        job.result()
        return seen

    # What `status` shows, and the bound of the daemon's end.

    @contextlib.contextmanager
    def naming(self, doing: str) -> Iterator[None]:
        """Show the block as stuck if it takes long; for any thread."""
        key = object()
        self._at_work[key] = doing, self._clock()
        try:
            yield
        finally:
            del self._at_work[key]

    def _named(self, doing: str, function: Callable[[], T]) -> T:
        with self.naming(doing):
            return function()

    def stuck(self) -> list[Stuck]:
        """Return the work that has taken long, the longest first."""
        now = self._clock()
        # Copied in one step: threads add and remove meanwhile.
        found = sorted(self._at_work.values(), key=lambda one: one[1])
        return [
            Stuck(doing, round(now - since, 1), self._waiting(doing))
            for doing, since in found
            if now - since > STUCK_S
        ]

    def _waiting(self, doing: str) -> int:
        limiter = self._limiters.get(doing)
        return 0 if limiter is None else limiter.statistics().tasks_waiting

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


_Given = tuple[_Pool, Job[Any], Callable[[], object]]


def _serve(work: queue.SimpleQueue[_Given | None]) -> None:
    # Between two jobs it has nothing of `Threads`, so that those of a `Host` without a daemon are
    # collected, which ends the threads.
    stays = True
    while stays and (given := work.get()) is not None:
        pool, job, tell = given
        job.run()
        stays = pool.stays()
        tell()
        del given, pool, job, tell  # what it made is its owner's, and not held until the next
    if stays:
        work.put(None)  # for the next thread


def _end(*works: queue.SimpleQueue[_Given | None]) -> None:
    for work in works:
        work.put(None)
