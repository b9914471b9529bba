"""How much of each thing is done in a round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Counts per round, and durations."""

    rounds: int = 7
    events: int = 400_000
    patches: int = 50_000
    sequential: int = 5_000
    concurrent: int = 20_000
    publications: int = 50
    """Of several events each to many clients."""
    spawns: int = 150
    warm: int = 10
    crashes: int = 20
    peer_crashes: int = 2
    ran_s: float = 1.5
    """How long a program ran before it is killed; supervisord's `startsecs` is 1."""
    fleet: int = 200
    idle_s: float = 10.0
    """As long as the default interval of health checks, and twice circus' of its own."""
    commands: int = 10
    entries: int = 100_000
    running: tuple[int, ...] = (250, 500, 1_000)
    """How many persistent modules run at once, to see what grows."""
    lazy: tuple[int, ...] = (2_500, 5_000, 10_000)
    """How many descriptors of lazy modules there are, to see what grows."""
    latencies: int = 200


QUICK = Sizes(
    rounds=1,
    events=1_000,
    patches=100,
    sequential=50,
    concurrent=128,
    publications=2,
    spawns=2,
    warm=1,
    crashes=1,
    peer_crashes=1,
    fleet=2,
    idle_s=0.2,
    commands=1,
    entries=500,
    running=(1, 2),
    lazy=(1, 2),
    latencies=3,
)
"""To see that it works; its figures say little."""
