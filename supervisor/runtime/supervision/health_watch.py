"""Ask a process for its health at its own moments, for as long as it has nothing else to do.

There is no task for it: two timers in the shared queue follow each other, the next check and the
end of the wait for its answer. An interval has `TICKS` moments, the same ones for all modules with
that interval, and a process gets one of them at random. So of 200 modules that started together
some ten are asked in one wake-up, and never all.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from protocol.descriptor.model import HealthChecks
from protocol.errors import Outcome, Success
from supervisor.runtime.supervision.call import Call, Listener
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

TICKS = 20
"""A wake-up costs an idle daemon 0.8 ms, since all it needs has left the caches; each check in it
60 us. So more moments cost more than the checks themselves (200 modules at 40 moments: 0.45 % of a
core, at 20: 0.29 %), and fewer would hold up requests for longer: of 1,000 modules, 50 are asked at
one moment."""


class Checked(Protocol):
    """The process, or service, that is asked."""

    @property
    def occupied(self) -> bool:
        """Whether it is not to be asked now: busy is not hung, and a doubt has its own probe."""

    def check(self, answered: HealthWatch) -> Call | None:
        """Ask for its health; None if that cannot be asked now."""

    def found(self, *, well: bool) -> None: ...

    def replace(self, why: str) -> None:
        """Replace it: it does not answer."""


class HealthWatch(Listener):
    def __init__(
        self, checks: HealthChecks, health_s: float, deadlines: Deadlines, checked: Checked
    ) -> None:
        """Take an answer that needs longer than `health_s` for none."""
        self._checks = checks
        self._health_s = health_s
        self._deadlines = deadlines
        self._checked = checked
        self._tick_s = checks.interval_s / TICKS
        self._tick = 0
        self._timer: Timer | None = None
        self._asked: Call | None = None
        self._missed = 0

    def begin(self, phase: float) -> None:
        """Check from now on; the first time after this part (0 to 1) of the interval."""
        first_at = trio.current_time() + phase * self._checks.interval_s
        self._tick = math.ceil(first_at / self._tick_s)
        self._arm()

    def alive(self) -> None:
        """Forget the checks that were missed: it has shown that it is not stuck."""
        self._missed = 0

    def end(self) -> None:
        self._asked = None
        if self._timer is not None:
            self._timer.cancel()

    def answered(self, outcome: Outcome, call: Call) -> None:
        if call is not self._asked:
            return
        self.end()
        if isinstance(outcome, Success):
            self._missed = 0
            self._arm_next()
            self._checked.found(well=True)
        else:
            self._miss()

    def _due(self) -> None:
        if self._checked.occupied:
            self._missed = 0
            self._arm_next()
            return
        self._asked = self._checked.check(self)
        if self._asked is None:
            self._miss()
        else:
            self._timer = self._deadlines.after(self._health_s, self._late)

    def _late(self) -> None:
        self._asked = None
        self._miss()

    def _miss(self) -> None:
        if self._checked.occupied:
            self._arm_next()
            return
        self._missed += 1
        if self._missed >= self._checks.failures:
            self._checked.replace(f"missed {self._missed} health probes in a row")
            return
        self._arm_next()
        self._checked.found(well=False)

    def _arm_next(self) -> None:
        # The moments of the interval stay its own: one that has passed meanwhile is left out.
        passed_s = trio.current_time() - self._tick * self._tick_s
        self._tick += TICKS * (1 + max(0, math.floor(passed_s / self._checks.interval_s)))
        self._arm()

    def _arm(self) -> None:
        self._timer = self._deadlines.at(self._tick * self._tick_s, self._due)
