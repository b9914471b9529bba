"""Run a module and ask it again what a transcript says that it was asked; keep its output.

The next recorded request is made when the requests that had been answered are answered; a cancel,
and the answer to a call of the module, once the module has printed as many lines. The start of a
process is its dialect's, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import trio

from protocol.connection import HostCalled, LocalError, Ready, Received
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.framing import UNCOUNTED, Line, LineSplitter
from protocol.transcript import Entry, EntrySource, Happened, outcome_of
from supervisor.policy.verdict import Exit
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.lone_process import LoneProcess
from supervisor.runtime.taps import Tap
from supervisor.transcripts.compare import is_of_host
from supervisor.transcripts.old_form import RpcIds, with_requests
from supervisor.transcripts.replay import (
    ReplayedProcess,
    UnplayableError,
    call_answered_by,
    own_ids,
    remembered,
    started_with,
)


class Played(msgspec.Struct, frozen=True):
    """The module's lines, each without its newline, and its end."""

    lines: tuple[Line, ...]
    exit: Exit
    unsent: int
    """How much of what the host said was never said: the output it waited for did not come."""
    overdue: bool
    """Whether the time ran out before the module had said all that was recorded."""
    has_other_ids: bool
    """Whether the ids of JSON-RPC were others when it was recorded."""


async def play(
    entries: Sequence[Entry], descriptor: Descriptor, host: Host, *, timeout_s: float
) -> Played:
    """Play the entries of one process to a new one; raises `SpawnError`.

    If it has not said all that was recorded after `timeout_s`, it is stopped.
    """
    player = _Player(with_requests(entries, descriptor), descriptor, host)
    await player.begin()
    overdue = False
    async with trio.open_nursery() as nursery:

        async def bound() -> None:
            nonlocal overdue
            await trio.sleep(timeout_s)
            overdue = True
            player.stop()

        nursery.start_soon(bound)
        nursery.start_soon(host.deadlines.run)
        ended = await player.run()
        nursery.cancel_scope.cancel()
    output = player.output
    return Played(output.finished(), ended, player.unsent, overdue, output.ids.differ)


class _Cue(NamedTuple):
    """What the host did, and what the module had said before it."""

    entry: Entry
    answered: frozenset[str]
    lines: int


class _Output(Tap):
    """The lines of a process, and the ids in those that it is told."""

    def __init__(self, line_bytes: int, heard: Callable[[], None]) -> None:
        self.lines: list[Line] = []
        self.ids = RpcIds()
        self._heard = heard
        self._splitter = LineSplitter(line_bytes, UNCOUNTED)

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        del instance
        if source is EntrySource.HOST:
            self.ids.written(data)
        elif source is EntrySource.MODULE:
            self.lines += self._splitter.feed(data)
            self._heard()  # not each line leads to an event

    def finished(self) -> tuple[Line, ...]:
        last = self._splitter.finish()
        return (*self.lines, *([] if last is None else [last]))


class _Player(LoneProcess):
    def __init__(self, entries: list[Entry], descriptor: Descriptor, host: Host) -> None:
        self.output = _Output(descriptor.supervision.limits.line_bytes, self.heard)
        memory = remembered(entries)
        super().__init__(descriptor, host, own_ids(entries), memory, self.output)
        self._is_single = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._has_start = self._is_single or started_with(entries)
        self._ends_by_itself = any(
            one.event is Happened.EXITED and not one.stopped_by_host for one in entries
        )
        self._calls: list[HostCalled] = []
        self._cues: list[_Cue] = []
        self._end = _Cue(entries[-1], frozenset(), 0)
        """What the module had said when its input was closed."""
        self._read(entries)

    def _read(self, entries: list[Entry]) -> None:
        """Note what the host did, and what the module had said, while it could be asked.

        A process per invocation sees its input end at once; then nothing is due, it ends by itself.
        """
        replayed = ReplayedProcess("", entries, self._descriptor, {})
        lines = 0
        for entry in entries:
            if entry.event in (Happened.STDIN_CLOSED, Happened.EXITED) and self._cues:
                break
            is_decision = entry.outcome is not None and is_of_host(entry.outcome)
            if entry.is_request:
                self._cues.append(_Cue(entry, frozenset(replayed.outcomes), 0))
            elif entry.is_answer or is_decision:
                self._cues.append(_Cue(entry, frozenset(), lines))
            elif entry.is_line and entry.source is EntrySource.HOST:
                self.output.ids.recorded(entry.content())
            elif entry.source is EntrySource.MODULE and entry.content().strip():
                # Before the first request, they answer what was asked before the recording.
                lines += bool(self._cues) or self._has_start
            with suppress(UnplayableError):
                replayed.play(entry)
            self._end = _Cue(entry, frozenset(replayed.outcomes), lines)

    @property
    def unsent(self) -> int:
        """How much of what the host said was not said yet."""
        asked = [one for one in self._cues if one.entry.is_request]
        return len(self._cues) - sum(one.entry.request_id in self.asked for one in asked)

    async def begin(self) -> None:
        """Start the process; raises `SpawnError`."""
        if self._is_single:
            self._go_on()
        await self.spawn(single_use=self._is_single)

    def take(self, item: Received) -> None:
        if isinstance(item, HostCalled):
            self._calls.append(item)
        elif isinstance(item, Ready) and not self._has_start:
            self.output.lines.clear()  # the recording began later: nothing of the start is in it

    def heard(self) -> None:
        if self.exit is not None:
            return
        if self.ready is not None or self._is_single:
            self._go_on()
        is_over = not self._cues and self._is_due(self._end)
        if self.start_failed is not None or (is_over and not self._ends_by_itself):
            self.stop()

    def stdout_closed(self) -> None:
        self.stop()

    def _go_on(self) -> None:
        while self._cues and self._is_due(self._cues[0]):
            called = call_answered_by(self._cues[0].entry, self._calls)
            entry = self._cues[0].entry
            if entry.is_answer and called is None:
                return
            self._cues.pop(0)
            if called is not None:
                self._calls.remove(called)
                self.process.answer(called, outcome_of(entry.outcome or {}))
            elif entry.outcome is not None:
                self.process.cancel(entry.request_id or "")
            elif entry.request_id not in self.asked:
                with suppress(LocalError):
                    self.ask(entry.request)

    def _is_due(self, cue: _Cue) -> bool:
        return cue.answered <= self.answered.keys() and len(self.output.lines) >= cue.lines
