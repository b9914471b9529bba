"""How many workers a module has: more when calls wait, fewer when idle, and which one is renewed.

`plan` is a function over a list of workers; `Sizing` does what it says, and looks again when it
says. What holds at any time:

- at most `max` workers, and one more while one is renewed. A successor `follows` the one that goes;
  that serves until the successor is ready, then gets no more calls and leaves when it has served
  those that it has. A successor that does not get ready is tried again as any worker is; if it is
  not to come back, the next try is `retry_failed_s` later;
- a worker that leaves does not come back, but for the last one, which stands for the module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from protocol.descriptor.model import Supervision
from supervisor.policy.lifecycle import COMES, SERVES
from supervisor.policy.pool import QUEUE_WAIT_S, more_needed
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.news import is_needed
from supervisor.runtime.supervision.worker import SLACK_S, Worker
from supervisor.runtime.supervision.workers import is_wanted, lasting, renewed, room, staying

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module


class Demand(msgspec.Struct, frozen=True):
    """What is asked of the workers of a module; times are monotonic, in s."""

    now: float
    waiting: int
    """How many calls wait, the first one since:"""
    waiting_since: float
    settled_at: float
    """When the module began to serve, or was given another worker last."""
    may_add: bool
    """Whether processes may be started without being asked for."""
    is_needed: bool
    """Whether modules that run depend on it."""


class Plan(msgspec.Struct):
    """What is to be done about the number of workers, and when to look again (monotonic, s)."""

    renew: Worker | None = None
    leave: Sequence[Worker] = ()
    add: int = 0
    again_at: float = math.inf


def plan(workers: Sequence[Worker], supervision: Supervision, demand: Demand) -> Plan:
    made = Plan()
    if demand.may_add:
        _plan_renewal(made, workers, demand)
    if supervision.instances.idle_stop_s is not None:
        _plan_leaving(made, workers, supervision, demand)
    if demand.waiting and demand.may_add:
        _plan_growth(made, workers, supervision, demand)
    return made


def _plan_renewal(made: Plan, workers: Sequence[Worker], demand: Demand) -> None:
    if renewed(workers) is not None:
        return  # one at a time
    there = [one for one in workers if one.serves and not one.leaves]
    made.renew = next((one for one in there if one.service.is_due(demand.now)), None)
    if made.renew is None:
        made.again_at = min([one.service.due_at for one in there], default=math.inf)


def _plan_leaving(
    made: Plan, workers: Sequence[Worker], supervision: Supervision, demand: Demand
) -> None:
    idle_s, now = supervision.instances.idle_stop_s, demand.now
    least = supervision.instances.min
    to_spare = lasting(workers) - least
    if idle_s is None or to_spare <= 0:
        return
    renewing = (renewed(workers), made.renew)
    used_at: dict[Worker, float] = {}
    for one in staying(workers):
        busy = one.load or one.state in COMES or one in renewing or one.follows
        used_at[one] = now if busy else one.service.used_at
    idle = [one for one in used_at if now - used_at[one] >= idle_s - SLACK_S]
    idle.sort(key=lambda one: used_at[one])
    # What runs and depends on it may have a connection of its own to it.
    kept = 1 if demand.is_needed and not least else 0
    made.leave = [] if demand.waiting else idle[: max(0, to_spare - kept)]
    left = [used_at[one] for one in used_at if one not in made.leave]
    if left and to_spare > len(made.leave):
        again_at = min(left) + idle_s
        made.again_at = min(made.again_at, again_at if again_at > now + SLACK_S else now + idle_s)


def _plan_growth(
    made: Plan, workers: Sequence[Worker], supervision: Supervision, demand: Demand
) -> None:
    free = room(workers, supervision)
    if free <= 0:
        return
    at = max(demand.waiting_since, demand.settled_at) + QUEUE_WAIT_S
    if demand.now >= at - SLACK_S:
        starting = sum(one.state in COMES for one in staying(workers))
        made.add = more_needed(demand.waiting, starting, supervision.concurrency, free)
        at = demand.now + QUEUE_WAIT_S
    made.again_at = min(made.again_at, at)


class Sizing:
    __slots__ = ("_again", "_again_at", "_looks", "_module", "_settled_at")

    def __init__(self, module: Module) -> None:
        self._module = module
        self._settled_at = 0.0
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
        """Add and remove workers as `plan` says; look again when that says."""
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
        module, now = self._module, trio.current_time()
        if module.only or module.state not in SERVES:
            return Plan()
        demand = Demand(
            now=now,
            waiting=len(module.queue),
            waiting_since=now - module.queue.waited_s,
            settled_at=self._settled_at,
            may_add=is_wanted(module.workers) and not (module.barred or module.ending),
            is_needed=is_needed(module),
        )
        return plan(module.workers, module.descriptor.supervision, demand)

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
