"""How much of each thing is done in a round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Counts per round, and one duration."""

    rounds: int
    events: int
    patches: int
    sequential: int
    concurrent: int
    spawns: int
    warm_calls: int
    crashes: int
    idle_s: float
    commands: int
    entries: int


FULL = Sizes(
    rounds=5,
    events=1_000_000,
    patches=100_000,
    sequential=20_000,
    concurrent=100_000,
    spawns=300,
    warm_calls=20,
    crashes=20,
    idle_s=10.0,
    commands=10,
    entries=1_000_000,
)
QUICK = Sizes(
    rounds=1,
    events=20_000,
    patches=2_000,
    sequential=500,
    concurrent=2_000,
    spawns=10,
    warm_calls=2,
    crashes=2,
    idle_s=0.5,
    commands=1,
    entries=5_000,
)
"""To see that it works; its figures say little."""
