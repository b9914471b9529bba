"""The mounted hooks: taken from the fleet, recorded as `hook:register`.

A hook that is a gate stands before the modules that it names. To a hook that observes goes each
entry of the journal whose name its globs fit, but nothing about itself, and nothing that was caused
on its behalf (kernel.parties). Recording an event only puts it into the hook's queue. A task calls
the hook while it serves; while it is down, events wait, and the queue drops. An event whose call
failed is not given again: it may be what crashes the hook.
"""

from __future__ import annotations

import re
from collections import deque
from fnmatch import translate
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.descriptor.model import HOOK_OP, Descriptor, Drop, Gate, Hook, Kind, Start
from protocol.frames import DEPTH
from protocol.journal_event import JournalEvent
from protocol.response import Response
from protocol.weight import is_deeper
from supervisor.kernel.effects import Effects
from supervisor.kernel.parties import Invoke, Lineage, OutcomeOnly
from supervisor.kernel.recorder import Recorder
from supervisor.policy.hook_chain import Link
from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.held_bytes import ANSWERS, Account
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module

NAMES_REMEMBERED = 1024
"""Names of events whose observers are cached; modules may make names up."""

NAME_CHARS = 200
"""A longer name is matched by its beginning."""


class Hooks:
    """The hooks of one daemon.

    While a descriptor's file is bad its last good content holds: the fleet tells of no change then.
    So a closed gate stays closed until its descriptor is removed.
    """

    def __init__(
        self,
        host: Host,
        fleet: Fleet,
        effects: Effects,
        gates: Gates,
        *,
        invoke: Invoke,
        nursery: trio.Nursery,
    ) -> None:
        """Run the task of each hook that observes in `nursery`."""
        self._host = host
        self._fleet = fleet
        self._recorder = effects.recorder
        self._lineage = effects.lineage
        self._gates = gates
        self._invoke = invoke
        self._nursery = nursery
        self._mounted: dict[str, Hook] = {}
        self._observers: dict[str, HookSubscriber] = {}
        self._globs: dict[str, re.Pattern[str]] = {}
        self._wanted: dict[str, tuple[HookSubscriber, ...]] = {}

    def mount(self, descriptor: Descriptor) -> None:
        """Mount a module that is new, or has another descriptor; most are no hooks."""
        name = descriptor.name
        hook = descriptor.hook if descriptor.kind is Kind.HOOK and descriptor.enabled else None
        if hook is None:
            self.unmount(name)
            return
        before, self._mounted[name] = self._mounted.get(name), hook
        self._gates.mount(name, hook)
        if hook.observe:
            self._observe(descriptor, hook)
        else:
            self._observe_no_more(name)
        if hook != before:
            self._register(name, hook)

    def unmount(self, name: str) -> None:
        """Unmount a module that is gone or no hook any more."""
        self._gates.forget(name)
        if self._mounted.pop(name, None) is not None:
            self._gates.unmount(name)
            self._observe_no_more(name)

    def moved(self, name: str) -> None:
        observer = self._observers.get(name)
        if observer is not None:
            observer.look()

    def end(self) -> None:
        for name in tuple(self._observers):
            self._observe_no_more(name)

    def status(self, module: Module) -> dict[str, Any] | None:
        """Return what `status` shows of a hook, or None for any other module."""
        hook = self._mounted.get(module.name)
        if hook is None:
            return None
        observer = self._observers.get(module.name)
        events = None if observer is None else observer.status()
        return {**msgspec.to_builtins(hook), "events": events}

    def _observe(self, descriptor: Descriptor, hook: Hook) -> None:
        """Tell a hook of events from now on, or by another descriptor than before."""
        name = descriptor.name
        observer = self._observers.get(name)
        if observer is None:
            observer = HookSubscriber(
                self._host,
                self._fleet,
                self._recorder,
                self._lineage,
                self._invoke,
                descriptor=descriptor,
                hook=hook,
            )
            self._observers[name] = observer
            self._nursery.start_soon(observer.run)
        else:
            observer.change(descriptor, hook)
        self._globs[name] = re.compile("|".join(translate(one) for one in hook.observe))
        self._changed()

    def _observe_no_more(self, name: str) -> None:
        observer = self._observers.pop(name, None)
        if observer is not None:
            del self._globs[name]
            self._changed()
            observer.end()

    def _changed(self) -> None:
        self._wanted.clear()
        # Without observers, an entry costs no more than a look at this.
        self._recorder.overhear(self._overhear if self._observers else None)

    def _overhear(self, entry: JournalEvent, body: bytes) -> None:
        event = entry.event
        wanted = self._wanted.get(event)
        if wanted is None:
            wanted = self._who_wants(event)
        if not wanted:
            return
        behind = self._lineage.of(entry.request_id)
        waiting = Waiting(event, body, behind)
        for observer in wanted:
            if observer.name != entry.module and observer.name not in behind:
                observer.put(waiting)

    def _who_wants(self, event: str) -> tuple[HookSubscriber, ...]:
        found = tuple(
            observer
            for name, observer in self._observers.items()
            if self._globs[name].match(event[:NAME_CHARS])
        )
        if len(self._wanted) >= NAMES_REMEMBERED:
            self._wanted.clear()
        self._wanted[event] = found
        return found

    def _register(self, name: str, hook: Hook) -> None:
        for glob in hook.observe:
            self._recorder.record(
                "hook:register", module=name, data={"event": glob, "as": "observer"}
            )
        for gate in hook.gate:
            data = {
                "event": str(gate),
                "as": "gate",
                "modules": list(hook.modules),
                "priority": hook.priority,
                "on_failure": str(hook.on_failure),
            }
            self._recorder.record("hook:register", module=name, data=data)


