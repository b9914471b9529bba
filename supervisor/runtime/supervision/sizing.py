"""Have as many processes as are used: more when requests wait, fewer when they are idle.

Timers run only while requests wait, or while there are more processes than `min`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from supervisor.policy.lifecycle import COMES
from supervisor.policy.pool import QUEUE_WAIT_S, more_needed
from supervisor.runtime.supervision.deadlines import Timer

if TYPE_CHECKING:
    from supervisor.runtime.supervision.pool import Pool

SLACK_S = 0.001
"""What a time may be short by when its timer fires: it is a sum of floats."""


class Sizing:
    """The size of one pool."""

    __slots__ = ("_idling", "_pool", "_pressed")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._pressed: Timer | None = None
        self._idling: Timer | None = None

    # Growth.

    def press(self) -> None:
        """Take note that calls wait, and look again when they have waited long enough."""
        if self._pressed is None and self._may_grow():
            left_s = QUEUE_WAIT_S - self._pool.queue.waited_s
            wait_s = left_s if left_s > SLACK_S else QUEUE_WAIT_S
            self._pressed = self._pool.setting.host.deadlines.after(wait_s, self._grow)

    def _may_grow(self) -> bool:
        pool = self._pool
        return len(pool.queue) > 0 and pool.serves and pool.room > 0 and pool.may_add

    def _grow(self) -> None:
        self._pressed = None
        pool = self._pool
        if not self._may_grow():
            return
        waited_s = pool.queue.waited_s
        if waited_s >= QUEUE_WAIT_S - SLACK_S:
            starting = sum(seat.slot.state in COMES for seat in pool.seats.staying())
            supervision = pool.setting.descriptor.supervision
            more = more_needed(len(pool.queue), starting, supervision.concurrency, pool.room)
            for _ in range(more):
                pool.add().slot.start(f"a request has waited {waited_s:.2g} s")
        self.press()

    # Idleness.

    def watch_idle(self) -> None:
        """Look in time for processes that nobody uses, if there are any to spare."""
        idle_s = self._pool.setting.descriptor.supervision.instances.idle_stop_s
        if idle_s is not None and self._idling is None and self._to_spare(least=self._least):
            self._idling = self._pool.setting.host.deadlines.after(idle_s, self._look_for_idle)

    @property
    def _least(self) -> int:
        return self._pool.setting.descriptor.supervision.instances.min

    def _to_spare(self, least: int) -> int:
        return self._pool.lasting - least if self._pool.serves else 0

    def _look_for_idle(self) -> None:
        self._idling = None
        pool = self._pool
        idle_s = pool.setting.descriptor.supervision.instances.idle_stop_s
        if idle_s is None or not self._to_spare(least=self._least):
            return
        now = trio.current_time()
        seats = pool.seats.staying()
        for seat in seats:
            if seat.load or seat.slot.state in COMES or pool.renews(seat):
                seat.used_at = now
        idle = [seat for seat in seats if now - seat.used_at >= idle_s - SLACK_S]
        idle.sort(key=lambda seat: seat.used_at)
        # What runs and depends on it may have a connection of its own to it.
        least = max(self._least, 1) if pool.needed else self._least
        leaving = [] if pool.queue else idle[: max(0, self._to_spare(least))]
        pool.asleep = len(leaving) == len(seats)
        for seat in leaving:
            pool.leave(seat, f"idle for {idle_s:g} s")
        if not pool.asleep and self._to_spare(least=self._least):
            since = min(seat.used_at for seat in pool.seats.staying())
            wait_s = since + idle_s - now
            self._idling = pool.setting.host.deadlines.after(
                wait_s if wait_s > SLACK_S else idle_s, self._look_for_idle
            )
