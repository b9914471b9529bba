"""Spawn processes in threads, and end those that are the daemon's own.

`fork` and `exec` take as long as the disk does: a program on a file system that does not answer
holds up the thread that looks for it, or executes it. It does not count among `AT_ONCE` any more
once that has taken `SLOW_S`. After `SPAWN_S` the spawn is given up (`Late`): the child that waits
for its program is killed, and what the thread has made when it goes on, it ends itself.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
import trio

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import tracer_of, why_held
from supervisor.runtime.threads import Threads

AT_ONCE = 8
"""So many are spawned at a time."""

SLOW_S = 0.5
"""A spawn that takes longer gives its place up."""

SPAWN_S = 10.0
"""A spawn that takes longer is given up."""

ENDED_S = 2.0
"""How long a child that was killed may take to be gone."""

OWN_GONE_WITHIN_S = 2.0
"""How long a process of the daemon's own may take to be gone, once it is killed."""

LOOK_S = 0.001
"""Between two checks whether it is gone."""

Made = TypeVar("Made")

log = structlog.get_logger()


class SpawnTooSlowError(OSError):
    def __init__(self, held_by: str | None = None) -> None:
        """`held_by` says what holds the process that was to become it, if anything does."""
        why = "a disk or a network file system that it is on, or that is searched for it, does not"
        why += " answer"
        if held_by is not None:
            why = f"{held_by} the process that was to become it"
        words = f"its program was not there within {SPAWN_S:g} s: {why}"
        super().__init__(errno.ETIMEDOUT, words)


class Late(threading.Event):
    """Set if a spawn was given up for which a thread works; decided once, by the first to say.

    the thread    delivered() -> True: the result is taken; False: it has to end what it made
    the loop      give_up()   -> True: nobody takes it;     False: it comes now
    """

    held_by: str | None = None
    """Why the child that the thread waits for does not end, if it is known (`reaping.why_held`)."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._was_delivered = False

    def give_up(self) -> bool:
        with self._lock:
            if not self._was_delivered:
                self.set()
        return self.is_set()

    def delivered(self) -> bool:
        with self._lock:
            self._was_delivered = not self.is_set()
        return self._was_delivered

    def check(self) -> None:
        """Raise `SpawnTooSlowError` if it is set."""
        if self.is_set():
            raise SpawnTooSlowError(self.held_by)


class Spawner:
    def __init__(self, threads: Threads, orphans: Orphans) -> None:
        self._threads = threads
        self._orphans = orphans

    async def run(self, doing: str, make: Callable[[Late], Made]) -> Made:
        """Return what `make` returns, in a thread that does not end.

        `make` asks `Late` whether what it has made was `delivered`, as soon as it is held; if not,
        it has to end it, and raise that. It is not cancelled; raises `SpawnTooSlowError`, and
        `OSError` if there is no thread.
        """
        late = Late()

        def work() -> Made:
            try:
                return make(late)
            finally:
                late.delivered()  # what it raises, too

        job = await self._threads.begin(doing, work, kind="spawning", at_once=AT_ONCE, forks=True)
        with trio.move_on_after(SLOW_S, shield=True):
            await job.done.wait()
            return job.result()
        job.leave_place()
        with trio.move_on_after(SPAWN_S - SLOW_S, shield=True):
            await job.done.wait()
            return job.result()
        if job.leave():  # no thread has begun it
            raise SpawnTooSlowError
        patience_s = math.inf  # nothing that is done after it was delivered may block
        if late.give_up():
            patience_s = ENDED_S if self._kill_untold(job.thread, late) else 0.0
        with trio.move_on_after(patience_s, shield=True):
            await job.done.wait()
            return job.result()
        raise SpawnTooSlowError

    def _kill_untold(self, thread: int, late: Late) -> bool:
        """Kill a child that a thread has just forked, and that waits for its program, if any does.

        Only that thread knows of the child.
        """
        untold = self._orphans.untold(thread)
        late.held_by = next(filter(None, (why_held(one.pid) for one in untold)), None)
        for one in untold:
            procfs.send(one, signal.SIGKILL)
        return bool(untold)

    def abandon(self, pid: int) -> None:
        """Kill and reap a child that has no owner; for a thread that spawns."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # it may not lead a group yet
        until = time.monotonic() + ENDED_S
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None:
                if time.monotonic() > until:
                    self._leave_unreapable(pid, procfs.stat(pid), "a child cannot be reaped")
                    return
                time.sleep(LOOK_S)

    def _leave_unreapable(self, pid: int, process: Stat | None, words: str) -> None:
        """Log the process, and leave it to `Orphans`, which reaps it once its tracer lets go."""
        tracer = tracer_of(pid)
        log.error(words, pid=pid, traced_by=None if tracer is None else tracer.words)
        if process is not None:
            self._orphans.leave(process)

    # The daemon's own: no module's, and no orphan.

    async def start_own(
        self, doing: str, start: Callable[[], subprocess.Popen[bytes]]
    ) -> tuple[subprocess.Popen[bytes], Stat]:
        """Start a process of the daemon's own; see `run`.

        It has to see to it itself that it ends with the daemon. Raises `OSError`.
        """

        def make(late: Late) -> tuple[subprocess.Popen[bytes], Stat]:
            with self._orphans.spawning():
                popen = start()
                process = procfs.stat(popen.pid)
                if process is None:
                    popen.kill()
                    raise OSError("/proc does not show the processes of this machine")
                self._orphans.spawned(process)
                self._orphans.brands.remove(popen.pid)  # of one spawned at the same moment
            if not late.delivered():
                popen.returncode = 0
                self.abandon(popen.pid)
                self._orphans.reaped(process)
                late.check()
            return popen, process

        return await self.run(doing, make)

    async def end_own(
        self,
        popen: subprocess.Popen[bytes],
        process: Stat,
        patience_s: float,
        *,
        name: str = "a process of the daemon",
    ) -> None:
        """Reap a process of the daemon's own; it is killed unless it ends within `patience_s`.

        Not cancelled.
        """
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:  # no descriptor is left
            popen.kill()
            with trio.move_on_after(OWN_GONE_WITHIN_S, shield=True):
                while popen.poll() is None:  # noqa: ASYNC110 - nothing else tells
                    await trio.sleep(LOOK_S)
        else:
            try:
                with trio.move_on_after(patience_s, shield=True):
                    await trio.lowlevel.wait_readable(pidfd)
                popen.kill()
                with trio.move_on_after(OWN_GONE_WITHIN_S, shield=True):
                    await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)
        popen.kill()
        if popen.poll() is not None:
            self._orphans.reaped(process)
            return
        popen.returncode = -signal.SIGKILL  # it is not for `Popen` to reap any more
        self._leave_unreapable(process.pid, process, f"{name} cannot be reaped")

    def leave_own(self, popen: subprocess.Popen[bytes], process: Stat) -> None:
        """Kill a process of the daemon's own, and have it reaped with the orphans."""
        popen.kill()
        popen.returncode = -signal.SIGKILL
        self._orphans.leave(process)