class GateChain(NamedTuple):
    """The gates before a module, in the order in which they were mounted."""

    pre: tuple[Link, ...]
    post: tuple[Link, ...]
    error: tuple[Link, ...]


class Gates:
    def __init__(self) -> None:
        self.any = False
        """Whether there is a gate at all; each invocation asks this."""
        self._hooks: dict[str, tuple[Hook, re.Pattern[str]]] = {}
        self._standing: dict[str, GateChain | None] = {}

    def mount(self, name: str, hook: Hook) -> None:
        """Put a hook before the modules that it names; a mounted one keeps its place."""
        if hook.gate:
            self._hooks[name] = hook, re.compile("|".join(translate(one) for one in hook.modules))
        else:
            self._hooks.pop(name, None)
        self._changed()

    def unmount(self, name: str) -> None:
        self._hooks.pop(name, None)
        self._changed()

    def forget(self, name: str) -> None:
        """Compute the gates of a module anew: it may be of another kind now."""
        self._standing.pop(name, None)

    def before(self, module: Module) -> GateChain | None:
        """Return the gates before a module; None if there are none, as before any hook."""
        name = module.name
        if name not in self._standing:
            self._standing[name] = self._find(module)
        return self._standing[name]

    def hook(self, name: str) -> Hook | None:
        """Return the gate of the hook's current descriptor; None if it was removed."""
        found = self._hooks.get(name)
        return None if found is None else found[0]

    def _changed(self) -> None:
        self.any = bool(self._hooks)
        self._standing.clear()

    def _find(self, module: Module) -> GateChain | None:
        if module.descriptor.kind is Kind.HOOK:
            return None
        standing = GateChain(*(self._links(gate, module.name) for gate in Gate))
        return standing if any(standing) else None

    def _links(self, gate: Gate, module: str) -> tuple[Link, ...]:
        return tuple(
            Link(name, hook.priority, hook.on_failure)
            for name, (hook, globs) in self._hooks.items()
            if gate in hook.gate and globs.match(module)
        )


QUEUE_BYTES = 16 << 20
"""The bound on a queue, whatever the hook's `queue` says: an entry may be a large patch."""


class Waiting(NamedTuple):
    """An event for an observer: its name, the document as JSON, and the hooks behind it."""

    event: str
    body: bytes
    behind: frozenset[str]


class EventQueue:
    """The events that wait for one observer."""

    def __init__(
        self, limit: int, drop: Drop, account: Account, limit_bytes: int = QUEUE_BYTES
    ) -> None:
        self.dropped = 0
        self._account = account
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._drop = drop
        self._waiting: deque[Waiting] = deque()

    @property
    def held_bytes(self) -> int:
        return self._account.total

    def bound(self, limit: int, drop: Drop) -> None:
        self._limit, self._drop = limit, drop
        self._shrink()

    def put(self, one: Waiting) -> None:
        """Add an event; where there is no room, drop the oldest ones, or this one."""
        size = len(one.body)
        full = len(self._waiting) >= self._limit or self.held_bytes + size > self._limit_bytes
        in_the_way = self._in_the_way(size)
        if in_the_way is None or (
            (full or in_the_way) and (self._drop is Drop.NEWEST or size > self._limit_bytes)
        ):
            self.dropped += 1
            return
        for _ in range(in_the_way):
            self.take()
            self.dropped += 1
        self._waiting.append(one)
        self._account.add(ANSWERS, size)
        self._shrink()

    def take(self) -> Waiting:
        """Remove and return the oldest; raises `IndexError` if the queue is empty."""
        one = self._waiting.popleft()
        self._account.add(ANSWERS, -len(one.body))
        return one

    def __len__(self) -> int:
        return len(self._waiting)

    def _in_the_way(self, size: int) -> int | None:
        """Return how many of the oldest to drop for so much room; None if all are too few."""
        freed = 0
        for count, one in enumerate(self._waiting):
            if freed >= size or self._account.fits(size - freed):
                return count if self._account.fits(size - freed) else None
            freed += len(one.body)
        return len(self._waiting) if self._account.fits(size - freed) else None

    def _shrink(self) -> None:
        while len(self._waiting) > self._limit or self.held_bytes > self._limit_bytes:
            self.take()
            self.dropped += 1


