"""Limits on connections: in all, of one user, and a few reserved places.

A client costs a descriptor, which modules need too. A client that comes when all ordinary places
are taken gets one of the `KEPT` places, enough for an operator's command; when those are taken as
well, it takes over the place of the oldest idle client there. So a crowd of idle connections keeps
nobody out, and a client with an open request keeps its place until the answer. The same holds when
the limit on open files was lowered, so that clients have the last descriptors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import structlog
import trio

from supervisor.kernel.status import Connections, DaemonFacts
from supervisor.runtime.containment.file_limit import FileLimit
from supervisor.runtime.turns import THE_DAEMON, SharedTurn

CLIENTS = 4096
"""In all; under a limit of fewer than twice as many open files, half of those."""

OF_ONE_USER = 3 / 4
"""The share of one user."""

KEPT = 8

log = structlog.get_logger()


class Place:
    """A client's permission to be connected."""

    def __init__(self, uid: int, descriptor: int, *, kept: bool) -> None:
        self.uid = uid
        self.descriptor = descriptor
        self.kept = kept
        self.idle: Callable[[], bool] = bool
        """Whether the client has nothing open; the client is not read before this is set."""
        self.displaced = False
        self.scope = trio.CancelScope()
        """Cancelled when another client gets the place."""


class Admission:
    """The places of one daemon, for clients of all its sockets."""

    def __init__(self, limit: FileLimit, facts: Connections) -> None:
        self._limit = limit
        self._facts = facts
        self._of_user: Counter[int] = Counter()
        self._taken: dict[Place, None] = {}
        """All places, the oldest first."""
        self._kept: list[Place] = []
        self._crowded = False
        self.parted = 0
        """How many clients have left so far."""
        self._parting = trio.lowlevel.ParkingLot()
        self.turn = SharedTurn(THE_DAEMON)
        """Clients that hung up leave in turns: all of a crowd may do so in one moment."""

    @classmethod
    def of(cls, facts: DaemonFacts) -> Admission:
        return cls(facts.custody.file_limit, facts.connections)

    def admit(self, uid: int, descriptor: int) -> Place | None:
        """Give a new client a place, perhaps that of an idle one; None if there is none."""
        most = min(CLIENTS, self._limit.number // 2)
        kept = (
            self._of_user.total() >= most
            or self._of_user[uid] >= most * OF_ONE_USER
            or descriptor >= self._limit.for_clients
        )
        self._tell(kept)
        place = Place(uid, descriptor, kept=kept)
        if kept and len(self._kept) >= KEPT and not self._displace(self._kept):
            self._facts.refused += 1
            return None
        self._taken[place] = None
        if kept:
            self._kept.append(place)
        else:
            self._of_user[uid] += 1
        self._facts.open += 1
        return place

    def leave(self, place: Place) -> None:
        self._facts.open -= 1
        self.parted += 1
        self._parting.unpark_all()
        if not place.displaced:
            self._free(place)

    async def wait_parted(self) -> None:
        """Return when a client has left."""
        await self._parting.park()

    def make_room(self) -> bool:
        """Displace the first idle client whose descriptor is above the limit for clients.

        One above the limit would not be given to another client. Returns whether there was one.
        """
        last = range(self._limit.for_clients, self._limit.number)
        return self._displace(one for one in self._taken if one.descriptor in last)

    def _free(self, place: Place) -> None:
        del self._taken[place]
        if place.kept:
            self._kept.remove(place)
        else:
            self._of_user[place.uid] -= 1

    def _displace(self, places: Iterable[Place]) -> bool:
        for place in places:
            if place.idle():
                place.displaced = True
                self._free(place)
                self._facts.refused += 1
                place.scope.cancel()
                return True
        return False

    def _tell(self, crowded: bool) -> None:  # noqa: FBT001
        if crowded and not self._crowded:
            log.warning("as many clients as there is room for", clients=self._facts.open)
        self._crowded = crowded
