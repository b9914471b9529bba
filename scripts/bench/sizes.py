"""How much of each thing is done in a round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Counts per round, and durations."""

    rounds: int
    events: int
    patches: int
    sequential: int
    concurrent: int
    spawns: int
    warm: int
    crashes: int
    peer_crashes: int
    ran_s: float
    """How long a program ran before it is killed; supervisord's `startsecs` is 1."""
    fleet: int
    idle_s: float
    """As long as the default interval of health checks, and twice circus' of its own."""
    commands: int
    entries: int
    running: tuple[int, ...]
    """How many persistent modules run at once, to see what grows."""
    lazy: tuple[int, ...]
    """How many descriptors of lazy modules there are, to see what grows."""
    latencies: int


FULL = Sizes(
    rounds=7,
    events=400_000,
    patches=50_000,
    sequential=5_000,
    concurrent=20_000,
    spawns=150,
    warm=10,
    crashes=20,
    peer_crashes=2,
    ran_s=1.5,
    fleet=200,
    idle_s=10.0,
    commands=10,
    entries=100_000,
    running=(250, 500, 1_000),
    lazy=(2_500, 5_000, 10_000),
    latencies=200,
)
QUICK = Sizes(
    rounds=1,
    events=1_000,
    patches=100,
    sequential=50,
    concurrent=128,
    spawns=2,
    warm=1,
    crashes=1,
    peer_crashes=1,
    ran_s=1.5,
    fleet=2,
    idle_s=0.2,
    commands=1,
    entries=500,
    running=(1, 2),
    lazy=(1, 2),
    latencies=3,
)
"""To see that it works; its figures say little."""

SLOW_PEER = 10
"""A peer that makes a tenth of our calls is given a tenth of them: the unit is calls per second."""

SLOW_PEERS = 40
"""The same where both ends are slow."""
