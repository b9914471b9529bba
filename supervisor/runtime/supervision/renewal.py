"""Renew the processes of a pool, one at a time, without a moment in which one is missing.

A process whose time has come (so many requests, such an age) goes on serving. Its successor is
started in a slot of its own; once that is ready, the old one is given no more calls and leaves when
it has served those that it has. A successor that does not get ready is tried again as any slot is,
and the old one serves meanwhile; if it is not to come back, the next try is `retry_failed_s` later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.policy.lifecycle import SERVES
from supervisor.runtime.supervision.seats import Seat

if TYPE_CHECKING:
    from supervisor.runtime.supervision.pool import Pool


class Renewals:
    """The renewals of one pool."""

    __slots__ = ("_old", "_pool", "_successor")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._old: Seat | None = None
        self._successor: Seat | None = None

    @property
    def extra(self) -> int:
        """How many slots there are beyond those that count."""
        return 0 if self._old is None else 1

    @property
    def doubled(self) -> int:
        """How many of the slots that stay are there for one that is to leave."""
        return 0 if self._old is None or self._old.leaving else 1

    def concerns(self, seat: Seat) -> bool:
        """Whether a slot is being renewed, or is a successor."""
        return seat is self._old or seat is self._successor

    def due(self, seat: Seat) -> None:
        """Renew this one when it is its turn."""
        del seat  # it says so itself
        self.begin()

    def begin(self) -> None:
        """Renew the next one, if none is being renewed."""
        pool = self._pool
        if self._old is not None or not pool.may_add:
            return
        for seat in pool.seats.staying():
            if seat.why_due is not None and seat.slot.state in SERVES:
                self._old = seat
                self._successor = pool.add()
                instance = seat.slot.instance
                self._successor.slot.start(f"{instance} {seat.why_due}, and this one follows it")
                return

    def got_ready(self, seat: Seat) -> None:
        """Have the old one leave, if this is its successor."""
        if seat is self._successor and self._old is not None and not self._old.leaving:
            self._pool.leave(self._old, f"it {self._old.why_due}")

    def vacated(self, seat: Seat) -> None:
        """Take note that a slot is gone for good."""
        if not self.concerns(seat):
            return
        old, self._old, successor, self._successor = self._old, None, self._successor, None
        if seat is successor and old is not None and not old.leaving and old.slot.state in SERVES:
            setting = self._pool.setting
            old.tire_later(
                setting, setting.descriptor.supervision.retry_failed_s, "is to be renewed"
            )

    def cut_short(self, cause: str) -> None:
        """Have the old one leave now: all are replaced, or stopped."""
        if self._old is not None and not self._old.leaving:
            self._pool.leave(self._old, cause)
