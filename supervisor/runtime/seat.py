"""A slot of a pool, and what decides when its process goes: what it has served, how old it is."""

from __future__ import annotations

from collections.abc import Callable

import trio

from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.pool import Condition, renewed_after_requests, renewed_at_age_s
from supervisor.runtime.call import Call
from supervisor.runtime.deadlines import Timer
from supervisor.runtime.last_exit import LastExit
from supervisor.runtime.life import Life, Setting
from supervisor.runtime.slot import Slot


class Seat:
    """One slot; made before the slot, which tells its pool of changes by it."""

    __slots__ = (
        "_age", "_due", "_most", "_served", "exit_seen", "leaving", "slot", "used_at", "why_due",
        "why_left",
    )  # fmt: skip

    slot: Slot

    def __init__(self, due: Callable[[Seat], None]) -> None:
        """`due` is called when its process is to be renewed, more than once at times."""
        self.leaving = False
        """Whether it is on its way out: it gets no more calls, and does not come back."""
        self.why_left = ""
        self.why_due: str | None = None
        """Why its process is to be renewed, once it is."""
        self.exit_seen: LastExit | None = None
        self.used_at = 0.0
        """When it last had a call, or got ready (monotonic)."""
        self._due = due
        self._served = 0
        self._most: int | None = None
        self._age: Timer | None = None

    @property
    def condition(self) -> Condition:
        """How it is with it."""
        return Condition(self.slot.state, self.slot.restarts > 0, self.leaving)

    @property
    def load(self) -> int:
        """How many calls it has."""
        life = self.slot.life
        return 0 if life is None else life.load

    def free(self) -> Life | None:
        """Return its life if that may be given one more call now."""
        return None if self.leaving else self.slot.free()

    def take(self, call: Call) -> None:
        """Give it a call; it must be free."""
        life = self.slot.life
        assert life is not None  # noqa: S101 - it is free
        life.take(call)
        self._served += 1
        if self._most is not None and self._served >= self._most:
            self.tire(f"has served {self._served} requests")

    def got_ready(self, setting: Setting) -> None:
        """Begin to count for a process that has started."""
        self.rest()
        instances, host = setting.descriptor.supervision.instances, setting.host
        self.why_due = None
        self._served = 0
        self.used_at = trio.current_time()
        self._most = None
        if instances.max_requests is not None:
            self._most = renewed_after_requests(instances.max_requests, host.draw())
        if instances.max_age_s is not None:
            age_s = renewed_at_age_s(instances.max_age_s, host.draw())
            self.tire_later(setting, age_s, f"is {age_s:.3g} s old")

    def tire_later(self, setting: Setting, delay_s: float, why: str) -> None:
        """Have its process renewed in so many seconds."""
        self.rest()
        self.why_due = None
        self._age = setting.host.deadlines.after(delay_s, lambda: self.tire(why))

    def tire(self, why: str) -> None:
        """Have its process renewed."""
        if self.slot.state in SERVES:
            self.why_due = self.why_due or why
            self._due(self)

    def rest(self) -> None:
        """Let go of the timer."""
        if self._age is not None:
            self._age.cancel()
            self._age = None

    @property
    def is_gone(self) -> bool:
        """Whether it is down and not wanted up."""
        return self.slot.state is State.DOWN and not self.slot.wanted
