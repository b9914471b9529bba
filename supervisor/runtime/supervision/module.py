"""One module: its queue, its slots, and what it answers when it cannot serve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import structlog
import trio

from protocol.connection import HostCalled
from protocol.descriptor.model import Descriptor, Start
from protocol.dialects import DIALECTS
from protocol.errors import Failure, Outcome, Reason
from protocol.replies import Operation
from supervisor.policy.findings import Quarantined
from supervisor.policy.latency import Histogram
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.process.dialogue import Dialogue
from supervisor.runtime.supervision.call import Call, CallQueue
from supervisor.runtime.supervision.crash_record import LastExit
from supervisor.runtime.supervision.description import Descriptions
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.life import Counters, Instance, Setting
from supervisor.runtime.supervision.not_serving import not_serving, state_evidence
from supervisor.runtime.supervision.observer import Described
from supervisor.runtime.supervision.pool import Pool
from supervisor.runtime.supervision.preparation import forget_prepared
from supervisor.runtime.supervision.slot import Slot
from supervisor.runtime.supervision.succession import Succession
from supervisor.runtime.taps import Taps

log = structlog.get_logger()


class Module:
    """What a descriptor became."""

    def __init__(
        self,
        descriptor: Descriptor,
        host: Host,
        nursery: trio.Nursery,
        changed: Callable[[], None],
        stuck: Callable[[Module], Failure | None],
        *,
        dependants: Callable[[str], Iterable[Module]] = lambda _: (),
        succeeded: Callable[[], None] = lambda: None,
        generations: Iterator[int] | None = None,
    ) -> None:
        """Make the module, down.

        `changed` is called after each change of its state; `stuck` says why the modules it waits
        for will not be ready soon, if so; `dependants` gives those that depend on it, by its name;
        `succeeded` is called when another descriptor has taken effect. `generations` numbers its
        instances, from 1 if left out.
        """
        self.descriptor = descriptor
        """That of the pool which serves."""
        self.name = descriptor.name
        self.counters = Counters()
        self.latency = Histogram()
        """From acceptance to response, of those in `counters.invocations`."""
        self.log = ModuleLog(descriptor.name, host.log_files, host.wall_clock)
        self.taps = Taps()
        self.account = Account(host.ledger, f"module {descriptor.name}")
        """Of its calls to the host."""
        self.missing: tuple[str, ...] = ()
        """Those of `depends_on` that do not serve at the moment."""
        self._host = host
        self._nursery = nursery
        self.changed = changed
        self._stuck = stuck
        self._dependants = dependants
        self._succeeded = succeeded
        self._generations = itertools.count(1) if generations is None else generations
        self._queue = CallQueue()
        self.stopped_by_command = False
        self._removed = False
        self._restarts = 0
        """Of pools that are gone."""
        self._last_exit: LastExit | None = None
        self.pool = self.make_pool(descriptor)
        self.pool.queue = self._queue
        self.descriptions = self.pool.setting.descriptions
        self.span_attributes = DIALECTS[descriptor.transport.protocol].span_attributes
        self.succession = Succession(self)

    # Commands.

    def start(self, cause: str) -> None:
        """Want it up; a module that waits for others is started when they are ready.

        Without effect when the daemon is stopping: nobody would tell it to stop again.
        """
        if self._host.shutting_down:
            return
        self.stopped_by_command = False
        if self.succession.follows:
            self.succession.start(cause)
        elif self.waits_for and self.state is State.DOWN:
            self.pool.want()
            self.changed()  # so that what it waits for is started
        else:
            self.pool.start(cause)

    def stop(self, cause: str) -> None:
        """Want it down."""
        self.stopped_by_command = True
        was_down = self.state is State.DOWN
        self.succession.stop(cause, for_good=self.ending)
        self.pool.stop(cause)
        if was_down:
            self.succession.follow()
            self.changed()  # what is wanted has changed, and others wait for that too

    def restart(self, cause: str) -> None:
        """Replace its processes; requests that wait go on waiting. At the end, as `start`."""
        if self._host.shutting_down:
            return
        self.stopped_by_command = False
        if self.succession.follows or self.state is State.DOWN:
            self.start(cause)
        else:
            self.pool.restart(cause)

    def forget_prepared(self) -> bool:
        """Have its program prepared anew before its next start; False if it is never prepared."""
        if not self.descriptor.transport.prepare:
            return False
        forget_prepared(self.pool.setting)
        return True

    def remove(self, cause: str) -> None:
        """Want it down for good: nobody can start it any more."""
        self._removed = True
        self.stop(cause)

    def come_back(self, descriptor: Descriptor) -> None:
        """Be there again, though its process may not be gone yet: what follows waits for that."""
        self._removed = self.stopped_by_command = False
        words = "its descriptor came back"
        self.succession.offer(descriptor, words, anew=False)
        if descriptor.supervision.start is Start.EAGER:
            self.start(words)

    # What its succession has it do.

    def make_pool(self, descriptor: Descriptor) -> Pool:
        """Return a pool for a descriptor of its; down, and nothing waits for it."""
        descriptions = Descriptions(descriptor, self._host.deadlines, self._described)
        setting = Setting(
            descriptor,
            self._host,
            self.log,
            self._next_instance,
            descriptions,
            self.counters,
            self._called,
            self._gone,
            self.taps,
        )
        return Pool(setting, self._nursery, CallQueue(), self)

    def install(self, pool: Pool, descriptor: Descriptor) -> None:
        """Have another pool serve, by its descriptor; who waits is served by that.

        Generations, counters, the log and the requests that wait are the module's, and stay.
        """
        before, self.pool = self.pool, pool
        self._restarts += before.restarts
        self._last_exit = before.last_exit or self._last_exit
        before.queue, pool.queue = CallQueue(), self._queue
        self.descriptor, self.descriptions = descriptor, pool.setting.descriptions
        self.span_attributes = DIALECTS[descriptor.transport.protocol].span_attributes
        if pool.state is State.DOWN:
            self.missing = descriptor.supervision.depends_on  # `_changed` looks who serves
        self._host.observer.mounted(descriptor, again=True)
        self._succeeded()
        if before.state is not pool.state:
            self.moved(pool, None, before.state, pool.state, "its new descriptor took effect")
        else:
            self.changed()
        pool.serve()

    def label(self, descriptor: Descriptor) -> None:
        """Take a descriptor that differs in nothing but where its file is and how it is written."""
        self.descriptor = descriptor
        self.descriptions.relabel(descriptor)

    def tell_refused(self, refused: Quarantined) -> None:
        """Tell that a descriptor failed."""
        log.warning("descriptor refused", module=self.name, **msgspec.structs.asdict(refused))
        self.log.host_line(None, refused.reason)
        self._host.observer.quarantined(refused)

    # Calls.

    @property
    def state(self) -> State:
        """The state of its slots together."""
        return self.pool.state

    @property
    def slot(self) -> Slot:
        """The first of its slots; most modules have no other."""
        return self.pool.seats[0].slot

    @property
    def wanted(self) -> bool:
        """Whether it is to be up."""
        return self.pool.seats.wanted or self.succession.wants

    @property
    def is_down(self) -> bool:
        """Whether nothing of it runs, and nothing is to."""
        busy = self.state in HAS_PROCESS or self.wanted
        return not (busy or self.succession.beside())

    @property
    def ending(self) -> bool:
        """Whether it is to go for good, by itself or with the daemon."""
        return self._removed or self._host.shutting_down

    @property
    def restarts(self) -> int:
        """How often one of its processes came back after an end nobody asked for."""
        return self._restarts + self.pool.restarts

    @property
    def last_exit(self) -> LastExit | None:
        """What the last process died of, but for those that were renewed, or idle for long."""
        return self.pool.last_exit or self._last_exit

    def instances(self) -> list[tuple[Instance, State]]:
        """Return what runs at the moment, each with its state; what goes or comes is last."""
        pools = [self.pool, *self.succession.beside()]
        return [one for pool in pools for one in pool.seats.instances()]

    def hurry(self) -> None:
        """Kill what there is."""
        for pool in (self.pool, *self.succession.beside()):
            pool.hurry()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """What is missing for its start; one that runs waits for nothing."""
        return () if self.state in HAS_PROCESS else self.missing

    @property
    def capacity(self) -> int:
        """How many calls it can serve at a time, when all its processes are there."""
        supervision = self.descriptor.supervision
        return supervision.concurrency * supervision.instances.max

    @property
    def has_room(self) -> bool:
        """Whether a call would be served now."""
        return not self._queue and self.pool.has_room

    def submit(self, call: Call) -> None:
        """Serve a call now, let it wait, or refuse it."""
        if not self._queue and self.pool.take(call):
            return
        refusal = self._refusal()
        limit = self._queue_limit()
        if refusal is None and len(self._queue) >= limit:
            words = f"{self.name} has {len(self._queue)} requests waiting, which is its limit"
            refusal = Failure.because(Reason.QUEUE_FULL, words, queue=limit)
        if refusal is not None:
            call.settle(refusal)
            return
        self._queue.add(call)
        if self.state is State.DOWN or self.pool.asleep:
            self.start("a request came")
        self.pool.press()

    def resume(self, call: Call) -> None:
        """Have a call go on: its client may have room again."""
        if call.server is not None:
            call.nudge()
        elif self._queue.recall(call):
            self.submit(call)

    def refuse_waiting(self, failure: Failure) -> None:
        """Answer those that wait: it will not be ready soon."""
        for call in self._queue.take_all():
            call.settle(failure)

    def is_ready(self) -> bool:
        """Whether it serves, and its process has not just died unnoticed."""
        return any(life.is_alive() for life in self.pool.seats.serving())

    def give_up(self, call: Call, stopped: Stopped) -> None:
        """End a call for a reason of the host's own, wherever it is."""
        if call.settled:
            return
        waited = self._queue.drop(call)
        evidence: dict[str, Any] = {}
        if call.server is not None:
            stopped, evidence = call.server.refined(stopped), call.server.evidence()
        message = stopped.message
        if waited and stopped.reason is Reason.DEADLINE:
            message += "; it was still waiting for its turn"
            evidence = self._state_evidence()
        elif stopped.reason not in (Reason.DEADLINE, Reason.SILENCE):
            pass
        elif (begun := evidence.get("unfinished_line")) is not None:
            message += f"; it printed a line without a newline at its end: {begun}"
        elif call.instead is not None:
            message += f"; {call.instead.in_place_of_answer}"
            evidence = {**evidence, **call.instead.evidence}
        call.settle(Failure.because(stopped.reason, message, **evidence))
        if call.server is not None:
            call.server.give_up(call, stopped)

    async def ask(self, operation: Operation, timeout_s: float | None = None) -> Outcome:
        """Ask `health` or `describe` of a module that is up."""
        if not self.pool.serves:
            return self._refusal() or Failure.because(
                Reason.NOT_READY, f"{self.name} is {self.state}", **self._state_evidence()
            )
        timeouts = self.descriptor.supervision.timeouts
        usual = timeouts.health_s if operation is Operation.HEALTH else timeouts.describe_s
        return await self.pool.ask(operation, usual if timeout_s is None else timeout_s)

    @property
    def in_flight(self) -> int:
        """How many calls are with a process."""
        return sum(one.in_flight for one, _ in self.instances())

    @property
    def queued(self) -> int:
        """How many calls wait."""
        return len(self._queue) + len(self._queue.aside)

    # What the pool tells.

    def refuse(self, pool: Pool) -> None:
        """Answer those that wait, unless another pool is to serve them."""
        if pool is self.pool and not self.succession.follows:
            self.refuse_waiting(self.unavailable())

    def moved(
        self, pool: Pool, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Tell of the module's new state, if this pool is the one that serves."""
        if pool is not self.pool:
            self.moved_within(pool, instance, before, after, cause)
            return
        known = {} if instance is None else {"instance": instance}
        level = _level(after)
        level("module state", module=self.name, **known, before=before, after=after, cause=cause)
        self.log.host_line(instance, f"{before} -> {after}: {cause}")
        self._host.observer.module_state(self.name, instance, before, after, cause)
        if (before in SERVES) is not (after in SERVES) or after in (State.FAILED, State.DOWN):
            self._tell_dependants(before, after, cause)
        self.succession.told(pool)
        self.changed()

    def moved_within(
        self, pool: Pool, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Tell of the new state of an instance that is not all there is of the module."""
        level, known = _level(after), {"module": self.name, "instance": instance}
        level("instance state", **known, before=before, after=after, cause=cause)
        self.log.host_line(instance, f"this instance: {before} -> {after}: {cause}")
        self.succession.told(pool)
        self.changed()

    def is_needed(self) -> bool:
        """Whether modules that run depend on it."""
        return any(one.state in _CONCERNED for one in self._dependants(self.name))

    def _tell_dependants(self, before: State, after: State, cause: str) -> None:
        # They are not restarted: most can do without for a moment, and each knows best what to do.
        if self._host.shutting_down:
            return  # each is stopped before what it depends on
        for one in self._dependants(self.name):
            if one.state in _CONCERNED:
                words = f"{self.name}, which it depends on, went from {before} to {after}: {cause}"
                one.log.host_line(one.slot.instance, words)

    def _queue_limit(self) -> int:
        supervision = self.descriptor.supervision
        if self.pool.serves:
            return supervision.queue
        # What could be served at once were it up is not queued for want of capacity: without this
        # a lazy module with `queue` 0 could never be started by a request.
        most = max(supervision.instances.min, 1)
        return max(supervision.queue, supervision.concurrency * most)

    def _refusal(self) -> Failure | None:
        """Return why a call cannot even wait, or None if it can."""
        state = self.state
        if state in (State.BACKOFF, State.FAILED):
            return self.unavailable()
        asleep = self.pool.asleep and not self.pool.barred
        if state is State.STOPPING and not self.wanted and not asleep:
            return self._host.stopping(self.name, self._state_evidence())
        if state is State.DOWN and not self.wanted:
            lazy = self.descriptor.supervision.start is Start.LAZY
            wakes = lazy and not self.stopped_by_command and not self.pool.barred
            return None if wakes or asleep else self.unavailable()
        return self._stuck(self) if self.waits_for else None

    def unavailable(self) -> Failure:
        """Say why it serves nobody now."""
        evidence = self._state_evidence()
        if self._host.shutting_down:
            return self._host.stopping(self.name, evidence)
        if self._removed:
            words = f"{self.name} was removed: its descriptor is gone"
            return Failure.because(Reason.STOPPING, words, **evidence)
        return not_serving(self.name, self.pool, evidence)

    def _state_evidence(self) -> dict[str, Any]:
        return state_evidence(self.pool, self.waits_for)

    def _next_instance(self) -> str:
        return f"{self.name}#{next(self._generations)}"

    def _called(self, asked: HostCalled, dialogue: Dialogue) -> None:
        self._host.calls.take(self, asked, dialogue)

    def _gone(self, instance: str) -> None:
        self._host.calls.end(instance)

    def _described(
        self, descriptor: Descriptor, instance: str, description: dict[str, Any], changes: int
    ) -> None:
        if changes:
            self.log.host_line(instance, "describes itself anew")
        misfits = tuple(self.descriptions.misfits())
        said = Described(instance, description, changes, misfits)
        self._host.observer.described(descriptor, said)


def _level(state: State) -> Callable[..., Any]:
    bad = state in (State.BACKOFF, State.FAILED, State.DEGRADED)
    return log.warning if bad else log.info  # type: ignore[no-any-return]


_CONCERNED = SERVES | {State.STARTING}
