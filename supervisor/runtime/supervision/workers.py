"""The workers of a module together, as functions over a list of them.

Each has crashes, backoff and intensity of its own. How many there should be is in `sizing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from protocol.descriptor.model import Restart, Supervision
from protocol.errors import Failure, Outcome
from protocol.replies import Operation
from supervisor.policy.lifecycle import State
from supervisor.policy.pool import Condition, state_of
from supervisor.runtime.supervision.description import generation
from supervisor.runtime.supervision.life import Instance, Life, LifeEnd
from supervisor.runtime.supervision.worker import Worker


def staying(workers: Iterable[Worker]) -> list[Worker]:
    return [one for one in workers if not one.leaves]


def serving(workers: Iterable[Worker]) -> list[Life]:
    """Return the lives that may be given calls, full ones too."""
    return [one.life for one in workers if one.life and one.serves and not one.leaves]


def only(workers: Sequence[Worker]) -> Worker | None:
    """Return the worker where there is but one, and nothing to be done beside its calls."""
    instances = workers[0].setting.descriptor.supervision.instances
    bounds = (instances.max_requests, instances.max_age_s, instances.idle_stop_s)
    alone = instances.max == len(workers) == 1 and not workers[0].leaves
    return workers[0] if alone and bounds == (None, None, None) else None


def least_loaded(workers: Iterable[Worker]) -> Worker | None:
    """Return the one to give the next call to, if one has room.

    One that missed a probe comes last; of equals the oldest is first, so that others get idle.
    """
    found: Worker | None = None
    least = (True, 0)
    for one in workers:
        life = one.free()
        if life is None:
            continue
        weight = (one.state is not State.READY, life.load)
        if found is None or weight < least:
            found, least = one, weight
    return found


def instances(workers: Iterable[Worker]) -> list[tuple[Instance, State]]:
    return [(shown, one.state) for one in workers if one.life for shown in one.life.instances()]


def state(workers: Sequence[Worker]) -> State:
    """Return the state of a module with these workers, all of one descriptor."""
    conditions = [Condition(one.state, bool(one.restarts), one.leaves) for one in workers]
    # One that is stopped lacks no instance, though they go one after the other.
    least = workers[0].setting.descriptor.supervision.instances.min
    if workers[0].setting.descriptor.supervision.restart is Restart.ON_DEMAND:
        least = min(least, len(workers))  # those that ended while idle are not missed
    return state_of(conditions, least if is_wanted(workers) else 1)


def is_wanted(workers: Iterable[Worker]) -> bool:
    return any(one.is_wanted for one in workers)


def newest_exit(workers: Iterable[Worker]) -> LifeEnd | None:
    known = [one.last_exit for one in workers if one.last_exit is not None]
    return max(known, key=lambda one: one.ts, default=None)


def renewed(workers: Iterable[Worker]) -> Worker | None:
    return next((one.follows for one in workers if one.follows is not None), None)


def lasting(workers: Sequence[Worker]) -> int:
    """Return how many there are once the renewal that is under way is over."""
    old = renewed(workers)
    return len(staying(workers)) - (old is not None and not old.leaves)


def room(workers: Sequence[Worker], supervision: Supervision) -> int:
    extra = renewed(workers) is not None
    return supervision.instances.max + extra - len(workers)


async def asked(lives: Sequence[Life], operation: Operation, timeout_s: float) -> Outcome:
    """Ask `describe` of the newest, `health` of all, and return the worst answer."""
    if len(lives) == 1:
        return await lives[0].ask(operation, timeout_s)
    if operation is not Operation.HEALTH:
        newest = max(lives, key=lambda life: generation(life.id))
        return await newest.ask(operation, timeout_s)
    outcomes: list[Outcome] = []

    async def ask(life: Life) -> None:
        outcomes.append(await life.ask(operation, timeout_s))

    async with trio.open_nursery() as nursery:
        for life in lives:
            nursery.start_soon(ask, life)
    return min(outcomes, key=_wellness)


def _wellness(outcome: Outcome) -> int:
    if isinstance(outcome, Failure):
        return 0
    return 2 if isinstance(outcome.result, dict) and outcome.result.get("status") == "ok" else 1
