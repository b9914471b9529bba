"""What listens in on a module: recordings, attached while it runs and detached again.

While there is none, `tap` is None, and that is all a chunk of output costs: one look at it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.errors import Outcome
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Exit

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation
    from supervisor.runtime.supervision.call import Call


class Tap:
    """Listens in on a module; none of its methods may block."""

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        """Take bytes that passed through one of the process's pipes."""

    def happened(self, instance: str, event: Happened, **facts: Any) -> None: ...

    def asked(self, instance: str) -> None:
        """A request has been handed to the process."""

    def answered(self, instance: str, call: Call, outcome: Outcome) -> None:
        """A request has its outcome."""


Listeners = Mapping[Tap, frozenset[str]]
"""Each with the processes that it is told nothing of."""


class Taps:
    def __init__(self) -> None:
        self.tap: Tap | None = None
        """Tells them all; None while there is none."""
        self._listeners: Listeners = {}
        self._processes: dict[str, Incarnation] = {}

    def attach(self, listener: Tap, *, from_spawn: bool = False) -> None:
        """Tell `listener` from now on; with `from_spawn`, only of processes spawned from now on."""
        running = dict(self._processes)
        left_out = frozenset(running if from_spawn else ())
        self._listen({**self._listeners, listener: left_out})
        for process in () if from_spawn else running.values():
            facts = {"pid": process.pid, "mid_line": process.mid_line}
            listener.happened(process.instance, Happened.ATTACHED, **facts)

    def detach(self, listener: Tap) -> None:
        """Tell it no more; idempotent."""
        self._listen({one: out for one, out in self._listeners.items() if one is not listener})

    @contextlib.contextmanager
    def of_process(self, process: Incarnation) -> Iterator[None]:
        """List a process that was just spawned within the block."""
        self._processes[process.instance] = process
        if self.tap is not None:
            self.tap.happened(process.instance, Happened.SPAWNED, pid=process.pid)
        try:
            yield
        finally:
            del self._processes[process.instance]

    def said(self, instance: str, source: EntrySource, data: bytes | memoryview) -> None:
        if self.tap is not None and data:
            self.tap.said(instance, source, bytes(data))

    def happened(self, instance: str, event: Happened) -> None:
        if self.tap is not None:
            self.tap.happened(instance, event)

    def exited(self, instance: str, exit_: Exit) -> None:
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

    def _listen(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self.tap = _All(listeners) if listeners else None


class _All(Tap):
    """Tells each of several; some are told only of processes spawned after they came."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def _of(self, instance: str) -> Iterator[Tap]:
        return (one for one, left_out in self._listeners.items() if instance not in left_out)

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        for one in self._of(instance):
            one.said(instance, source, data)

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        for one in self._of(instance):
            one.happened(instance, event, **facts)

    def asked(self, instance: str) -> None:
        for one in self._of(instance):
            one.asked(instance)

    def answered(self, instance: str, call: Call, outcome: Outcome) -> None:
        for one in self._of(instance):
            one.answered(instance, call, outcome)
