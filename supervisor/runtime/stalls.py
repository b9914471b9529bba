"""How long the event loop did not come round, and which party was served then.

What counts is a turn's time on the wall, less what was not our own doing: the time in which the
thread could have run and was not let (`/proc/self/task/TID/schedstat`, its run delay), and that in
which the daemon was stopped. So a busy machine makes no stall, and a wait in the midst of a turn,
which takes no CPU time, does.

    turn of the loop: wall time = CPU time + waits + run delay + stopped

One kind of wait is not our doing either: another thread has the interpreter's lock, and is not let
run. So of the waits, what another thread was kept from running meanwhile does not count; but no
more of them than can have been for that lock. Who waits for it wakes up every switch interval
(`take_gil` in ceval_gil.c: 5 ms), so the thread's own count of times that it was let run bounds it:
a sleep, or a wait for a disk, is one such time, however long it lasts. What a thread was kept from
that has ended meanwhile nobody can tell any more; if there was one, which the CPU time of the whole
process shows, all waits that can have been for the lock are taken for that.

A stop is noticed when the loop wakes too late from a sleep, in which nothing of ours can hold it
up, or when a SIGCONT came in a turn that was long; only once for each. A turn in which one came is
no stall, however short the stop was. The kernel may give the signal to another thread, which on a
busy machine tells of it a little later; the stall is taken back then.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import structlog

from supervisor.runtime.turns import NOBODY, SERVING, THE_DAEMON, Serving

LONG_S = 0.01
"""A shorter turn is not looked at."""

BASELINE_S = 0.02
"""How old the last look at the run delay may be when a turn begins. What was waited for between
that look and the turn is taken for the turn's: so much may a stall be told too short."""

STOPPED_S = 1.0
"""Nothing but a stop of the daemon makes it wake up so late."""

HEARD_WITHIN_S = 1.0
"""So long after a stop the SIGCONT that ended it may be heard of."""

MOST_THREADS = 32
"""So many of the other threads are looked at: what one beyond them was kept from counts as ours."""

UNKNOWN_S = 0.0005
"""With less CPU time than that between two looks, no other thread has ended meanwhile."""

log = structlog.get_logger()


class Stall(msgspec.Struct, frozen=True):
    """A turn that took long."""

    ms: float
    """Of our own doing."""
    culprit: str | None
    """The module's instance or the client that was served for most of it, if one was."""
    doing: str | None
    ts: float
    """Unix time (s)."""


class Doubtful(NamedTuple):
    """A stall that may still turn out to be a stop."""

    stall: Stall
    own_s: float
    former: Stall | None
    """The longest one before."""
    until: float


class Suspensions(msgspec.Struct):
    count: int = 0
    total_s: float = 0.0
    last_s: float | None = None
    last_ts: float | None = None


class Times(NamedTuple):
    """What became of a thread since it began."""

    ran_s: float = 0.0
    delayed_s: float = 0.0
    """It could have run and was not let."""
    slices: float = 0.0
    """How many times it was let run."""


class Threads:
    """What the kernel lets the threads of this process do; nothing where that is not known."""

    def __init__(self) -> None:
        """Look from the thread of the event loop; without `begun`, know nothing."""
        self._file = -1
        self._seen: dict[int, tuple[float | None, Times]] = {}
        """The other threads, with their CPU clocks at that time."""

    @classmethod
    def begun(cls) -> Threads:
        made = cls()
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO
            made._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return made

    def own(self) -> Times:
        """Return the times of the thread that began to look, which asks."""
        if self._file < 0:
            return Times()
        # The file may be a tick of the scheduler behind.
        return _times(os.pread(self._file, 100, 0))._replace(ran_s=time.thread_time())

    def all_s(self) -> float:
        """Return the CPU time of all threads, those that have ended among them."""
        return time.process_time()

    def others(self) -> dict[int, Times]:
        """Return those of other threads that Python knows, by their numbers in the kernel.

        No more than `MOST_THREADS`, the oldest: each costs a file, and many wait for work. Of a
        thread whose CPU clock stands still nothing has changed, and that is asked first: to open,
        read and close a file gives the interpreter's lock away three times, and to get it back
        from a thread that does the same takes 0.1 ms each time.
        """
        found: dict[int, tuple[float | None, Times]] = {}
        if self._file >= 0:
            main = threading.main_thread()
            others = [thread for thread in threading.enumerate() if thread is not main]
            for thread in others:
                number = thread.native_id
                # Those that have just ended leave room: fewer are all that there are.
                if number is not None and len(found) < MOST_THREADS:
                    with contextlib.suppress(OSError):  # it has just ended
                        found[number] = self._look_at(number)
        self._seen = found
        return {number: times for number, (_, times) in found.items()}

    def _look_at(self, thread: int) -> tuple[float | None, Times]:
        clock = _cpu_clock(thread)
        seen = self._seen.get(thread)
        if clock is not None and seen is not None and seen[0] == clock:
            return seen
        times = _times(_read(f"/proc/self/task/{thread}/schedstat"))
        return clock, times if clock is None else times._replace(ran_s=clock)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _cpu_clock(thread: int) -> float | None:
    """Return a thread's CPU time (s), without a system call that gives the lock away.

    The clock's number is made of the thread's (MAKE_THREAD_CPUCLOCK in posix-timers_types.h): that
    of another process's thread, or of none, is refused.
    """
    try:
        return time.clock_gettime(~thread << 3 | 6)
    except OSError:
        return None


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 100)
    finally:
        os.close(file)


