"""What a worker holds: something that starts, serves calls, and is gone at the end.

There are several kinds, such as a persistent process, and the readiness to run a process per
invocation; the transport chooses (`worker.LIVES`). A worker does not know which it has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from protocol.connection import (
    TOLERABLE,
    HostCalled,
    Quarantined,
    Stray,
    Violated,
    Warned,
)
from protocol.connection import Logged as ModuleLogEvent
from protocol.descriptor.model import Descriptor
from protocol.dialects.registry import DIALECTS, Dialect
from protocol.errors import Outcome
from protocol.replies import Operation
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Exit, last_words
from supervisor.runtime.files.module_log import ModuleLog, log_text
from supervisor.runtime.process.incarnation import Incarnation, Receiver
from supervisor.runtime.process.preflight import Obstacle, obstacle
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.description import Descriptions
from supervisor.runtime.supervision.notes import Recollection
from supervisor.runtime.taps import Taps

if TYPE_CHECKING:
    from supervisor.runtime.supervision.host import Host
    from supervisor.runtime.supervision.worker import Worker

TRACEPARENT = "TRACEPARENT"
"""The variable in which a process has the trace context of its request, as of OpenTelemetry."""

PREPARED = "prepared"
"""The reason of an end with which a program is prepared."""


SLOW = "if it is only slow to begin, supervision.timeouts.{} allows more"
"""Words for a start that was not ready within a bound."""


class LifeEnd(msgspec.Struct, frozen=True):
    """How a life ended: the reason as a word, a clause that follows `it`, and its process's end."""

    reason: str
    message: str
    exit: Exit = Exit()
    """Empty if no process of the life has ended."""
    obstacle: str | None = None
    """What keeps its program from running, as far as that shows without running it."""
    idle: bool = False
    """Whether it was ready and ended by itself, with 0, while nothing was asked of it."""
    ts: float = 0.0
    """When its worker took note of it, in Unix time (s)."""
    rule: str | None = None
    """The JSON pointer of the entry of `never_on` that keeps the module down."""

    @property
    def words(self) -> str:
        """The message, with what its stderr says of it."""
        said = last_words(self.exit.stderr_tail)
        return f"{self.message}; its last line on stderr: {said}" if said else self.message

    def as_told(self, blamed: LifeEnd | None, *, stopped: bool) -> LifeEnd:
        """Return this end with the reason that counts: that of `blamed`, or `stopped`."""
        reason, message = self.reason, self.message
        if blamed is not None:
            # Of a start that failed, its end may say more.
            message = message if reason == blamed.reason else blamed.message
            reason = blamed.reason
        if self.obstacle is not None:
            message = f"cannot be run as it is ({self.obstacle}): it {message}"
        reason = "stopped" if stopped else reason
        return msgspec.structs.replace(self, reason=reason, message=message)

    def as_idle(self) -> LifeEnd:
        """Return it as an end while idle, which is no crash where a request starts it again."""
        words = "exited with code 0 while nothing was asked of it"
        return msgspec.structs.replace(self, reason="idle", message=words)

    def evidence(self) -> dict[str, Any]:
        """Return what is known of it, for the daemon's log."""
        evidence: dict[str, Any] = {"reason": self.reason, "words": self.message}
        if self.exit.pid is not None:
            known = self.exit.evidence()
            evidence.update((key, value) for key, value in known.items() if value is not None)
        return evidence

    def shown(self) -> dict[str, Any]:
        """Return it as `last_exit` of a module's status."""
        exit_ = self.exit
        return {
            "reason": self.reason,
            "message": self.message,
            "ts": self.ts,
            "exit_code": exit_.exit_code,
            "signal": exit_.signal,
            "stderr_tail": exit_.stderr_tail,
            "survivors": exit_.survivors,
            "stopped_by_host": exit_.stopped_by_host,
            "limit": msgspec.to_builtins(exit_.breach),
            "rule": self.rule,
        }


class Life:
    """One start of a module, from spawn to gone. By default nothing runs and no call is taken."""

    takes_turn = True
    """Whether a start is work for this machine, of which only so much is begun at once."""
    is_instance = True
    """Whether changes of the state are reported under the instance's id, or the module's name."""

    def __init__(self, setting: Setting, owner: Worker) -> None:
        descriptor = setting.descriptor
        self.id = setting.next_instance() if self.is_instance else descriptor.name
        self._setting = setting
        self._owner = owner
        self._timeouts = descriptor.supervision.timeouts
        self._concurrency = descriptor.supervision.concurrency

    async def run(self) -> LifeEnd:
        """Live; returns when nothing is left."""
        raise NotImplementedError

    @property
    def load(self) -> int:
        return 0

    @property
    def oldest(self) -> tuple[str, float] | None:
        """The op of the call that it has had for longest, and since when (0: not known)."""
        return None

    def is_alive(self) -> bool:
        """Whether it lives, even if its end has not been taken note of yet."""
        return False

    def can_take(self) -> bool:
        return False

    def take(self, call: Call) -> None:
        raise NotImplementedError

    def end(self, *, abrupt: bool) -> None:
        """Come to an end: let calls in flight finish within a bound, or not when `abrupt`."""
        raise NotImplementedError

    def hurry(self) -> None:
        self.end(abrupt=True)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        """Ask `health` or `describe`."""
        raise NotImplementedError

    def instances(self) -> list[Instance]:
        return []


