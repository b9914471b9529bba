"""The slots of one module, and which of them gets a call.

What holds at any time:

- at most `max` slots, and one more while a process is renewed (`renewal`);
- a slot that leaves keeps the calls that it has, gets no more, and is stopped when it has none; it
  does not come back;
- crashes, backoff and intensity are each slot's own; one that is not to come back is dropped, but
  for the last, which stands for the module while that is down.

A pool of one slot that is never renewed nor idle does nothing beside its slot.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import trio

from protocol.errors import Outcome
from protocol.replies import Operation
from supervisor.policy.lifecycle import SERVES, State
from supervisor.runtime.supervision.call import Call, CallQueue
from supervisor.runtime.supervision.crash_record import LastExit
from supervisor.runtime.supervision.life import Setting
from supervisor.runtime.supervision.renewal import Renewals
from supervisor.runtime.supervision.seats import Seat, Seats, asked
from supervisor.runtime.supervision.sizing import Sizing
from supervisor.runtime.supervision.slot import Slot, Tended


class Keeper(Protocol):
    """What a pool tells its module, and asks it."""

    def refuse(self, pool: Pool) -> None:
        """Take note that nobody will serve the calls that wait."""

    def moved(
        self, pool: Pool, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Take note of a change of the pool's state, and of the instance that led to it."""

    def moved_within(
        self, pool: Pool, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Take note of a change of one of several instances."""

    def is_needed(self) -> bool:
        """Whether modules that run depend on it."""


class Pool:
    """A module's slots, and the calls that wait for them."""

    __slots__ = (
        "_barred", "_keeper", "_last_exit", "_nursery", "_only", "_renewals", "_restarts",
        "_sizing", "asleep", "queue", "seats", "setting", "state",
    )  # fmt: skip

    def __init__(
        self, setting: Setting, nursery: trio.Nursery, queue: CallQueue, keeper: Keeper
    ) -> None:
        """Make it with one slot, down."""
        self.state = State.DOWN
        self.asleep = False
        """Whether it is down, or about to be, for being idle: a request starts it again."""
        self.setting = setting
        self.queue = queue
        self._nursery = nursery
        self._keeper = keeper
        self._restarts = 0
        """Of slots that are gone."""
        self._last_exit: LastExit | None = None
        self._barred = False
        self.seats = Seats()
        self._renewals = Renewals(self)
        self._sizing = Sizing(self)
        self.add()
        self._only: Seat | None = None
        """The slot, where there is but one and nothing to be done beside it."""
        self._simplify()

    # Commands.

    def want(self) -> None:
        """Want it up as soon as what it depends on is; it is down."""
        self.seats[0].slot.wanted = True

    def start(self, cause: str, at_least: int = 1) -> None:
        """Want it up, with `min` processes, but so many at least, as far as it may have them."""
        self.asleep = self._barred = False
        for seat in self.seats.staying() or [self._recalled()]:
            seat.slot.start(cause)
        self._fill(cause, at_least)
        if self._only is None:
            self._tell(self.seats[0], cause)
            self.serve()  # one that was on its way out may have stayed

    def stop(self, cause: str) -> None:
        """Want it down."""
        self.asleep = False
        for seat in self.seats:
            seat.slot.wanted = False  # of none, before one is gone: no successor is to come
        self._renewals.cut_short(cause)
        for seat in tuple(self.seats):
            seat.slot.stop(cause)

    def restart(self, cause: str) -> None:
        """Have all its processes replaced by new ones, each once its calls are served."""
        self.asleep = self._barred = False
        self._renewals.cut_short(cause)
        for seat in self.seats.staying()[self.setting.descriptor.supervision.instances.max :]:
            self.leave(seat, cause)
        for seat in self.seats.staying() or [self._recalled()]:
            seat.slot.restart(cause)
        self._fill(cause)

    def hurry(self) -> None:
        """Kill what there is."""
        for seat in tuple(self.seats):
            seat.slot.hurry()

    # Calls.

    @property
    def has_room(self) -> bool:
        """Whether a slot would take a call now."""
        return self.seats.least_loaded() is not None

    def take(self, call: Call) -> bool:
        """Give a call to the slot that has the fewest; False if none has room."""
        if self._only is not None:
            life = self._only.slot.free()
            if life is None:
                return False
            life.take(call)
            return True
        seat = self.seats.least_loaded()
        if seat is not None:
            seat.take(call)
        return seat is not None

    def serve(self) -> None:
        """Hand out what waits, as far as there is room."""
        if self._only is not None:
            life = self._only.slot.life
            while self.queue and life is not None and life.can_take():
                call = self.queue.take()
                if call is not None:
                    life.take(call)
            return
        while self.queue:
            seat = self.seats.least_loaded()
            if seat is None:
                break
            call = self.queue.take()
            if call is not None:
                seat.take(call)

    def press(self) -> None:
        """Take note that calls wait: more processes may be needed."""
        if self._only is None:
            self._sizing.press()

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        """Ask for `health` or `describe`; there must be an instance that serves."""
        return await asked(self.seats.serving(), operation, timeout_s)

    # What is known of it.

    @property
    def serves(self) -> bool:
        """Whether calls may be given to it now."""
        return self.state in SERVES

    @property
    def barred(self) -> bool:
        """Whether `never_on` keeps it from being started for a request."""
        return self._barred or self.seats.barred

    @property
    def restarts(self) -> int:
        """How often one of its processes came back after an end nobody asked for."""
        return self._restarts + self.seats.restarts

    @property
    def last_exit(self) -> LastExit | None:
        """What the last process died of, but for those that were renewed, or idle for long."""
        return self._last_exit if self._only is None else self._only.slot.last_exit

    # The slots; for `Sizing` and `Renewals` too.

    @property
    def lasting(self) -> int:
        """How many there are once the renewal that is under way is over."""
        return len(self.seats.staying()) - self._renewals.doubled

    @property
    def room(self) -> int:
        """How many slots may be added."""
        most = self.setting.descriptor.supervision.instances.max
        return most + self._renewals.extra - len(self.seats)

    @property
    def may_add(self) -> bool:
        """Whether processes may be started that nobody asked for."""
        return self.seats.wanted and not self.barred and not self.setting.host.shutting_down

    def renews(self, seat: Seat) -> bool:
        """Whether a slot is being renewed, or takes the place of one that is."""
        return self._renewals.concerns(seat)

    @property
    def needed(self) -> bool:
        """Whether modules that run depend on it."""
        return self._keeper.is_needed()

    def add(self) -> Seat:
        """Make another slot, down."""
        seat = Seat(self._renewals.due)
        tended = Tended(
            partial(self._freed, seat),
            self._refuse,
            partial(self._changed, seat),
            lambda: len(self.queue),
        )
        seat.slot = Slot(self.setting, self._nursery, tended)
        self.seats.append(seat)
        return seat

    def leave(self, seat: Seat, cause: str) -> None:
        """Have a slot go: at once, or when it has served the calls that it has."""
        seat.leaving = True
        seat.why_left = cause
        seat.rest()
        seat.slot.wanted = False  # should it die before it is stopped, that is its end too
        if not seat.slot.serves or not seat.load:
            seat.slot.stop(cause)
        self._tell(seat, cause)

    def _recalled(self) -> Seat:
        """Have one that leaves stay, or come back once it is gone: it is all there is."""
        seat = self.seats[0]
        seat.leaving = False
        return seat

    def _fill(self, cause: str, at_least: int = 1) -> None:
        least = max(self.setting.descriptor.supervision.instances.min, at_least)
        while self.lasting < least and self.room > 0:
            self.add().slot.start(cause)

    def _simplify(self) -> None:
        instances = self.setting.descriptor.supervision.instances
        alone = instances.max == 1 and len(self.seats) == 1 and not self.seats[0].leaving
        renewed = instances.max_requests is not None or instances.max_age_s is not None
        tended = renewed or instances.idle_stop_s is not None
        self._only = self.seats[0] if alone and not tended else None

    # What a slot tells.

    def _freed(self, seat: Seat) -> None:
        if self._only is None:
            seat.used_at = trio.current_time()
            if seat.leaving and not seat.load:
                seat.slot.stop(seat.why_left)
        if self.queue:
            self.serve()

    def _refuse(self) -> None:
        if self.state in (State.BACKOFF, State.FAILED, State.DOWN):
            self._keeper.refuse(self)

    def _changed(self, seat: Seat, before: State, after: State, cause: str) -> None:
        slot = seat.slot
        if self._only is not None:
            self.state = after
            self._keeper.moved(self, slot.instance, before, after, cause)
            return
        if slot.last_exit is not seat.exit_seen:
            seat.exit_seen = slot.last_exit
            if not seat.leaving:
                self._last_exit = slot.last_exit
        several = len(self.seats) > 1
        if before is State.STARTING and after is State.READY:
            seat.got_ready(self.setting)
            self._renewals.got_ready(seat)
        elif after not in SERVES:
            seat.rest()
        if seat.is_gone:
            self._vacate(seat)
        if several:
            self._keeper.moved_within(self, slot.instance, before, after, cause)
        self._tell(seat, cause)
        self._renewals.begin()
        self._sizing.watch_idle()
        self.press()

    def _vacate(self, seat: Seat) -> None:
        self._barred = self._barred or seat.slot.barred
        self._renewals.vacated(seat)
        seat.leaving = False
        if len(self.seats) > 1:
            self.seats.remove(seat)
            self._restarts += seat.slot.restarts
            self._simplify()

    def _tell(self, seat: Seat, cause: str) -> None:
        # One that is stopped lacks no instance, though they go one after the other.
        least = self.setting.descriptor.supervision.instances.min if self.seats.wanted else 1
        before = self.state
        self.state = self.seats.state(least)
        if before is not self.state:
            self._keeper.moved(self, seat.slot.instance, before, self.state, cause)
