"""Cut what was read from a process into pieces that cost no neighbour more than a moment.

A chunk of 65,536 bytes may hold as many lines, and a line that is no protocol costs some 50 us:
taken at once, they would stop the event loop for seconds (promise 4 of ARCHITECTURE.md).
"""

from __future__ import annotations

LINES_A_TURN = 1024
"""As many lines are handled before it is the neighbours' turn. A chunk of events has fewer."""


A_FEW_LINES = 16
"""So few cost the neighbours less than a turn of the loop and its system calls cost us."""


def takes_a_turn(piece: bytes) -> bool:
    """Return whether it is the neighbours' turn once a piece has been handled."""
    return piece.count(b"\n") > A_FEW_LINES


def turns(data: bytes) -> list[bytes]:
    """Return the pieces of a chunk, in order, each with `LINES_A_TURN` newlines at the most."""
    if data.count(b"\n") <= LINES_A_TURN:
        return [data]
    half = len(data) // 2
    return [*turns(data[:half]), *turns(data[half:])]
