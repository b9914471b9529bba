"""The slots of a pool together: who has room, what runs, how it is with the whole."""

from __future__ import annotations

from supervisor.policy.lifecycle import State
from supervisor.policy.pool import state_of
from supervisor.runtime.life import Instance, Life
from supervisor.runtime.seat import Seat


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
