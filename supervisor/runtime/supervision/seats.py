"""The slots of a pool together: who has room, what runs, how it is with the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from protocol.errors import Failure, Outcome
from protocol.replies import Operation
from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.pool import Condition, renewed_after_requests, renewed_at_age_s, state_of
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.crash_record import LastExit
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.description import generation
from supervisor.runtime.supervision.life import Instance, Life, Setting
from supervisor.runtime.supervision.slot import Slot


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


class Seats(list[Seat]):
    """The slots in the order they were added; there is always one."""

    __slots__ = ()

    def staying(self) -> list[Seat]:
        """Return those that are not on their way out."""
        return [seat for seat in self if not seat.leaving]

    def serving(self) -> list[Life]:
        """Return the lives that may be given calls, full ones too."""
        slots = [seat.slot for seat in self if not seat.leaving and seat.slot.serves]
        return [slot.life for slot in slots if slot.life is not None]

    def least_loaded(self) -> Seat | None:
        """Return the one to give the next call to, if one has room.

        One that missed a probe comes last; of equals the oldest is first, so that others get idle.
        """
        found: Seat | None = None
        least = (True, 0)
        for seat in self:
            life = seat.free()
            if life is None:
                continue
            weight = (seat.slot.state is not State.READY, life.load)
            if found is None or weight < least:
                found, least = seat, weight
        return found

    def instances(self) -> list[tuple[Instance, State]]:
        """Return what runs at the moment, each with its state."""
        lives = [(seat.slot.life, seat.slot.state) for seat in self]
        return [(one, state) for life, state in lives if life for one in life.instances()]

    def state(self, least: int) -> State:
        """Return the state of the module, of whose instances `least` should be well."""
        return state_of([seat.condition for seat in self], least)

    @property
    def wanted(self) -> bool:
        """Whether one is wanted up."""
        return any(seat.slot.wanted for seat in self)

    @property
    def barred(self) -> bool:
        """Whether `never_on` keeps one down."""
        return any(seat.slot.barred for seat in self)

    @property
    def restarts(self) -> int:
        """How often one came back after an end nobody asked for."""
        return sum(seat.slot.restarts for seat in self)

    @property
    def next_retry_s(self) -> float | None:
        """Seconds until the next try of one in `backoff` or `failed`."""
        waits = [wait for seat in self if (wait := seat.slot.next_retry_s) is not None]
        return min(waits, default=None)


async def asked(lives: Sequence[Life], operation: Operation, timeout_s: float) -> Outcome:
    """Ask `describe` of the newest, `health` of all, and return the worst answer."""
    if len(lives) == 1:
        return await lives[0].ask(operation, timeout_s)
    if operation is not Operation.HEALTH:
        newest = max(lives, key=lambda life: generation(life.id))
        return await newest.ask(operation, timeout_s)
    outcomes: list[Outcome] = []

    async def ask(life: Life) -> None:
        outcomes.append(await life.ask(operation, timeout_s))

    async with trio.open_nursery() as nursery:
        for life in lives:
            nursery.start_soon(ask, life)
    return min(outcomes, key=_wellness)


def _wellness(outcome: Outcome) -> int:
    if isinstance(outcome, Failure):
        return 0
    return 2 if isinstance(outcome.result, dict) and outcome.result.get("status") == "ok" else 1
