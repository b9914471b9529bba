"""The daemon's clock: a time in which its event loop could not come round does not pass.

When the daemon was stopped for some seconds (SIGSTOP, a freezer, a snapshot of the machine), or did
not come round for whatever reason, answers of modules lie in their pipes, and timers are due that
would have been cancelled by them. So the clock stands still from the moment at which the loop was
to come round until it has read for a while, and all timers have as much left as they had: requests,
health checks, backoffs and stop ladders alike. Nothing is replaced for it, and nothing catches up.

    deadline_to_sleep_time --- the loop sleeps --- after_io_wait
                         |<- timeout ->|<- late  ->|<- GRACE_S ->|
    clock        ...------------------>|.........................|-------...

Within a pass of the loop the same holds between two looks at the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

from supervisor.runtime.stalls import Stalls

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LATE_S = 0.5
"""What is later than that did not come of a little work, here or elsewhere on the machine."""

GRACE_S = 0.1
"""How long what has waited is read and dealt with before time goes on. A system call that was
interrupted returns without having looked, so that one pass of the loop is not enough."""


class LoopClock(trio.abc.Clock, trio.abc.Instrument):
    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        pass_ended: Callable[[float, float], bool] = lambda _began, _ended: False,
        woke_late: Callable[[float, float], None] = lambda _late_s, _at: None,
    ) -> None:
        """`clock` is the monotonic time (s), sleeping or not.

        `pass_ended` is told when each pass of the loop began and ended, by `clock`, and returns
        whether a task was woken then; `woke_late` is told how many seconds too late the loop woke
        up, and when.
        """
        self._clock = clock
        self._pass_ended = pass_ended
        self._woke_late = woke_late
        self._lost_s = 0.0
        self._floor = -math.inf
        self._looked_at = self._pass_began_at = clock()
        self._sleeps_since: float | None = None

    # What trio asks of a clock.

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        at = self._clock()
        if at - self._looked_at > LATE_S:
            self._lose(self._looked_at, at)
        self._looked_at = at
        now, floor = at - self._lost_s, self._floor
        return now if now > floor else floor  # noqa: FURB136 - each request asks twice

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return for how long to sleep until a time of this clock.

        trio asks before each sleep, and never else; so a pass is over.
        """
        at = self._clock()
        if at - self._looked_at > LATE_S:
            self._lose(self._looked_at, at)
        self._looked_at = self._sleeps_since = at
        if self._pass_ended(self._pass_began_at, at):
            return 0.0
        return deadline + self._lost_s - at

    # What trio tells an instrument: a second hook would cost as much as all that is done here.

    def after_io_wait(self, timeout: float) -> None:
        at = self._clock()
        since = self._sleeps_since
        if since is None:
            # There is more to do: the loop did not sleep, the pipes were only looked at.
            if at - self._looked_at > LATE_S:
                self._lose(self._looked_at, at)
            self._pass_ended(self._pass_began_at, at)
        else:
            self._sleeps_since = None
            late_s = at - since - timeout
            if late_s > LATE_S:
                # Back by the grace, but never to before it went to sleep.
                self._lose(max(since + timeout - GRACE_S, since), at)
                self._woke_late(late_s, at)
        self._looked_at = self._pass_began_at = at

    def _lose(self, since: float, until: float) -> None:
        """Stand still at the time `since` until what has waited is dealt with."""
        self._floor = max(self._floor, since - self._lost_s)
        self._lost_s = until + GRACE_S - self._floor


def run_timed(
    main: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    stalls: Stalls | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> T:
    """Run an event loop by this clock; `stalls` is told of its passes and of late wake-ups."""
    timed = LoopClock(clock)
    if stalls is not None:
        timed = LoopClock(clock, pass_ended=stalls.pass_ended, woke_late=stalls.woke_late)
    try:
        return trio.run(main, *args, clock=timed, instruments=[timed])
    finally:
        if stalls is not None:
            stalls.ended()
