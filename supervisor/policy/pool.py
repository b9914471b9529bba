"""The processes of a persistent module: their number, condition and renewal.

Rules that live here, and nowhere else (docs/descriptor.md):

- one process more for each `concurrency` of requests that wait, once the one at the head has waited
  `QUEUE_WAIT_S` and all instances are full; those that are starting are counted on already;
- a module serves if one of its workers does. It is `degraded` if fewer than `min` of them are
  well; a first start that is under way is nothing unwell;
- a process that is renewed after so many requests, or at an age, is renewed up to `SPREAD` earlier,
  drawn at random: instances that started together are not renewed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from supervisor.policy.lifecycle import COMES, HAS_PROCESS, SERVES, State

QUEUE_WAIT_S = 0.1
"""Short enough to be no delay for a person, and too long for short calls anyway."""

SPREAD = 0.1
"""The largest random share by which an age, or a number of requests, is shortened."""


class Condition(NamedTuple):
    state: State
    restarted: bool = False
    """Whether it has come back after an unexpected end."""
    leaving: bool = False
    """Whether it is on its way out: it gets no more calls, and does not come back."""


_WITHOUT_SERVICE = (
    State.STARTING,
    State.PREPARING,
    State.STOPPING,
    State.BACKOFF,
    State.FAILED,
)
"""The states without service, the most hopeful first."""


def state_of(workers: Sequence[Condition], least: int) -> State:
    """Return the state of a module with these workers, of which `least` should be well.

    With one worker it is the worker's.
    """
    staying = [one for one in workers if not one.leaving]
    states = {one.state for one in staying}
    if not SERVES.isdisjoint(states):
        well = sum(
            one.state is State.READY or (one.state in COMES and not one.restarted)
            for one in staying
        )
        return State.READY if well >= max(least, 1) else State.DEGRADED
    for state in _WITHOUT_SERVICE:
        if state in states:
            return state
    if any(one.leaving and one.state in HAS_PROCESS for one in workers):
        return State.STOPPING
    return State.DOWN


def more_needed(waiting: int, starting: int, concurrency: int, room: int) -> int:
    """Return how many more processes to start; `starting` ones count, `room` is the most."""
    uncared = waiting - starting * concurrency
    return max(0, min(room, -(-uncared // concurrency)))


def renewed_after_requests(most: int, draw: float) -> int:
    """Return after how many requests a process is renewed; `draw` is random in [0, 1)."""
    return most - int(most * SPREAD * draw)


def renewed_at_age_s(most_s: float, draw: float) -> float:
    """Return at what age a process is renewed; `draw` is random in [0, 1)."""
    return most_s * (1.0 - SPREAD * draw)