def _times(schedstat: bytes) -> Times:
    ran, delayed, slices = schedstat.split()
    return Times(int(ran) / 1e9, int(delayed) / 1e9, int(slices))


class Stalls:
    def __init__(
        self,
        *,
        threads: Threads | None = None,
        continued: Callable[[], bool] = lambda: False,
        serving: Serving = SERVING,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`continued` tells whether a SIGCONT has come since it was last asked."""
        self.longest: Stall | None = None
        self.suspensions = Suspensions()
        self._threads = threads or Threads()
        self._continued = continued
        self._serving = serving
        self._wall_clock = wall_clock
        self._look()
        self._looked_at = 0.0
        self._doubtful: Doubtful | None = None
        self._starting = False

    def begin(self) -> None:
        """Forget the past, and leave out the current turn: a start is no stall."""
        self.longest = None
        self._starting = True

    def turn_ended(self, began: float, ended: float) -> None:
        took_s = ended - began
        if self._starting:
            self._starting = False
            self._look()
            self._looked_at = ended
        elif took_s > LONG_S:
            self._long_turn(took_s, ended)
            self._looked_at = ended
        elif ended - self._looked_at > BASELINE_S:
            self._look()
            if self._continued():  # what it was about is over
                self._take_back(ended)
            self._looked_at = ended
        self._serving.turn_ended()

    def ended(self) -> None:
        self._serving.turns_ended()

    def woke_late(self, late_s: float, at: float) -> None:
        """The loop slept for `late_s` longer than it was to, until `at`."""
        continued, before = self._continued(), self._own
        self._look()
        stopped_s = late_s - (self._own.delayed_s - before.delayed_s)
        if stopped_s > STOPPED_S:  # this is what the signal was about
            self._stopped(stopped_s)
        elif continued and stopped_s <= LONG_S:  # or about one before, that was told as a stall
            self._take_back(at)

    def status(self) -> dict[str, Any]:
        return {
            "longest_stall": msgspec.to_builtins(self.longest),
            "suspensions": msgspec.to_builtins(self.suspensions),
        }

    def _long_turn(self, took_s: float, ended: float) -> None:
        culprit, doing = self._serving.culprit(took_s)
        own_s, busiest = self._of_our_own(took_s)
        if culprit == NOBODY and busiest:
            culprit, doing = THE_DAEMON, f"waiting for its thread {busiest}"
        if self._continued():  # it is not known how much of the turn it was stopped for
            if not self._take_back(ended) and own_s > STOPPED_S:
                self._stopped(own_s)
            return
        if own_s > LONG_S and (self.longest is None or own_s * 1000 > self.longest.ms):
            ms, ts = round(own_s * 1000, 1), round(self._wall_clock(), 3)
            stall = Stall(ms, culprit or None, doing or None, ts)
            self._doubtful = Doubtful(stall, own_s, self.longest, ended + HEARD_WITHIN_S)
            self.longest = stall

    def _take_back(self, now: float) -> bool:
        """Take the last stall for the stop that a SIGCONT tells of, if it can be that."""
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is None or now > doubtful.until or self.longest is not doubtful.stall:
            return False
        self.longest = doubtful.former
        if doubtful.own_s > STOPPED_S:
            self._stopped(doubtful.own_s)
        return True

    def _of_our_own(self, took_s: float) -> tuple[float, str]:
        """Return how much of a turn was our doing; and the thread that did most of it, if any."""
        before, others_before, all_before_s = self._own, self._others, self._all_s
        self._look()
        ran_s, delayed_s, slices = (now - then for now, then in zip(self._own, before, strict=True))
        own_s = max(took_s - delayed_s, 0.0)
        # One that was not looked at before has begun meanwhile, unless there were too many.
        began = None if len(others_before) >= MOST_THREADS else Times()
        since = {
            number: Times(*(now - then for now, then in zip(times, former, strict=True)))
            for number, times in self._others.items()
            for former in [others_before.get(number, began)]
            if former is not None
        }
        known_s = ran_s + sum(one.ran_s for one in since.values())
        if began is not None and self._all_s - all_before_s - known_s > UNKNOWN_S:
            kept_s = math.inf
        else:
            kept_s = max((one.delayed_s for one in since.values()), default=0.0)
        for_the_lock_s = slices * sys.getswitchinterval()
        own_s -= min(kept_s, for_the_lock_s, max(own_s - ran_s, 0.0))
        busiest = max(since, key=lambda number: since[number].ran_s, default=None)
        if busiest is None or since[busiest].ran_s < own_s / 2:
            return own_s, ""
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        return own_s, names.get(busiest, "")

    def _look(self) -> None:
        self._all_s = self._threads.all_s()
        self._own, self._others = self._threads.own(), self._threads.others()

    def _stopped(self, seconds: float) -> None:
        seconds = round(seconds, 3)
        self.suspensions.count += 1
        self.suspensions.total_s = round(self.suspensions.total_s + seconds, 3)
        self.suspensions.last_s = seconds
        self.suspensions.last_ts = round(self._wall_clock(), 3)
        words = "no timer has gone on meanwhile, and nothing is replaced for it"
        log.warning("the daemon was suspended", seconds=seconds, words=words)
