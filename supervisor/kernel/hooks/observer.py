"""One hook that observes: its queue, and a task that gives it one event after the other.

Recording an event only puts it here. The task calls the hook while it serves; while it is down,
events wait, and the queue drops. An event whose call failed is not given again: it may be what
crashes the hook.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.descriptor.model import HOOK_OP, Descriptor, Drop, Hook, Start
from protocol.frames import DEPTH
from protocol.response import Response
from protocol.weight import is_deeper
from supervisor.kernel.parties import Invoke, OutcomeOnly
from supervisor.kernel.recorder import Recorder
from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.held_bytes import ANSWERS, Account
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module

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


class Observer:
    """A hook that observes, while it is mounted."""

    def __init__(
        self,
        host: Host,
        fleet: Fleet,
        recorder: Recorder,
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
