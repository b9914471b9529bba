"""Run a module and write the host's lines of a transcript to it, in step; keep its output.

The next recorded request is written when as many requests have been answered as had been then, and
any other line once the module has printed as many lines. The dialect tells requests and answers
(`sent`). The process is held, pumped and stopped by an `Incarnation` like any other; `Script`
stands where a dialect would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio

from protocol.connection import (
    NOTHING,
    Alive,
    Answered,
    Asked,
    Connection,
    Events,
)
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.dialects.registry import DIALECTS
from protocol.framing import UNCOUNTED, Line, LineSplitter, Outgoing
from protocol.transcript import Entry, EntrySource, Happened
from supervisor.policy.verdict import Exit
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.supervision.containers import Containers
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.taps import Taps

Connect = Callable[[], Connection]


class Cue(msgspec.Struct, frozen=True):
    """A recorded line of the host, and how much the module had said before it."""

    data: bytes
    answers: int
    lines: int


class Played(msgspec.Struct, frozen=True):
    """The module's lines, each without its newline, and its end."""

    lines: tuple[Line, ...]
    exit: Exit
    unsent: int
    """How many recorded lines were never written, since the output they waited for did not come."""
    overdue: bool
    """Whether the time ran out before the module had said all that was recorded."""


class Script(Connection):
    """The host's part in a recording; no request is the host's own."""

    def __init__(
        self, entries: Sequence[Entry], connect: Connect, *, closes_stdin: bool, line_bytes: int
    ) -> None:
        """Play the host's part in the entries of one process; `connect` makes their dialect."""
        self.closes_stdin = closes_stdin
        self.outgoing = Outgoing()
        self.lines: list[Line] = []
        self._splitter = LineSplitter(line_bytes, UNCOUNTED)
        self._understood = connect()
        self._answers = 0
        self._cues, self._answers_due, self._lines_due = _cues(entries, connect())
        self.has_a_part = bool(self._cues)
        """Whether the host said anything."""

    @property
    def unsent(self) -> int:
        return len(self._cues)

    @property
    def complete(self) -> bool:
        """Whether both sides have said everything, as far as the input was open."""
        return (
            not self._cues
            and self._answers >= self._answers_due
            and len(self.lines) >= self._lines_due
        )

    def start(self) -> Events:
        return self._say()

    def receive_data(self, data: bytes) -> Events:
        lines = self._splitter.feed(data)
        self.lines += lines
        self._answers += _answers(self._understood.receive_data(data))
        return [Alive(), *self._say()] if lines else NOTHING

    def receive_eof(self) -> Events:
        line = self._splitter.finish()
        if line is not None:
            self.lines.append(line)
        self._answers += _answers(self._understood.receive_eof())
        return NOTHING

    def _say(self) -> Events:
        while self._cues and self._is_due(self._cues[0]):
            data = self._cues.pop(0).data
            self._understood.sent(data)
            self.outgoing.add(data)
        return NOTHING

    def _is_due(self, cue: Cue) -> bool:
        return self._answers >= cue.answers and len(self.lines) >= cue.lines


class _Player(Receiver):
    """Ends the process when all is said. What it did not read shows in what it says."""

    incarnation: Incarnation
    """The process; set before it runs."""

    def __init__(self, script: Script, *, stops: bool) -> None:
        self._script = script
        self._stops = stops

    def receive(self, events: Events) -> None:
        del events
        self.look()

    def look(self) -> None:
        """End the process if all is said."""
        nothing_to_say = self._script.closes_stdin and not self._script.has_a_part
        if nothing_to_say or (self._stops and self._script.complete):
            self.incarnation.stop()

    def stdout_closed(self) -> None:
        self.incarnation.stop()


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
    instance = f"{descriptor.name}#1"
    transport = descriptor.transport
    lifecycle, connect = transport.lifecycle, DIALECTS[transport.protocol].connect
    script = Script(
        entries,
        lambda: connect(descriptor, lambda: "", {}),
        closes_stdin=lifecycle is Lifecycle.PER_INVOCATION,
        line_bytes=descriptor.supervision.limits.line_bytes,
    )
    player = _Player(script, stops=not _ended_by_itself(entries))
    process = await Containers(custody, environment, log_files).spawn(descriptor, instance)
    dialogue = Dialogue(instance, script, player, Deadlines(), Taps())
    log = ModuleLog(descriptor.name, log_files, lambda: 0.0)
    incarnation = Incarnation(process, dialogue, log, descriptor.supervision.timeouts)
    player.incarnation = incarnation
    ended: Exit | None = None
    overdue = False
    async with trio.open_nursery() as nursery:

        async def bound() -> None:
            nonlocal overdue
            await trio.sleep(timeout_s)
            overdue = True
            incarnation.stop(StopStep.END_OF_INPUT)

        nursery.start_soon(bound)
        player.look()
        ended = await incarnation.run()
        nursery.cancel_scope.cancel()
    assert ended is not None  # noqa: S101 - the nursery is left by its end or an exception
    await incarnation.remove_container(ended)
    return Played(tuple(script.lines), ended, script.unsent, overdue)


def _ended_by_itself(entries: Sequence[Entry]) -> bool:
    return any(one.event is Happened.EXITED and not one.stopped_by_host for one in entries)


def _cues(entries: Sequence[Entry], understood: Connection) -> tuple[list[Cue], int, int]:
    """Return the host's lines, and how many answers and lines came while it could write.

    A process per invocation sees its input end at once; then nothing is due, it ends by itself. In
    a recording that began in the middle, answers to unrecorded requests do not count.
    """
    cues: list[Cue] = []
    answers = lines = 0
    for entry in entries:
        if entry.event is Happened.STDIN_CLOSED and cues:
            break
        if not entry.is_line:
            continue
        content = entry.content()
        data = content + b"\n" if entry.newline else content
        if entry.source is EntrySource.MODULE and content.strip():
            lines += 1
            answers += _answers(understood.receive_data(data))
        elif entry.source is EntrySource.HOST:
            asks = any(isinstance(one, Asked) for one in understood.sent(content))
            cues.append(Cue(data, answers, 0 if asks else lines))
    return cues, answers, lines


def _answers(events: Events) -> int:
    return sum(isinstance(one, Answered) for one in events)
