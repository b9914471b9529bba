"""Who listens in on a module: recordings, attached while it runs and detached again.

While nobody does, `tap` is None, and that is all a chunk of output costs: one look at it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from protocol.connection import HostCalled
from protocol.errors import Outcome
from protocol.events import CallEvent
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Exit
from supervisor.runtime.supervision.call import Call, Congestion, Listener

if TYPE_CHECKING:
    from supervisor.runtime.process.dialogue import Dialogue


class Tap(Protocol):
    """Whoever listens in; none of its methods may block."""

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        """Take bytes that passed through one of the process's pipes."""

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        """Take note of what became of the process."""

    def asked(self, instance: str) -> None:
        """Take note that a request has been handed to the process."""

    def answered(self, instance: str, call: Call, outcome: Outcome) -> None:
        """Take the outcome of a request."""


class Spoken(Protocol):
    """A process that can be listened in on."""

    @property
    def instance(self) -> str:
        """Its name."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def mid_line(self) -> bool:
        """Whether it has printed the beginning of a line."""


class Taps:
    """The recordings of one module, and its processes."""

    def __init__(self) -> None:
        self.tap: Tap | None = None
        """What to tell; None while nobody listens."""
        self._listeners: tuple[Tap, ...] = ()
        self._processes: dict[str, Spoken] = {}

    def attach(self, listener: Tap, *, from_spawn: bool = False) -> None:
        """Tell `listener` from now on; with `from_spawn`, only of processes spawned from now on."""
        running = dict(self._processes)
        if from_spawn:
            listener = _NewOnly(listener, frozenset(running))
        self._listen((*self._listeners, listener))
        for process in () if from_spawn else running.values():
            facts = {"pid": process.pid, "mid_line": process.mid_line}
            listener.happened(process.instance, Happened.ATTACHED, **facts)

    def detach(self, listener: Tap) -> None:
        """Tell it no more; can be called twice."""
        self._listen(
            tuple(
                one
                for one in self._listeners
                if one is not listener and getattr(one, "listener", None) is not listener
            )
        )

    @contextlib.contextmanager
    def of_process(self, process: Spoken) -> Iterator[None]:
        """Have a process that was just spawned known within the block."""
        self._processes[process.instance] = process
        if self.tap is not None:
            self.tap.happened(process.instance, Happened.SPAWNED, pid=process.pid)
        try:
            yield
        finally:
            del self._processes[process.instance]

    def said(self, instance: str, source: EntrySource, data: bytes | memoryview) -> None:
        """Tell what was written or read, if anything was."""
        if self.tap is not None and data:
            self.tap.said(instance, source, bytes(data))

    def happened(self, instance: str, event: Happened) -> None:
        """Tell what became of a pipe."""
        if self.tap is not None:
            self.tap.happened(instance, event)

    def exited(self, instance: str, exit_: Exit) -> None:
        """Tell how a process ended."""
        if self.tap is None:
            return
        self.tap.happened(
            instance,
            Happened.EXITED,
            exit_code=exit_.exit_code,
            signal=exit_.signal,
            stopped_by_host=exit_.stopped_by_host or None,
            limit=None if exit_.breach is None else msgspec.structs.asdict(exit_.breach),
        )

    def overhear(self, instance: str, call: Call) -> None:
        """Have the outcome of a call told that an instance is about to serve."""
        if self.tap is not None:
            self.tap.asked(instance)
            call.listener = _Overheard(call.listener, self.tap, instance)

    def _listen(self, listeners: tuple[Tap, ...]) -> None:
        self._listeners = listeners
        self.tap = _All(listeners) if listeners else None


class _All:
    """Tells each of several."""

    def __init__(self, listeners: tuple[Tap, ...]) -> None:
        self._listeners = listeners

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        for one in self._listeners:
            one.said(instance, source, data)

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        for one in self._listeners:
            one.happened(instance, event, **facts)

    def asked(self, instance: str) -> None:
        for one in self._listeners:
            one.asked(instance)

    def answered(self, instance: str, call: Call, outcome: Outcome) -> None:
        for one in self._listeners:
            one.answered(instance, call, outcome)


class _NewOnly:
    """Leaves out the processes that there were."""

    def __init__(self, listener: Tap, old: frozenset[str]) -> None:
        self.listener = listener
        self._old = old

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        if instance not in self._old:
            self.listener.said(instance, source, data)

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        if instance not in self._old:
            self.listener.happened(instance, event, **facts)

    def asked(self, instance: str) -> None:
        if instance not in self._old:
            self.listener.asked(instance)

    def answered(self, instance: str, call: Call, outcome: Outcome) -> None:
        if instance not in self._old:
            self.listener.answered(instance, call, outcome)


class _Overheard:
    """The listener of a call, with somebody who hears the outcome too."""

    def __init__(self, listener: Listener, tap: Tap, instance: str) -> None:
        self._listener = listener
        self._tap = tap
        self._instance = instance

    def event(self, event: CallEvent, call: Call, line: bytes | None) -> None:
        self._listener.event(event, call, line)

    def host_call(self, asked: HostCalled, dialogue: Dialogue, call: Call) -> None:
        self._listener.host_call(asked, dialogue, call)

    def answered(self, outcome: Outcome, call: Call) -> None:
        self._tap.answered(self._instance, call, outcome)
        self._listener.answered(outcome, call)

    def congested(self) -> Congestion:
        return self._listener.congested()
