"""What listens in on a module: recordings, attached while it runs and detached again.

While `listeners` is empty, one look at it is all that a chunk of output costs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.connection import HostCalled, Request
from protocol.errors import Outcome
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Exit

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation


class Tap:
    """Listens in on a module; none of its methods may block."""

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        """Take bytes that passed through one of the process's pipes."""

    def happened(self, instance: str, event: Happened, **facts: Any) -> None: ...

    def asked(self, instance: str, request: Request) -> None:
        """A request is handed to the process, or is one that its connection makes itself."""

    def answered(self, instance: str, request: Request, outcome: Outcome) -> None:
        """A request has its outcome."""

    def host_answered(self, instance: str, called: HostCalled, outcome: Outcome) -> None:
        """A call of the module has its answer, or the last part of it."""


class Taps:
    def __init__(self) -> None:
        self.listeners: dict[Tap, frozenset[str]] = {}
        """Each with the processes that it is told nothing of."""
        self._processes: dict[str, Incarnation] = {}

    def attach(self, listener: Tap, *, from_spawn: bool = False) -> None:
        """Tell `listener` from now on; with `from_spawn`, only of processes spawned from now on."""
        running = dict(self._processes)
        self.listeners[listener] = frozenset(running if from_spawn else ())
        for process in () if from_spawn else running.values():
            mid_line = process.connection.unfinished_line is not None
            facts = {"pid": process.pid, "mid_line": mid_line}
            listener.happened(process.instance, Happened.ATTACHED, **facts)

    def detach(self, listener: Tap) -> None:
        """Tell it no more; idempotent."""
        self.listeners.pop(listener, None)

    @contextlib.contextmanager
    def of_process(self, process: Incarnation) -> Iterator[None]:
        """List a process that was just spawned within the block."""
        self._processes[process.instance] = process
        self.happened(process.instance, Happened.SPAWNED, pid=process.pid)
        try:
            yield
        finally:
            del self._processes[process.instance]

    def told_of(self, instance: str) -> list[Tap]:
        return [one for one, left_out in self.listeners.items() if instance not in left_out]

    def said(self, instance: str, source: EntrySource, data: bytes | memoryview) -> None:
        if self.listeners and data:
            for one in self.told_of(instance):
                one.said(instance, source, bytes(data))

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        if self.listeners:
            for one in self.told_of(instance):
                one.happened(instance, event, **facts)

    def host_answered(self, instance: str, called: HostCalled, outcome: Outcome) -> None:
        for one in self.told_of(instance):
            one.host_answered(instance, called, outcome)

    def exited(self, instance: str, exit_: Exit) -> None:
        breach = exit_.breach
        self.happened(
            instance,
            Happened.EXITED,
            exit_code=exit_.exit_code,
            signal=exit_.signal,
            stopped_by_host=exit_.stopped_by_host or None,
            limit=None if breach is None else msgspec.structs.asdict(breach),
        )