REPORT_S = 10.0
"""How often `hook:dropped` may be recorded of a hook."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class HookSubscriber:
    """A hook that observes, while it is mounted."""

    def __init__(
        self,
        host: Host,
        fleet: Fleet,
        recorder: Recorder,
        lineage: Lineage,
        invoke: Invoke,
        *,
        descriptor: Descriptor,
        hook: Hook,
    ) -> None:
        self.name = descriptor.name
        account = Account(host.ledger, f"hook {descriptor.name}")
        self.queue = EventQueue(hook.queue, hook.drop, account)
        self.in_flight = 0
        self.delivered = 0
        self.failed = 0
        self.hook = hook
        self._room = _room(descriptor, hook)
        self._host = host
        self._fleet = fleet
        self._recorder = recorder
        self._lineage = lineage
        self._invoke = invoke
        self._reported = 0
        self._report: Timer | None = None
        self._look = trio.Event()
        self._scope = trio.CancelScope()

    def change(self, descriptor: Descriptor, hook: Hook) -> None:
        """Replace the descriptor; the queue stays."""
        self.hook = hook
        self._room = _room(descriptor, hook)
        self.queue.bound(hook.queue, hook.drop)
        self._tell_of_drops()
        self.look()

    def put(self, one: Waiting) -> None:
        self.queue.put(one)
        self._tell_of_drops()
        self.look()

    def look(self) -> None:
        """Check again whether an event can be given: the hook's state may have changed."""
        self._look.set()

    async def run(self) -> None:
        with self._scope:
            while True:
                self._look = trio.Event()
                if not self._give_one():
                    await self._look.wait()
                await trio.lowlevel.checkpoint()  # the neighbours' turn

    def end(self) -> None:
        """Give no more events; those that wait are lost, and counted."""
        self._scope.cancel()
        self.queue.bound(0, self.hook.drop)
        if self._report is not None:
            self._report.cancel()
            self._report = None
        self._record_drops()

    def status(self) -> dict[str, Any]:
        return {
            "waiting": len(self.queue),
            "waiting_bytes": self.queue.held_bytes,
            "in_flight": self.in_flight,
            "delivered": self.delivered,
            "failed": self.failed,
            "dropped": self.queue.dropped,
        }

    def _give_one(self) -> bool:
        if not self.queue or self.in_flight >= self._room:
            return False
        module = self._fleet.modules.get(self.name)
        if module is None or not self._takes_events(module):
            return False
        one = self.queue.take()
        args = {"event": one.event, "data": _decode(one.body)}
        if is_deeper(args, DEPTH, one.body):
            self.failed += 1  # it could not be written to the hook
            return True
        self.in_flight += 1
        content = {"op": HOOK_OP, "args": args}
        client, behind = OutcomeOnly(self._ended), one.behind | {self.name}
        self._invoke(SUPERVISOR, self.name, content, client, behind=behind, recorded=False)
        return True

    def _takes_events(self, module: Module) -> bool:
        """Return whether it serves now; a lazy module may start for an event."""
        if module.state in SERVES:
            return module.is_ready()
        return (
            not self._host.shutting_down
            and module.state is State.DOWN
            and module.descriptor.supervision.start is Start.LAZY
            and not module.stopped_by_command
            and not module.barred
            and not module.waits_for
            and module.queued == 0
        )

    def _ended(self, response: Response) -> None:
        self._lineage.end(response.request_id)
        self.in_flight -= 1
        if response.ok:
            self.delivered += 1
        else:
            self.failed += 1
        self.look()

    def _tell_of_drops(self) -> None:
        if self._report is None and self.queue.dropped > self._reported:
            self._record_drops()
            self._report = self._host.deadlines.after(REPORT_S, self._report_again)

    def _report_again(self) -> None:
        self._report = None
        self._tell_of_drops()

    def _record_drops(self) -> None:
        count = self.queue.dropped - self._reported
        if count:
            self._reported = self.queue.dropped
            data = {"count": count, "waiting": len(self.queue)}
            self._recorder.record("hook:dropped", module=self.name, data=data)


def _room(descriptor: Descriptor, hook: Hook) -> int:
    """Return how many events the hook may have at once; a gate's calls need room beside them."""
    concurrency = descriptor.supervision.concurrency
    return concurrency - 1 if hook.gate and concurrency > 1 else concurrency
