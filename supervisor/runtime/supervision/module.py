"""One module: the calls that wait for it, its workers, and the descriptor that is in effect.

It gives each call to a worker, has as many of them as `Sizing` plans, and tells of their
states, which together are its own. While its descriptor changes, it has workers of two descriptors:
those in effect serve, those beside them come or go (`succession`).
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import structlog
import trio

from protocol.descriptor.model import Descriptor, Start
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Reason
from protocol.replies import Operation
from supervisor.policy.causes import went
from supervisor.policy.latency import Histogram
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.tally import Tally
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.process.environment import unset_variables
from supervisor.runtime.supervision import pool
from supervisor.runtime.supervision.call import Call, CallQueue
from supervisor.runtime.supervision.description import Descriptions, generation
from supervisor.runtime.supervision.host import DescriptionChange, Host
from supervisor.runtime.supervision.life import Counters, Instance, LifeEnd, Setting
from supervisor.runtime.supervision.persistent import PersistentLife
from supervisor.runtime.supervision.pool import Sizing
from supervisor.runtime.supervision.prepare import forget_prepared
from supervisor.runtime.supervision.refusal import (
    given_up,
    queue_full,
    refusal,
    state_evidence,
    unavailable,
)
from supervisor.runtime.supervision.succession import Succession
from supervisor.runtime.supervision.worker import Wish, Worker
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import in_turns

if TYPE_CHECKING:
    from supervisor.runtime.supervision.fleet import Fleet

log = structlog.get_logger()

_CONCERNED = SERVES | {State.STARTING}


class Module:
    def __init__(
        self,
        descriptor: Descriptor,
        host: Host,
        nursery: trio.Nursery,
        fleet: Fleet,
        generations: Iterator[int] | None = None,
    ) -> None:
        """`generations` numbers its instances, from 1 if left out."""
        self.name = descriptor.name
        self.host = host
        self.fleet = fleet
        self.counters = Counters()
        self.tally = Tally()
        """Of the invocations that it was given."""
        self.latency = Histogram()
        """From acceptance to response, of those in `tally`."""
        self.log = ModuleLog(descriptor.name, host.log_files, host.wall_clock)
        self.taps = Taps()
        self.account = Account(host.ledger, f"module {descriptor.name}")
        """Of its calls to the host."""
        self.missing: tuple[str, ...] = descriptor.supervision.depends_on
        """Those of `depends_on` that do not serve at the moment."""
        self.stopped_by_command = not descriptor.enabled
        self.removed = False
        self.asleep = False
        """Whether it is down, or about to be, for being idle: a request starts it again."""
        self.barred = False
        """Whether `never_on` keeps it from being started for a request."""
        self.exit: LifeEnd | None = None
        """What its last process died of, under the descriptor in effect."""
        self._former_exit: LifeEnd | None = None
        self._restarts: Counter[str] = Counter()
        """Of workers that are gone."""
        self._nursery = nursery
        self._looked: trio.Event | None = None
        """Set once its server has answered `look_again`, while that is asked."""
        self._generations = itertools.count(1) if generations is None else generations
        self.queue = CallQueue()
        self.descriptor = descriptor
        """The one in effect."""
        self.setting = self.make_setting(descriptor)
        self.descriptions = self.setting.descriptions
        """What its processes say that they are."""
        self.span_attributes = DIALECTS[descriptor.transport.protocol].span_attributes
        self.workers = [self.make_worker(self.setting)]
        """Those of the descriptor in effect, in the order they were added; there is always one."""
        self.state = State.DOWN
        """That of its workers together."""
        self.only = pool.only(self.workers)
        """The worker, where there is but one and it is only given calls."""
        self.sizing = Sizing(self)
        self.succession = Succession(self)

    # Commands.

    def start(self, cause: str) -> None:
        """Want it up; a module that waits for others is started when they are ready.

        Without effect when the daemon is stopping: it would not be told to stop again.
        """
        if self.host.shutting_down:
            return
        self.stopped_by_command = False
        if self.succession.follows:
            self.succession.start(cause)
            return
        if not self.descriptor.enabled:
            self.stopped_by_command = True
            self.refuse_waiting(unavailable(self))
            return
        if self.waits_for and self.state is State.DOWN:
            self.workers[0].wanted = Wish.UP
            self.fleet.module_changed(self)  # so that what it waits for is started
            return
        self.asleep = self.barred = False
        for worker in pool.staying(self.workers) or self.workers[:1]:
            worker.start(cause)
        self.fill(self.workers, cause)
        if self.only is None:
            self._enter(self.workers[0].instance, cause)
            self._serve()  # one that was on its way out may have stayed

    def stop(self, cause: str) -> None:
        self.stopped_by_command = True
        was_down = self.state is State.DOWN
        self.succession.stop(cause, for_good=self.ending)
        self.stop_workers(cause)
        if was_down:
            self.succession.follow()
            self.fleet.module_changed(self)  # what is wanted has changed, and others wait for that

    def stop_workers(self, cause: str) -> None:
        """Stop the workers in effect, and let none come up before all are told."""
        self.asleep = False
        for worker in self.workers:
            worker.want_down()
        self._cut_renewal_short(cause)
        for worker in tuple(self.workers):
            worker.stop(cause)

    def restart(self, cause: str) -> None:
        """Replace its processes; requests that wait keep waiting. If it is down, start it."""
        if self.host.shutting_down:
            return
        self.stopped_by_command = False
        if self.succession.follows or self.state is State.DOWN:
            self.start(cause)
            return
        self.asleep = self.barred = False
        self._cut_renewal_short(cause)
        most = self.descriptor.supervision.instances.max
        for worker in pool.staying(self.workers)[most:]:
            self.let_go(worker, cause)
        for worker in pool.staying(self.workers) or self.workers[:1]:
            worker.restart(cause)
        self.fill(self.workers, cause)

    def forget_prepared(self) -> bool:
        """Prepare its program anew before its next start; False if it is never prepared."""
        if not self.descriptor.transport.prepare:
            return False
        forget_prepared(self.setting)
        return True

    def remove(self, cause: str) -> None:
        """Stop it for good: it cannot be started any more."""
        self.removed = True
        self.stop(cause)

    def come_back(self, descriptor: Descriptor) -> None:
        """Take it in again, though its process may not be gone yet: what follows waits for that."""
        self.removed, self.stopped_by_command = False, not descriptor.enabled
        words = "its descriptor came back"
        self.succession.offer(descriptor, words, anew=False)
        if descriptor.supervision.start is Start.EAGER:
            self.start(words)

    def hurry(self) -> None:
        for worker in (*self.workers, *self.succession.beside):
            worker.hurry()

    # Its workers.

    def make_setting(self, descriptor: Descriptor) -> Setting:
        transport, host = descriptor.transport, self.host.environment
        # What env files set is known once it is started.
        in_files = bool(transport.env_file or host.env_files)
        unset = [] if in_files else unset_variables(transport, {**host, **transport.env})
        return Setting(
            descriptor,
            self.host,
            self.log,
            lambda: f"{self.name}#{next(self._generations)}",
            Descriptions(descriptor, self.host.deadlines, self._described),
            self.counters,
            lambda asked, process: self.host.calls.take(self, asked, process),
            self.taps,
            unset_variables=unset,
        )

    def make_worker(self, setting: Setting, follows: Worker | None = None) -> Worker:
        """Return a worker, down; it `follows` the worker that goes once this one is ready."""
        return Worker(setting, self._nursery, self, follows)

    def fill(self, group: list[Worker], cause: str, at_least: int = 1) -> None:
        """Start workers until there are `min`, or `at_least` so many."""
        setting = group[0].setting
        supervision = setting.descriptor.supervision
        least = max(supervision.instances.min, at_least)
        while pool.lasting(group) < least and pool.room(group, supervision) > 0:
            group.append(self.make_worker(setting))
            group[-1].start(cause)

    def install(self, group: list[Worker], descriptor: Descriptor) -> list[Worker]:
        """Put other workers, and their descriptor, into effect; return the former ones.

        Generations, counters, the log and the requests that wait are the module's, and stay.
        """
        former, before, needed = self.workers, self.state, self.descriptor.supervision.depends_on
        for one in former:
            self._restarts.update(one.restarts)
        self._former_exit = self.exit or self._former_exit
        self.workers, self.setting, self.descriptor = group, group[0].setting, descriptor
        self.descriptions = self.setting.descriptions
        self.span_attributes = DIALECTS[descriptor.transport.protocol].span_attributes
        self.exit = pool.newest_exit(group)
        self.asleep = self.barred = False
        self.tally.look_again()
        self.only = pool.only(group)
        self.state = pool.state(group)
        if self.state is State.DOWN:
            self.missing = descriptor.supervision.depends_on  # the fleet finds those that serve
        self.host.observer.mounted(descriptor, again=True)
        if descriptor.supervision.depends_on != needed:
            self.fleet.dependence_changed()
        if before is self.state:
            self.fleet.module_changed(self)
        else:
            self._announce(before, None, "its new descriptor took effect")
        self._serve()
        self.sizing.look()
        return former

    def label(self, descriptor: Descriptor) -> None:
        """Take a descriptor that differs in nothing but where its file is and how it is written."""
        self.descriptor = descriptor
        self.descriptions.relabel(descriptor)

    # What a worker tells.

    def moved(self, worker: Worker, before: State, cause: str) -> None:
        if worker is self.only:
            self._enter(worker.instance, cause)
            return
        in_effect = worker.setting is self.setting
        if in_effect and before is State.STARTING and worker.serves:
            old = worker.follows
            if old is not None and not old.leaves:
                self.let_go(old, f"it {old.service.why_due}")
        if not in_effect or len(self.workers) > 1:
            self._tell_of_worker(worker, before, cause)
            self.fleet.module_changed(self)
        if not in_effect:
            self.succession.look_beside()
            return
        if worker.is_gone:
            self._drop(worker)
        self._enter(worker.instance, cause)
        self.sizing.look()

    def died(self, worker: Worker) -> None:
        """Remember the exit of a worker that is not just renewed, or idle for long."""
        if worker.setting is self.setting and not worker.leaves:
            self.exit = worker.last_exit
            self.barred = self.barred or (self.exit is not None and self.exit.rule is not None)
            if worker.wanted is Wish.ASLEEP:
                self.asleep = not pool.is_wanted(self.workers)

    def freed(self, worker: Worker) -> None:
        if worker is not self.only:
            worker.service.used_at = trio.current_time()
            if worker.leaves and not worker.load:
                worker.leave(worker.why_gone)
        if self.queue:
            self._serve()

    def refuse(self, worker: Worker) -> None:
        """Refuse the calls that wait, unless another worker, or descriptor, will serve them."""
        hopeless = self.state in (State.BACKOFF, State.FAILED, State.DOWN)
        if worker.setting is self.setting and hopeless and not self.succession.follows:
            self.refuse_waiting(unavailable(self))

    def _cut_renewal_short(self, cause: str) -> None:
        old = pool.renewed(self.workers)
        if old is not None and not old.leaves:
            self.let_go(old, cause)

    def _drop(self, gone: Worker) -> None:
        """Forget one that does not come back; the last one stands for the module while it is down.

        A successor that is gone leaves the one that it followed in its place, for a while.
        """
        old, gone.follows = gone.follows, None
        if old is not None and old.serves and not old.leaves:
            later_s = self.descriptor.supervision.retry_failed_s
            old.service.spared_until = trio.current_time() + later_s
        for one in self.workers:
            if one.follows is gone:
                one.follows = None
        gone.wanted = Wish.DOWN
        if len(self.workers) > 1:
            self.workers.remove(gone)
            self._restarts.update(gone.restarts)
            self.only = pool.only(self.workers)

    def add(self, cause: str, follows: Worker | None = None) -> None:
        self.workers.append(self.make_worker(self.setting, follows))
        self.workers[-1].start(cause)

    def let_go(self, worker: Worker, cause: str) -> None:
        """Let a worker leave when it has served the calls that it has."""
        worker.leave(cause)
        self._enter(worker.instance, cause)

    # Its own state.

    def _enter(self, instance: str | None, cause: str) -> None:
        """Take the state that its workers come to together, and tell of it if it is another."""
        before, only = self.state, self.only
        self.state = pool.state(self.workers) if only is None else only.state
        if before is not self.state:
            self._announce(before, instance, cause)

    def _announce(self, before: State, instance: str | None, cause: str) -> None:
        if self.state in SERVES and before not in SERVES:
            self.sizing.settle()
        name, after = self.name, self.state
        known = {} if instance is None else {"instance": instance}
        level = _level(after)
        level("module state", module=name, **known, before=before, after=after, cause=cause)
        self.log.host_line(instance, f"{before} -> {after}: {cause}")
        self.host.observer.module_state(name, instance, before, after, cause)
        if (before in SERVES) is not (after in SERVES) or after in (State.FAILED, State.DOWN):
            self._tell_dependants(went(name, before, after, cause))
        self.succession.look()
        self.fleet.module_changed(self)

    def _tell_of_worker(self, worker: Worker, before: State, cause: str) -> None:
        after, instance = worker.state, worker.instance
        known = {"module": self.name, "instance": instance}
        _level(after)("instance state", **known, before=before, after=after, cause=cause)
        self.log.host_line(instance, f"this instance: {before} -> {after}: {cause}")

    def _tell_dependants(self, words: str) -> None:
        # They are not restarted: most can do without for a moment, and each knows best what to do.
        if self.host.shutting_down:
            return  # each is stopped before what it depends on
        for one in self.fleet.dependants(self.name):
            if one.state in _CONCERNED:
                one.log.host_line(one.workers[0].instance, words)

    def _described(
        self, descriptor: Descriptor, instance: str, description: dict[str, Any], changes: int
    ) -> None:
        if changes:
            self.log.host_line(instance, "describes itself anew")
        misfits = tuple(self.descriptions.misfits())
        said = DescriptionChange(instance, description, changes, misfits)
        self.host.observer.described(descriptor, said)
        self.tally.look_again()

    # Calls.

    def submit(self, call: Call) -> None:
        """Serve a call now, let it wait, or refuse it."""
        if not self.queue:
            worker = self.only or pool.least_loaded(self.workers)
            if worker is not None and self._give(worker, call):
                return
        refused = refusal(self, is_call=True) or queue_full(self, len(self.queue))
        if refused is not None:
            call.settle(refused)
            return
        self.queue.add(call)
        if self.state is State.DOWN or self.asleep:
            self.start("a request came")
        if self.only is None:
            self.sizing.press()

    def _give(self, worker: Worker, call: Call) -> bool:
        """Give a call to a worker; False if it has no room."""
        life = worker.serving
        if life is None or not life.can_take():
            return False
        life.take(call)
        service = worker.service
        service.served += 1
        if service.served >= service.most:
            self.sizing.look()
        return True

    def _free(self) -> Worker | None:
        """Return the worker to give the next call to, if there is room."""
        worker = self.only or pool.least_loaded(self.workers)
        return None if worker is None or worker.free() is None else worker

    def _serve(self) -> None:
        while self.queue and (worker := self._free()) is not None:
            call = self.queue.take()
            if call is not None:
                self._give(worker, call)

    def resume(self, call: Call) -> None:
        if call.server is not None:
            call.nudge()
        elif self.queue.recall(call):
            self.submit(call)

    def refuse_waiting(self, failure: Failure) -> None:
        """Settle the calls that wait, a turn at a time: it will not be ready soon."""
        waiting = self.queue.take_all()
        if waiting:
            refusing = (call.settle(failure) for call in waiting)
            self._nursery.start_soon(in_turns, f"module {self.name}", "refusing", refusing)

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """End a call for a reason of the host's own, wherever it is."""
        if call.settled:
            return
        waited = self.queue.drop(call)
        if call.server is not None:
            stopped = call.server.refined(stopped)
        call.settle(given_up(self, call, stopped, waited=waited))
        if call.server is not None:
            call.server.give_up(call, stopped)

    async def ask(self, operation: Operation, timeout_s: float | None = None) -> Outcome:
        """Ask `health` or `describe` of a module that is up."""
        if self.state not in SERVES:
            return refusal(self) or Failure.because(
                Reason.NOT_READY, f"{self.name} is {self.state.words}", **state_evidence(self)
            )
        timeouts = self.descriptor.supervision.timeouts
        usual = timeouts.health_s if operation is Operation.HEALTH else timeouts.describe_s
        lives = pool.serving(self.workers)
        return await pool.asked(lives, operation, usual if timeout_s is None else timeout_s)

    @property
    def may_have_more(self) -> bool:
        """Whether it may have other ops by now than it said: a server's tools come and go."""
        descriptor = self.descriptor
        is_server = descriptor.transport.protocol == "mcp" and not descriptor.inputs
        return is_server and self.state in SERVES

    async def look_again(self) -> None:
        """Ask its server once more what tools it has; return when that is known.

        It takes `describe_s` at the most. Callers that come before the answer share one question.
        """
        if self._looked is None:
            self._looked = trio.Event()
            self._nursery.start_soon(self._look_again, self._looked)
        with trio.move_on_after(self.descriptor.supervision.timeouts.describe_s):
            await self._looked.wait()

    async def _look_again(self, looked: trio.Event) -> None:
        try:
            lives = pool.serving(self.workers)
            newest = max(lives, key=lambda life: generation(life.id), default=None)
            if isinstance(newest, PersistentLife):
                await newest.look_again()
        finally:
            self._looked = None
            looked.set()

    # What is known of it.

    @property
    def wanted(self) -> bool:
        return pool.is_wanted(self.workers) or self.succession.wants

    @property
    def shown_state(self) -> str:
        enabled = self.descriptor.enabled or self.state is not State.DOWN
        return str(self.state) if enabled else "disabled"

    @property
    def is_down(self) -> bool:
        """Whether nothing of it runs, and nothing is to."""
        busy = self.state in HAS_PROCESS or self.wanted
        return not (busy or self.succession.beside)

    @property
    def starts_on_demand(self) -> bool:
        """Whether the module is down, and a module that depends on it would start it."""
        # A module that an operator stopped stays stopped, a failed one has its own retry, and one
        # that ended for good (temporary, transient) is not started again and again.
        may_start = not self.stopped_by_command and (self.asleep or self.last_exit is None)
        return self.state is State.DOWN and may_start

    @property
    def ending(self) -> bool:
        """Whether it is to go for good, by itself or with the daemon."""
        return self.removed or self.host.shutting_down

    @property
    def restarts(self) -> int:
        """How often one of its processes came back after an unasked end."""
        return self.restarts_by_cause.total()

    @property
    def restarts_by_cause(self) -> Counter[str]:
        """As `restarts`, by the reason of the end before (`LifeEnd.reason`)."""
        return sum((one.restarts for one in self.workers), self._restarts)

    @property
    def last_exit(self) -> LifeEnd | None:
        """The exit of the last process, but for those that were renewed, or idle for long."""
        return self.exit or self._former_exit

    @property
    def next_retry_s(self) -> float | None:
        """Seconds until the next try of a worker in `backoff` or `failed`."""
        waits = [wait for one in self.workers if (wait := one.next_retry_s) is not None]
        return min(waits, default=None)

    @property
    def is_needed(self) -> bool:
        """Whether modules that run depend on it."""
        return any(one.state in _CONCERNED for one in self.fleet.dependants(self.name))

    @property
    def waits_for(self) -> tuple[str, ...]:
        """What is missing for its start; a module that runs waits for nothing."""
        return () if self.state in HAS_PROCESS else self.missing

    @property
    def capacity(self) -> int:
        """How many calls it can serve at a time, when all its processes are there."""
        supervision = self.descriptor.supervision
        return supervision.concurrency * supervision.instances.max

    @property
    def start_s(self) -> float:
        """How long its start may take, by its timeouts; 0 if it serves."""
        if self.state in SERVES:
            return 0.0
        timeouts = self.descriptor.supervision.timeouts
        prepare_s = timeouts.prepare_s if self.descriptor.transport.prepare else 0.0
        return prepare_s + timeouts.start_s + timeouts.describe_s

    @property
    def oldest(self) -> tuple[str, float] | None:
        """The op of the call that it has served for longest, and since when (0: not known)."""
        found = [one for life in pool.serving(self.workers) if (one := life.oldest) is not None]
        return min(found, key=operator.itemgetter(1), default=None)

    @property
    def has_room(self) -> bool:
        return not self.queue and self._free() is not None

    def instances(self) -> list[tuple[Instance, State]]:
        """Return the instances, each with its state; those that go or come are last."""
        return pool.instances((*self.workers, *self.succession.beside))

    def is_ready(self) -> bool:
        """Whether it serves, and its process has not just died unnoticed."""
        return any(life.is_alive() for life in pool.serving(self.workers))

    @property
    def in_flight(self) -> int:
        return sum(one.in_flight for one, _ in self.instances())

    @property
    def queued(self) -> int:
        return len(self.queue) + len(self.queue.aside)


def _level(state: State) -> Callable[..., Any]:
    bad = state in (State.BACKOFF, State.FAILED, State.DEGRADED)
    return log.warning if bad else log.info  # type: ignore[no-any-return]