class Instance(msgspec.Struct, frozen=True):
    """What serves a module, as `status` shows it."""

    id: str
    pid: int | None
    """None if it is no process of ours."""
    uptime_s: float
    in_flight: int
    state: str | None = None
    """What it does, where that is not what its module does."""
    warning: str | None = None
    """What of its output was set aside or not understood last, and why."""
    last_line: str | None = None
    """What it printed last, of one that prepares its module."""


HELD = str(State.STOPPING)
"""What `status` calls an instance that is dead and cannot be reaped, whatever its module does."""


class Counters(msgspec.Struct):
    """What became of a module's lines, counted since the daemon started."""

    late_lines: int = 0
    """Lines for a request that was no longer open; dropped."""
    quarantined_lines: int = 0
    """Lines that were no protocol; kept in the module's log as an excerpt."""


class Preparation(msgspec.Struct):
    """The run of `prepare` for all workers of a descriptor; there is one at a time."""

    over: trio.Event | None = None
    """Set at the end of the run that is under way."""
    failure: LifeEnd | None = None
    """How the last run failed, if it did."""


class Setting(msgspec.Struct, frozen=True):
    """What a life gets from its module."""

    descriptor: Descriptor
    host: Host
    log: ModuleLog
    next_instance: Callable[[], str]
    descriptions: Descriptions
    """Takes what each process says that it is."""
    counters: Counters
    called: Callable[[HostCalled, Incarnation], None]
    """Takes a call to the host that is of no request."""
    taps: Taps = msgspec.field(default_factory=Taps)
    preparation: Preparation = msgspec.field(default_factory=Preparation)
    """Shared by the lives of one descriptor."""
    unset_variables: list[str] = []
    """The names in `pass_env` for which there was no value at the last start."""
    recollection: Recollection = msgspec.field(default_factory=Recollection)

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.descriptor.transport.protocol]

    def connect(self, instance: str, receiver: Receiver) -> Incarnation:
        """Return what speaks with a process that `spawn` starts."""
        host, descriptor = self.host, self.descriptor
        memory = self.recollection.memory
        return Incarnation(
            instance,
            self.dialect.connect(descriptor, host.next_request_id, memory),
            receiver,
            module_log=self.log,
            timeouts=descriptor.supervision.timeouts,
            deadlines=host.deadlines,
            taps=self.taps,
            parting=lambda: host.shutting_down,
        )

    async def spawn(self, incarnation: Incarnation, traceparent: str | None = None) -> None:
        """Start its process; raises `SpawnError`. `incarnation.run` has to follow.

        The `traceparent` is that of its one request.
        """
        variables = {} if traceparent is None else {TRACEPARENT: traceparent}
        process = await self.host.containers.spawn(self.descriptor, incarnation, variables)
        self.unset_variables[:] = process.unset_variables

    async def look_for_obstacle(self, doing: str) -> Obstacle | None:
        """Return what keeps the program from running, in a thread: its disk may be slow."""
        host, descriptor = self.host, self.descriptor
        look = partial(obstacle, descriptor, host.environment)
        return await host.registry.threads.run(f"{doing} the program of {descriptor.name}", look)

    def overhear(self, instance: str, call: Call) -> None:
        """Tell the taps of a call that an instance is about to serve, and later of its outcome."""
        if self.taps.listeners:
            for tap in self.taps.told_of(instance):
                tap.asked(instance, call.request)
                call.taps = (*call.taps, (tap, instance))

    def keep(
        self, instance: str, item: Stray | Quarantined | ModuleLogEvent | Warned | Violated
    ) -> None:
        """Count, or write to the module's log, what a process said beside its requests."""
        match item:
            case Stray():
                self.counters.late_lines += 1
                if item.warning:
                    self.log.host_line(instance, item.warning)
            case Quarantined() | Violated():
                self.counters.quarantined_lines += 1
                self.log.host_line(instance, f"{item.fault.message}: {item.fault.excerpt}")
            case Warned(notice=notice):
                self.counters.quarantined_lines += notice.reason in TOLERABLE
                self.log.host_line(instance, notice.words)
            case ModuleLogEvent():
                self.log.log_event(instance, log_text(item.event))
