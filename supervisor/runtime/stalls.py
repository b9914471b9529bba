"""How long the event loop did not come round, and which party was served then.

What counts is a pass's time on the wall, less the time in which its thread could have run and was
not let (`/proc/thread-self/schedstat`, its run delay), and that in which the daemon was stopped. So
a busy machine makes no stall, and a wait in the midst of a pass, which takes no CPU time, does. A
wait for the interpreter's lock while another thread has it counts, too.

    pass of the loop: wall time = CPU time + waits + run delay + stopped

A stop is noticed when the loop wakes too late from a sleep, in which nothing of ours can hold it
up, or when a SIGCONT came in a pass that was long; only once for each. A pass in which one came is
no stall, however short the stop was. The kernel may give the signal to another thread, which on a
busy machine tells of it a little later; the stall is taken back then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import structlog

from supervisor.runtime.turns import LOOP, LoopTime

LONG_S = 0.01
"""A shorter pass is not looked at."""

BASELINE_S = 0.02
"""How old the last look at the run delay may be when a pass begins. What was waited for between
that look and the pass is taken for the pass's: so much may a stall be told too short."""

STOPPED_S = 1.0
"""Nothing but a stop of the daemon makes it wake up so late."""

HEARD_WITHIN_S = 1.0
"""So long after a stop the SIGCONT that ended it may be heard of."""

log = structlog.get_logger()


class Stall(msgspec.Struct, frozen=True):
    """A pass of the event loop that took long."""

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


class RunDelay:
    """For how long this thread could have run and was not let; 0 where the kernel does not say."""

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> float:
        """Return the delay since the thread began (s)."""
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9 if self._file >= 0 else 0.0

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class Stalls:
    def __init__(
        self,
        *,
        run_delay: Callable[[], float] = lambda: 0.0,
        continued: Callable[[], bool] = lambda: False,
        loop: LoopTime = LOOP,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`run_delay` is asked in the thread of the event loop.

        `continued` tells whether a SIGCONT has come since it was last asked.
        """
        self.longest: Stall | None = None
        self.suspensions = Suspensions()
        self._run_delay = run_delay
        self._continued = continued
        self._loop = loop
        self._wall_clock = wall_clock
        self._delayed_s = run_delay()
        self._looked_at = 0.0
        self._doubtful: Doubtful | None = None
        self._starting = False

    def begin(self) -> None:
        """Forget the past, and leave out the current pass: a start is no stall."""
        self.longest = None
        self._starting = True

    def pass_ended(self, began: float, ended: float) -> bool:
        """Take note of a pass; returns whether a task was woken for the next one."""
        took_s = ended - began
        if self._starting:
            self._starting = False
            self._delay_since_last_look()
            self._looked_at = ended
        elif took_s > LONG_S:
            self._long_pass(took_s, ended)
            self._looked_at = ended
        elif ended - self._looked_at > BASELINE_S:
            self._delay_since_last_look()
            if self._continued():  # what it was about is over
                self._take_back(ended)
            self._looked_at = ended
        return self._loop.pass_ended()

    def ended(self) -> None:
        self._loop.passes_ended()

    def woke_late(self, late_s: float, at: float) -> None:
        """The loop slept for `late_s` longer than it was to, until `at`."""
        continued = self._continued()
        stopped_s = late_s - self._delay_since_last_look()
        if stopped_s > STOPPED_S:  # this is what the signal was about
            self._stopped(stopped_s)
        elif continued and stopped_s <= LONG_S:  # or about one before, that was told as a stall
            self._take_back(at)

    def status(self) -> dict[str, Any]:
        return {
            "longest_stall": msgspec.to_builtins(self.longest),
            "suspensions": msgspec.to_builtins(self.suspensions),
        }

    def _long_pass(self, took_s: float, ended: float) -> None:
        culprit, doing = self._loop.culprit(took_s)
        own_s = max(took_s - self._delay_since_last_look(), 0.0)
        if self._continued():  # it is not known how much of the pass it was stopped for
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

    def _delay_since_last_look(self) -> float:
        before, self._delayed_s = self._delayed_s, self._run_delay()
        return self._delayed_s - before

    def _stopped(self, seconds: float) -> None:
        seconds = round(seconds, 3)
        self.suspensions.count += 1
        self.suspensions.total_s = round(self.suspensions.total_s + seconds, 3)
        self.suspensions.last_s = seconds
        self.suspensions.last_ts = round(self._wall_clock(), 3)
        words = "no timer has gone on meanwhile, and nothing is replaced for it"
        log.warning("the daemon was suspended", seconds=seconds, words=words)
