"""Cut what comes from one party into turns that cost no neighbour more than a moment.

A chunk of 65,536 bytes may hold as many lines, and a line that is no protocol costs some 50 us:
taken at once, they would stop the event loop for seconds (promise 4 of ARCHITECTURE.md). Lines of a
module are counted, since none costs much more than another. A client's requests are timed: one may
cost a thousand times what another one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TURN_S = 0.005
"""How long the requests of one client are served before it is the neighbours' turn. The one that is
being served then is finished, and a second task may serve what waited: so it is 20 ms at the most,
unless one request alone takes longer."""

LINES_A_TURN = 512
"""As many lines of a module are handled before it is the neighbours' turn."""


A_FEW_LINES = 16
"""So few cost the neighbours less than a turn of the loop and its system calls cost us."""


class Turn:
    """How much of a party's turn is left."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._until = 0.0

    def begin(self) -> None:
        """Begin a turn."""
        self._until = self._clock() + TURN_S

    @property
    def over(self) -> bool:
        """Whether it is the neighbours' turn."""
        return self._clock() >= self._until


def takes_a_turn(piece: bytes) -> bool:
    """Return whether it is the neighbours' turn once a piece has been handled."""
    return piece.count(b"\n") > A_FEW_LINES


def turns(data: bytes) -> list[bytes]:
    """Return the pieces of a chunk, in order, each with `LINES_A_TURN` newlines at the most."""
    if data.count(b"\n") <= LINES_A_TURN:
        return [data]
    half = len(data) // 2
    return [*turns(data[:half]), *turns(data[half:])]
