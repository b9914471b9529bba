"""Threads in which processes are spawned, kept for as long as the daemon lives.

A child is in the list of the thread that forked it, and passes to the main thread's when that one
ends (kernel: find_new_reaper). The main thread's list is where orphans are looked for, again and
again (`containment.orphans`): it stays short, whatever the number of modules, as long as threads
that have forked do not end. A thread that waits for work costs no wake-up.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import trio

AT_ONCE = 8
"""Spawning happens in threads, since `exec` may wait for a slow disk; this many at a time."""

Made = TypeVar("Made")
Work = Callable[[], None]


class SpawnThreads:
    """At most `AT_ONCE` threads, made when they are needed; they end by `close`."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._threads = 0
        # Nobody closes what a `Host` without a daemon has.
        self.close = weakref.finalize(self, self._work.put, None)

    async def run(self, function: Callable[[], Made]) -> Made:
        """Run it in one of the threads; once begun, it is not abandoned when cancelled."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._limiter.acquire_nowait()  # no turn of the loop where nobody has to wait
        except trio.WouldBlock:
            await self._limiter.acquire()
        try:
            if self._limiter.borrowed_tokens > self._threads:
                self._threads += 1
                serve = partial(_serve, self._work)
                threading.Thread(target=serve, name="stdiod-spawn", daemon=True).start()
            job = _Job(function)
            self._work.put(job.run)
            await trio.lowlevel.wait_task_rescheduled(_go_on)
            return job.result()
        finally:
            self._limiter.release()


class _Job(Generic[Made]):
    """Something to do, and what came of it."""

    def __init__(self, function: Callable[[], Made]) -> None:
        self._function = function
        self._token = trio.lowlevel.current_trio_token()
        self._task = trio.lowlevel.current_task()
        self._made: list[Made] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, in one of the threads, and have the task go on that waits for it."""
        try:
            self._made.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(trio.lowlevel.reschedule, self._task)

    def result(self) -> Made:
        """Return what was made, or raise what was raised."""
        if self._error is not None:
            raise self._error
        return self._made[0]


def _go_on(raise_cancel: object) -> trio.lowlevel.Abort:
    del raise_cancel  # a cancel waits for what has begun
    return trio.lowlevel.Abort.FAILED


def _serve(work: queue.SimpleQueue[Work | None]) -> None:
    while (one := work.get()) is not None:
        one()
        del one  # what it made is its owner's, and not held until the next spawn
    work.put(None)  # for the next thread
