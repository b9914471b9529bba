"""Run a module and ask it again what a transcript says that it was asked; keep its output.

The next recorded request is made when as many requests have been answered as had been then; a
cancel, and the answer to a call of the module, once the module has printed as many lines. The start
of a process is its dialect's, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import trio

from protocol.connection import HostCalled, LocalError, Ready, Received
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.framing import UNCOUNTED, Line, LineSplitter
from protocol.transcript import Entry, EntrySource, Happened, outcome_of
from supervisor.policy.verdict import Exit
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.lone_process import LoneProcess, Surroundings
from supervisor.runtime.taps import Tap
from supervisor.transcripts.compare import is_of_host
from supervisor.transcripts.old_form import with_requests
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
    entries: Sequence[Entry],
    descriptor: Descriptor,
    environment: Mapping[str, str],
    custody: Custody,
    log_files: LogFiles,
    *,
    timeout_s: float,
) -> Played:
    """Play the entries of one process to a new one; raises `SpawnError`.

    If it has not said all that was recorded after `timeout_s`, it is stopped.
    """
    around = Surroundings(environment, custody, log_files, Deadlines())
    player = _Player(with_requests(entries, descriptor), descriptor, around)
    await player.begin()
    overdue = False
    async with trio.open_nursery() as nursery:

        async def bound() -> None:
            nonlocal overdue
            await trio.sleep(timeout_s)
            overdue = True
            player.stop()

        nursery.start_soon(bound)
        ended = await player.run()
        nursery.cancel_scope.cancel()
    lines = player.output.finished()
    return Played(lines, ended, player.unsent, overdue, player.has_other_ids)


class _Cue(NamedTuple):
    """What the host did, and how much the module had said before it."""

    entry: Entry
    answers: int
    lines: int


class _Output(Tap):
    """The lines of a process."""

    def __init__(self, line_bytes: int, heard: Callable[[], None]) -> None:
        self.lines: list[Line] = []
        self._heard = heard
        self._splitter = LineSplitter(line_bytes, UNCOUNTED)

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        del instance
        if source is EntrySource.MODULE:
            self.lines += self._splitter.feed(data)
            self._heard()  # not each line leads to an event

    def finished(self) -> tuple[Line, ...]:
        last = self._splitter.finish()
        return (*self.lines, *([] if last is None else [last]))


class _Player(LoneProcess):
    def __init__(
        self, entries: list[Entry], descriptor: Descriptor, surroundings: Surroundings
    ) -> None:
        self.output = _Output(descriptor.supervision.limits.line_bytes, self.looked_at)
        memory = remembered(entries)
        super().__init__(descriptor, surroundings, own_ids(entries), memory, self.output)
        self._is_single = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._has_start = self._is_single or started_with(entries)
        self._ends_by_itself = any(
            one.event is Happened.EXITED and not one.stopped_by_host for one in entries
        )
        self._calls: list[HostCalled] = []
        self._read(entries, descriptor)

    def _read(self, entries: list[Entry], descriptor: Descriptor) -> None:
        """Note what the host did, and how much the module said while it could be asked.

        A process per invocation sees its input end at once; then nothing is due, it ends by itself.
        In a recording that began in the middle, answers to unrecorded requests do not count.
        """
        self._cues: list[_Cue] = []
        self._lines_due = 0
        replayed = ReplayedProcess("", entries, descriptor, {})
        for entry in entries:
            if entry.event in (Happened.STDIN_CLOSED, Happened.EXITED) and self._cues:
                break
            is_decision = entry.outcome is not None and is_of_host(entry.outcome)
            if entry.is_request or entry.is_answer or is_decision:
                self._cues.append(_Cue(entry, len(replayed.outcomes), self._lines_due))
            elif entry.source is EntrySource.MODULE and entry.content().strip():
                self._lines_due += 1
            with suppress(UnplayableError):
                replayed.play(entry)
        self._answers_due = len(replayed.outcomes)
        self.has_other_ids = replayed.has_other_ids

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
            # The recording began later: what the start led to is not in it.
            self.output.lines.clear()
            self.answered.clear()

    def looked_at(self) -> None:
        if self.exit is not None:
            return
        if self.ready is not None or self._is_single:
            self._go_on()
        is_over = (
            not self._cues
            and len(self.answered) >= self._answers_due
            and len(self.output.lines) >= self._lines_due
        )
        if self.start_failed is not None or (is_over and not self._ends_by_itself):
            self.stop()

    def stdout_closed(self) -> None:
        self.stop()

    def _go_on(self) -> None:
        while self._cues and self._is_due(self._cues[0]):
            entry = self._cues.pop(0).entry
            if (called := call_answered_by(entry, self._calls)) and entry.is_answer:
                self._calls.remove(called)
                self.dialogue.answer(called, outcome_of(entry.outcome or {}))
            elif entry.outcome is not None:
                self.dialogue.cancel(entry.request_id or "")
            elif entry.request_id not in self.asked:
                with suppress(LocalError):
                    self.ask(entry.request)

    def _is_due(self, cue: _Cue) -> bool:
        if cue.entry.is_request:
            return len(self.answered) >= cue.answers
        if cue.entry.is_answer and call_answered_by(cue.entry, self._calls) is None:
            return False
        return len(self.output.lines) >= cue.lines
