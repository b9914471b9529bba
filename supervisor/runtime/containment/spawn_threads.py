"""Threads in which processes are spawned, kept for as long as the daemon lives.

A child is in the list of the thread that forked it, and passes to the main thread's when that one
ends (kernel: find_new_reaper). The main thread's list is where orphans are looked for, again and
again (`containment.orphans`): it stays short, whatever the number of modules, as long as threads
that have forked do not end. A thread that waits for work costs no wake-up.

A program on a file system that does not answer holds up the thread that looks for it, or executes
it. A thread that takes long does not count among `AT_ONCE` any more: another takes its place.

    look  --SPAWN_S-->  given up: nothing is made of it any more
    make  --SPAWN_S-->  `late` ends the child that waits for its program; make sees to the rest
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from supervisor.runtime.begun_thread import begun_thread
from supervisor.runtime.blocking import BlockingWork

AT_ONCE = 8
"""Spawning happens in threads, since `exec` may wait for a slow disk; this many at a time."""

SLOW_S = 0.5
"""A thread that takes longer gives its place up."""

SPAWN_S = 10.0
"""What takes longer is given up."""

ENDED_S = 2.0
"""How long a child that was killed may take to be gone."""

Made = TypeVar("Made")
Work = Callable[[], None]


class SpawnTooSlowError(Exception):
    def __init__(self, held_by: str | None = None) -> None:
        """`held_by` says what holds the process that was to become it, if anything does."""
        why = "a disk or a network file system that it is on, or that is searched for it, does not"
        why += " answer"
        if held_by is not None:
            why = f"{held_by} the process that was to become it"
        super().__init__(f"its program was not there within {SPAWN_S:g} s: {why}")


class Late(threading.Event):
    """Set when the spawn was given up for which a thread works."""

    held_by: str | None = None
    """What holds the child that the thread waits for, if anything does (`reaping.why_held`)."""


class SpawnThreads:
    """At most `AT_ONCE` threads beside those that are held up; they end by `close`."""

    def __init__(self, blocking: BlockingWork) -> None:
        """Threads that are held up are named in `blocking`."""
        self._blocking = blocking
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._threads = 0
        self._held_up = 0
        # Those of a `Host` without a daemon are never closed.
        self.close = weakref.finalize(self, self._work.put, None)

    async def run(
        self,
        doing: str,
        make: Callable[..., Made],
        *,
        look: Callable[[], tuple[Any, ...]] = tuple,
        late: Callable[[int], None] = lambda _: None,
    ) -> Made:
        """Return what `make` makes of what `look` returns, in one of the threads.

        It is not cancelled; raises `SpawnTooSlowError`, and `OSError` if the system gives no
        further thread: it would give no further process either. `late` is told the thread (native
        id) that has been in `make` for too long; what that makes from then on, it has to undo.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._limiter.acquire_nowait()  # no turn of the loop where there is room
        except trio.WouldBlock:
            await self._limiter.acquire()
        job = _Job(make, look, partial(self._blocking.naming, doing))
        if self._limiter.borrowed_tokens + self._held_up > self._threads:
            self._add_thread()
        with self._counted(job):
            self._work.put(job.run)
            with trio.move_on_after(SLOW_S, shield=True):
                await job.done.wait()
        if not job.done.is_set():
            await _patience(job, late)
        return job.result()

    async def lend(self, work: Callable[[], Made], over: Callable[[], None]) -> Made:
        """Return what `work` returns, in one of the threads that there are.

        For when the system gives no further thread: it gives no further process then, and they have
        nothing to do. Cancelled, it is left to them; `over` is called once it is done. Raises
        `OSError` if there are none, or all have been closed.
        """
        if self._threads == 0 or not self.close.alive:
            over()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        def ended() -> None:
            self._go_on()
            over()

        job = _Job(work, tuple, contextlib.nullcontext)
        job.over = ended
        self._held_up += 1
        self._work.put(job.run)
        await job.done.wait()
        return job.result()

    def _add_thread(self) -> None:
        if begun_thread(partial(_serve, self._work), "stdiod-spawn") is None:
            self._limiter.release()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._threads += 1

    @contextlib.contextmanager
    def _counted(self, job: _Job[Made]) -> Iterator[None]:
        try:
            yield
        finally:
            self._limiter.release()
            if not job.done.is_set():
                self._held_up += 1
                job.over = self._go_on

    def _go_on(self) -> None:
        self._held_up -= 1


async def _patience(job: _Job[Made], late: Callable[[int], None]) -> None:
    with trio.move_on_after(SPAWN_S - SLOW_S, shield=True):
        await job.done.wait()
        return
    if not job.give_up():
        late(job.thread)
        with trio.move_on_after(ENDED_S, shield=True):
            await job.done.wait()
            return
    raise SpawnTooSlowError


class _Job(Generic[Made]):
    def __init__(
        self,
        make: Callable[..., Made],
        look: Callable[[], tuple[Any, ...]],
        naming: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.done = trio.Event()
        self.thread = 0
        self.over: Callable[[], None] = lambda: None
        """Called when it is done."""
        self._make = make
        self._look = look
        self._naming = naming
        self._token = trio.lowlevel.current_trio_token()
        self._made: list[Made] = []
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._given_up = self._begun = False

    def run(self) -> None:
        """Do it, in one of the threads, and wake the task that waits for it."""
        self.thread = threading.get_native_id()
        try:
            with self._naming():
                found = self._look()
                with self._lock:
                    self._begun = not self._given_up
                if self._begun:
                    self._made.append(self._make(*found))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._end)

    def give_up(self) -> bool:
        """Make nothing, unless that has begun; returns whether it has not."""
        with self._lock:
            self._given_up = True
            return not self._begun

    def result(self) -> Made:
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _end(self) -> None:
        self.done.set()
        self.over()


def _serve(work: queue.SimpleQueue[Work | None]) -> None:
    while (one := work.get()) is not None:
        one()
        del one  # what it made is its owner's, and not held until the next spawn
    work.put(None)  # for the next thread
