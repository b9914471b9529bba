"""Limits on connections: in all, of one user, and a few reserved places.

A client costs a descriptor, which modules need too. A client that comes when all ordinary places
are taken gets one of the `RESERVED` places, enough for an operator's command; when those are taken
as well, it takes over the place of the oldest idle client there. So a crowd of idle connections
keeps nobody out, and a client with an open request keeps its place until the answer. The same holds
when the limit on open files was lowered, so that clients have the last descriptors. The gateway has
ordinary places alone: its connections are never idle, and would keep an operator out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import structlog
import trio

from supervisor.kernel.status import Connections, DaemonFacts
from supervisor.runtime.containment.file_limit import FileLimit
from supervisor.runtime.containment.spawn import AT_ONCE
from supervisor.runtime.turns import THE_DAEMON, SharedTurn

CLIENTS = 4096
"""In all; under a limit of fewer than twice as many open files, half of those."""

OF_ONE_USER = 3 / 4
"""The share of one user."""

RESERVED = 8

GATEWAY = -2
"""The gateway's connections are those of a user of its own, and are not counted as clients: else
a daemon that ends when it has none would never end."""

log = structlog.get_logger()


class Place:
    """A client's permission to be connected."""

    def __init__(self, uid: int, descriptor: int, *, reserved: bool) -> None:
        self.uid = uid
        self.descriptor = descriptor
        self.reserved = reserved
        self.idle: Callable[[], bool] = bool
        """Whether the client has nothing open; the client is not read before this is set."""
        self.displaced = False
        self.scope = trio.CancelScope()
        """Cancelled when another client gets the place."""


class Admission:
    """The places at the control socket of a daemon."""

    def __init__(self, limit: FileLimit, facts: Connections) -> None:
        self._limit = limit
        self._facts = facts
        self._of_user: Counter[int] = Counter()
        self._taken: dict[Place, None] = {}
        """All places, the oldest first."""
        self._reserved: list[Place] = []
        self._crowded = False
        self.parted = 0
        """How many clients have left so far."""
        self._parting = trio.lowlevel.ParkingLot()
        self.turn = SharedTurn(THE_DAEMON)
        """Clients that hung up leave in turns: all of a crowd may do so in one moment."""
        self.starting_mcp = trio.CapacityLimiter(AT_ONCE)
        """Bounds the descriptors of MCP servers that are being started (`faces.mcp_clients`)."""

    @classmethod
    def of(cls, facts: DaemonFacts) -> Admission:
        return cls(facts.registry.file_limit, facts.connections)

    def admit(self, uid: int, descriptor: int) -> Place | None:
        """Give a new client a place, perhaps that of an idle one; None if there is none."""
        most = min(CLIENTS, self._limit.number // 2)
        reserved = (
            self._of_user.total() >= most
            or self._of_user[uid] >= most * OF_ONE_USER
            or descriptor >= self._limit.for_clients
        )
        self._tell(reserved)
        place = Place(uid, descriptor, reserved=reserved)
        if reserved and not self._has_reserved(uid):
            self._facts.refused += 1
            return None
        self._taken[place] = None
        if reserved:
            self._reserved.append(place)
        else:
            self._of_user[uid] += 1
        self._facts.open += uid != GATEWAY
        return place

    def _has_reserved(self, uid: int) -> bool:
        if uid == GATEWAY:
            return False
        return len(self._reserved) < RESERVED or self._displace(self._reserved)

    def leave(self, place: Place) -> None:
        self._facts.open -= place.uid != GATEWAY
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
        if place.reserved:
            self._reserved.remove(place)
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
