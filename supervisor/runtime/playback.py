"""Run a module and say to it what a host said in a transcript, in step; keep what it says.

The next recorded line is written when as many requests have been answered as had been then. The
process is held, pumped and stopped by an `Incarnation` like any other; `Script` stands where a
dialect would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import trio

from protocol.connection import LocalError, Received, Request, Stray
from protocol.descriptor import Descriptor, Lifecycle
from protocol.framing import UNCOUNTED, Line, LineSplitter, Overlong
from protocol.json_line import Fault, read_object
from protocol.outgoing import Outgoing
from protocol.transcript import Entry, Happened, Source
from supervisor.policy.verdict import Exit
from supervisor.runtime.custody import Custody
from supervisor.runtime.incarnation import Incarnation, Rung
from supervisor.runtime.log_files import LogFiles
from supervisor.runtime.module_log import ModuleLog
from supervisor.runtime.process import spawn


class Cue(msgspec.Struct, frozen=True):
    """A recorded line of the host's, and what the module had said before it."""

    data: bytes
    answers: int
    lines: int


class Played(msgspec.Struct, frozen=True):
    """What a module said, each line without its newline, and how it ended."""

    lines: tuple[Line, ...]
    exit: Exit
    unsent: int
    """How many recorded lines were never written, since what they waited for did not come."""
    overdue: bool
    """Whether it had not said all that was recorded when the time was over."""


class Script:
    """A connection (protocol.connection.Connection) that says what was said."""

    def __init__(self, entries: Sequence[Entry], *, closes_stdin: bool, line_bytes: int) -> None:
        """Play the host's part in the entries of one process."""
        self.closes_stdin = closes_stdin
        self.outgoing = Outgoing()
        self.lines: list[Line] = []
        self._splitter = LineSplitter(line_bytes, UNCOUNTED)
        self._answers = 0
        self._cues, self._answers_due, self._lines_due = _cues(entries)
        self.has_a_part = bool(self._cues)
        """Whether the host said anything."""

    @property
    def unsent(self) -> int:
        """How many lines have not been written."""
        return len(self._cues)

    @property
    def complete(self) -> bool:
        """Whether everything was said on both sides, as far as the input was open."""
        return (
            not self._cues
            and self._answers >= self._answers_due
            and len(self.lines) >= self._lines_due
        )

    @property
    def unfinished_line(self) -> str | None:
        """Return None: nobody is told of it."""
        return None

    def data_to_send(self) -> bytes:
        """Return the lines whose time has come, and forget them."""
        while self._cues and self._is_due(self._cues[0]):
            self.outgoing.add(self._cues.pop(0).data)
        return self.outgoing.take()

    def _is_due(self, cue: Cue) -> bool:
        return self._answers >= cue.answers and len(self.lines) >= cue.lines

    def receive_data(self, data: bytes) -> list[Received]:
        """Keep the lines; what is returned only says that there were some."""
        before = len(self.lines)
        for line in self._splitter.feed(data):
            self._keep(line)
        return [Stray("")] if len(self.lines) > before else []

    def receive_eof(self) -> list[Received]:
        """Keep the last line, if it has no newline."""
        line = self._splitter.finish()
        if line is not None:
            self._keep(line)
        return []

    def _keep(self, line: Line) -> None:
        self.lines.append(line)
        self._answers += not isinstance(line, Overlong) and is_answer(line)

    def process_exited(self) -> list[str]:
        """Return nothing: no request is the host's own."""
        return []

    def send_request(self, request: Request) -> None:
        """Refuse: what is said stands in the transcript."""
        raise LocalError(f"{request.request_id} is not in the transcript")

    def send_cancel(self, request_id: str) -> bool:
        """Return False, as `send_request` refuses."""
        del request_id
        return False

    def allow_features(self, features: frozenset[str]) -> None:
        """Do nothing."""

    def abandon(self, request_id: str) -> bool:
        """Return True: there is nothing to give up."""
        del request_id
        return True


class _Player:
    """Writes when it is time, and ends the process when all is said (incarnation.Receiver)."""

    def __init__(self, script: Script, incarnation: Incarnation, *, stops: bool) -> None:
        self._script = script
        self._incarnation = incarnation
        self._stops = stops

    def receive(self, received: list[Received]) -> None:
        """Look what may be said next."""
        del received
        self.go_on()

    def go_on(self) -> None:
        """Write what is due, or end it."""
        self._incarnation.stdin.flush()
        nothing_to_say = self._script.closes_stdin and not self._script.has_a_part
        if nothing_to_say or (self._stops and self._script.complete):
            self._incarnation.stop()

    def congested(self) -> bool:
        """Return False: all is kept."""
        return False

    def stdout_closed(self) -> None:
        """End it: it has no more to say."""
        self._incarnation.stop()

    def stdin_broken(self) -> None:
        """Do nothing: what it did not read shows in what it says."""


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
    lifecycle = descriptor.transport.lifecycle
    script = Script(
        entries,
        closes_stdin=lifecycle is Lifecycle.PER_INVOCATION,
        line_bytes=descriptor.supervision.limits.line_bytes,
    )
    process = await spawn(descriptor, environment, instance, custody)
    timeouts = descriptor.supervision.timeouts
    incarnation = Incarnation(
        instance,
        process,
        script,
        ModuleLog(descriptor.name, log_files, lambda: 0.0),
        exit_s=timeouts.exit_s,
        stop_s=timeouts.stop_s,
    )
    player = _Player(script, incarnation, stops=not _ended_by_itself(entries))
    ended: Exit | None = None
    overdue = False
    async with trio.open_nursery() as nursery:

        async def bound() -> None:
            nonlocal overdue
            await trio.sleep(timeout_s)
            overdue = True
            incarnation.stop(Rung.END_OF_INPUT)

        nursery.start_soon(bound)
        player.go_on()
        ended = await incarnation.run(player)
        nursery.cancel_scope.cancel()
    assert ended is not None  # noqa: S101 - the nursery is left by its end or an exception
    return Played(tuple(script.lines), ended, script.unsent, overdue)


def is_answer(line: bytes) -> bool:
    """Tell whether a line ends a request: a plain reply, or `done`."""
    document = read_object(line)
    return not isinstance(document, Fault) and document.get("type", "done") == "done"


def _ended_by_itself(entries: Sequence[Entry]) -> bool:
    return any(one.event is Happened.EXITED and not one.stopped_by_host for one in entries)


def _cues(entries: Sequence[Entry]) -> tuple[list[Cue], int, int]:
    """Return the host's lines, and how many answers and lines there were while it could write.

    A process per invocation sees its input end at once; then nothing is due, it ends by itself.
    """
    cues: list[Cue] = []
    answers = lines = 0
    for entry in entries:
        if entry.event is Happened.STDIN_CLOSED and cues:
            break
        if not entry.is_line:
            continue
        content = entry.content()
        if entry.source is Source.MODULE and content.strip():
            lines += 1
            answers += is_answer(content)
        elif entry.source is Source.HOST:
            data = content + b"\n" if entry.newline else content
            # Of a recording that began in the middle, answers are to requests it does not have.
            awaited = min(answers, len(cues))
            cues.append(Cue(data, awaited, lines if _is_cancel(content) else 0))
    return cues, min(answers, len(cues)), lines


def _is_cancel(line: bytes) -> bool:
    document = read_object(line)
    return not isinstance(document, Fault) and document.get("operation") == "cancel"
