"""The workers of a module together: who gets a call, how many there are, and which one is renewed.

Each has crashes, backoff and intensity of its own. The functions are over a list of workers, such
as those of a descriptor that is not in effect yet.

`Sizing` plans how many there should be: more when calls wait, fewer when idle. It does what the
plan says, and looks again when that says. What holds at any time:

- at most `max` workers, and one more while one is renewed. A successor `follows` the one that goes;
  that serves until the successor is ready, then gets no more calls and leaves when it has served
  those that it has. A successor that does not get ready is tried again as any worker is; if it is
  not to come back, the next try is `retry_failed_s` later;
- a worker that leaves does not come back, but for the last one, which stands for the module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from protocol.descriptor.model import Restart, Supervision
from protocol.errors import Failure, Outcome
from protocol.replies import Operation
from supervisor.policy.lifecycle import COMES, SERVES, State
from supervisor.policy.pool import QUEUE_WAIT_S, Condition, more_needed, state_of
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.description import generation
from supervisor.runtime.supervision.life import Instance, Life, LifeEnd
from supervisor.runtime.supervision.worker import SLACK_S, Worker

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module


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


class Plan(msgspec.Struct):
    """What is to be done about the number of workers, and when to look again (monotonic, s)."""

    renew: Worker | None = None
    leave: Sequence[Worker] = ()
    add: int = 0
    again_at: float = math.inf


class Sizing:
    __slots__ = ("_again", "_again_at", "_looks", "_module", "_settled_at")

    def __init__(self, module: Module) -> None:
        self._module = module
        self._settled_at = 0.0
        """When the module began to serve, or was given another worker last (monotonic)."""
        self._again: Timer | None = None
        self._again_at = math.inf
        self._looks = False

    def settle(self) -> None:
        """The module has begun to serve: calls that wait are served now."""
        self._settled_at = trio.current_time()

    def press(self) -> None:
        """A call waits; a look that is soon due anyway is soon enough."""
        if self._again_at > trio.current_time() + QUEUE_WAIT_S:
            self.look()

    def look(self) -> None:
        """Add and remove workers as planned, and look again at the time that the plan names."""
        if self._looks:
            return  # what is done below moves workers; all is looked at again when it is done
        self._looks = True
        try:
            made = self._plan()
            while self._do(made):
                made = self._plan()
        finally:
            self._looks = False
        if made.again_at == self._again_at:
            return
        if self._again is not None:
            self._again.cancel()
        self._again, self._again_at = None, made.again_at
        if made.again_at < math.inf:
            self._again = self._module.host.deadlines.at(made.again_at, self._look_again)

    def _look_again(self) -> None:
        self._again_at = math.inf
        self.look()

    def _plan(self) -> Plan:
        module, made, now = self._module, Plan(), trio.current_time()
        if module.only or module.state not in SERVES:
            return made
        # Processes are started without being asked for only while the module is to be up.
        may_add = is_wanted(module.workers) and not (module.barred or module.ending)
        if may_add:
            self._plan_renewal(made, now)
        idle_s = module.descriptor.supervision.instances.idle_stop_s
        if idle_s is not None:
            self._plan_leaving(made, now, idle_s)
        if module.queue and may_add:
            self._plan_growth(made, now)
        return made

    def _plan_renewal(self, made: Plan, now: float) -> None:
        workers = self._module.workers
        if renewed(workers) is not None:
            return  # one at a time
        there = [one for one in workers if one.serves and not one.leaves]
        made.renew = next((one for one in there if one.service.is_due(now)), None)
        if made.renew is None:
            made.again_at = min([one.service.due_at for one in there], default=math.inf)

    def _plan_leaving(self, made: Plan, now: float, idle_s: float) -> None:
        module = self._module
        workers, least = module.workers, module.descriptor.supervision.instances.min
        to_spare = lasting(workers) - least
        if to_spare <= 0:
            return
        renewing = (renewed(workers), made.renew)
        used_at: dict[Worker, float] = {}
        for one in staying(workers):
            busy = one.load or one.state in COMES or one in renewing or one.follows
            used_at[one] = now if busy else one.service.used_at
        idle = [one for one in used_at if now - used_at[one] >= idle_s - SLACK_S]
        idle.sort(key=lambda one: used_at[one])
        # What runs and depends on it may have a connection of its own to it.
        kept = 1 if module.is_needed and not least else 0
        made.leave = [] if module.queue else idle[: max(0, to_spare - kept)]
        left = [used_at[one] for one in used_at if one not in made.leave]
        if left and to_spare > len(made.leave):
            again_at = min(left) + idle_s
            later = again_at if again_at > now + SLACK_S else now + idle_s
            made.again_at = min(made.again_at, later)

    def _plan_growth(self, made: Plan, now: float) -> None:
        module = self._module
        supervision, waiting = module.descriptor.supervision, module.queue
        free = room(module.workers, supervision)
        if free <= 0:
            return
        at = max(now - waiting.waited_s, self._settled_at) + QUEUE_WAIT_S
        if now >= at - SLACK_S:
            starting = sum(one.state in COMES for one in staying(module.workers))
            made.add = more_needed(len(waiting), starting, supervision.concurrency, free)
            at = now + QUEUE_WAIT_S
        made.again_at = min(made.again_at, at)

    def _do(self, made: Plan) -> bool:
        """Carry out a plan; returns whether it changed anything."""
        module = self._module
        if made.renew is not None:
            words = f"{made.renew.instance} {made.renew.service.why_due}, and this one follows it"
            module.add(words, follows=made.renew)
        if made.leave:
            module.asleep = len(made.leave) == len(staying(module.workers))
            idle_s = module.descriptor.supervision.instances.idle_stop_s
            for worker in made.leave:
                module.let_go(worker, f"idle for {idle_s:g} s")
        if made.add:
            self.settle()
            waited_s = module.queue.waited_s
            for _ in range(made.add):
                module.add(f"a request has waited {waited_s:.2g} s")
        return made.renew is not None or bool(made.leave) or made.add > 0
