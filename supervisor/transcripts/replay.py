"""Play a transcript to the dialect it was recorded with, and compare the outcomes.

Each process has its own connection. It takes the lines that the host wrote as its own (`sent`) and
the recorded bytes as the module's, and the recorded exit is judged; the outcome of each request is
then compared with the recorded one. Nothing is run, so a transcript may come from anybody.

The host's own decisions (a deadline, a cancel, a stop) do not follow from the conversation: such an
outcome is taken as it is, and the request given up at that point, as it was then.
"""

from __future__ import annotations

from itertools import count
from typing import Any, assert_never

import msgspec

from protocol.connection import (
    Alive,
    Answered,
    Asked,
    Connection,
    Described,
    EventReceived,
    Events,
    HostCalled,
    LocalError,
    Memory,
    ModuleLog,
    Notified,
    OfProcess,
    OutOfStep,
    Quarantined,
    Ready,
    Received,
    Request,
    ResourceUpdated,
    StartAgain,
    StartFailed,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.dialects.registry import DIALECTS
from protocol.errors import Outcome, Success
from protocol.framing import Written
from protocol.json_line import Fault
from protocol.transcript import Entry, EntrySource, Happened, Transcript, outcome_document
from supervisor.policy.verdict import Breach, Exit, Said, on_death, on_invocation
from supervisor.transcripts.compare import BY_HOST, reason_of, same

PLAYED_LINE_BYTES = 64 << 20
"""A transcript may come from anybody, and its descriptor ask for lines that fill all memory."""


class Step(msgspec.Struct, frozen=True):
    instance: str
    words: str


class Difference(msgspec.Struct, frozen=True):
    """An outcome that differs from the recorded one; None where there is none at all."""

    instance: str
    request_id: str
    what: str
    recorded: dict[str, Any] | None
    replayed: dict[str, Any] | None


class Replayed(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...]
    differences: tuple[Difference, ...]
    compared: int
    by_host: int
    """How many were the host's own decisions, and so taken as they are."""


class UnplayableError(Exception):
    """A transcript that lacks what a replay needs, in words."""


def replay_through_dialect(transcript: Transcript, descriptor: Descriptor) -> Replayed:
    dialect = DIALECTS[descriptor.transport.protocol]
    numbers, memory = count(1), Memory()
    steps: list[Step] = []
    differences: list[Difference] = []
    compared = by_host = 0
    for instance, entries in transcript.instances().items():
        connection = dialect.connect(descriptor, lambda: f"replayed-{next(numbers)}", memory)
        played = _Process(instance, entries, descriptor, connection)
        for entry in entries:
            played.play(entry)
        steps += played.steps
        recorded = played.recorded
        for request_id, outcome in recorded.items():
            if reason_of(outcome) in BY_HOST:
                by_host += 1
                continue
            compared += 1
            made = played.outcomes.get(request_id)
            document = None if made is None else outcome_document(made)
            if not same(outcome, document):
                what = played.what(request_id)
                differences.append(Difference(instance, request_id, what, outcome, document))
    return Replayed(tuple(steps), tuple(differences), compared, by_host)


class _Process:
    def __init__(
        self, instance: str, entries: list[Entry], descriptor: Descriptor, connection: Connection
    ) -> None:
        self.steps: list[Step] = []
        self.outcomes: dict[str, Outcome] = {}
        self.recorded = {
            one.request_id: one.outcome
            for one in entries
            if one.request_id is not None and one.outcome is not None
        }
        self._instance = instance
        self._descriptor = descriptor
        self._line_bytes = descriptor.supervision.limits.line_bytes
        self._connection = connection
        self._per_invocation = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._said = Said()
        self._faults: dict[str, Fault] = {}
        self._exit = Exit()
        # Requests that were never written, or only in part: their outcomes name them all the same.
        named = {one.request_id: one for entry in entries if (one := _named(entry)) is not None}
        self._requests = dict(named)
        self._unwritten = named
        if self._per_invocation:
            # A tool may print before its input is written to it: its request is open from the start
            for entry in entries:
                self._write(entry)
            self._ask_unwritten()

    def what(self, request_id: str) -> str:
        """Return `MODULE.OP` of a request."""
        request = self._requests[request_id]
        return f"{self._descriptor.name}.{request.op or request.operation}"

    def play(self, entry: Entry) -> None:
        match entry.source:
            case EntrySource.HOST if entry.outcome is not None:
                self._host_decided(entry)
            case EntrySource.HOST:
                if not self._per_invocation:
                    self._write(entry)
            case EntrySource.MODULE:
                self._receive(self._connection.receive_data(self._bytes(entry)))
                while over := [one for one in self._connection.waits if not one.seconds]:
                    self._receive(self._connection.time_passed(over[0]))
            case EntrySource.PROCESS if entry.event is Happened.EOF:
                self._receive(self._connection.receive_eof())
            case EntrySource.PROCESS if entry.event is Happened.EXITED:
                self._exited(entry)
            case _:
                pass

    def _write(self, entry: Entry) -> None:
        if entry.source is EntrySource.HOST and entry.is_line and entry.newline:
            self._receive(self._connection.sent(entry.content()))
            self._connection.outgoing.take()

    def _ask_unwritten(self) -> None:
        for request in self._unwritten.values():
            try:
                self._receive(self._connection.ask(request))
            except LocalError as error:
                raise UnplayableError(f"{self._instance}: {error}") from None
        self._unwritten = {}

    def _host_decided(self, entry: Entry) -> None:
        request_id = entry.request_id or ""
        if request_id in self.outcomes:
            return
        if reason_of(entry.outcome or {}) in BY_HOST:
            self._connection.cancel(request_id, Written.ALL)
            self._step(f"{request_id}: given up by the host: {reason_of(entry.outcome or {})}")

    def _exited(self, entry: Entry) -> None:
        self._ask_unwritten()
        self._receive(self._connection.receive_eof())
        self._exit = end = Exit(
            exit_code=entry.exit_code,
            signal=entry.signal,
            instance=self._instance,
            breach=_breach(entry),
            stopped_by_host=entry.stopped_by_host or False,
        )
        self._step(end.words)
        self._receive(self._connection.process_exited(entry.exit_code))
        if self._per_invocation:
            for request_id in self._requests:
                outcome = on_invocation(self._said, end, None, self.what(request_id))
                self._settle(request_id, outcome)

    def _receive(self, events: Events) -> None:
        for item in events:
            self._take(item)

    def _take(self, item: Received) -> None:
        match item:
            case Asked():
                self._requests.setdefault(item.request.request_id, item.request)
                self._unwritten.pop(item.request.request_id, None)
            case EventReceived():
                kind = type(item.event).__struct_config__.tag
                self._step(f"{item.request_id}: event {kind}")
            case Answered():
                self._answered(item)
            case Warned():
                self._step(f"{item.request_id}: warning {item.notice.reason}")
            case Violated():
                self._said = msgspec.structs.replace(self._said, fault=item.fault)
                self._faults[item.request_id] = item.fault
                self._step(f"{item.request_id}: fault {item.fault.reason}")
            case HostCalled():
                self._step(f"{item.request_id or 'no request'}: host call {item.call.method}")
            case Unanswered():
                self._unanswered(item)
            case _:
                self._of_process(item)

    def _of_process(self, item: OfProcess) -> None:
        match item:
            case Quarantined():
                self._step(f"set aside: {item.fault.reason}: {item.fault.excerpt}")
            case Stray():
                self._step(f"dropped: {item.excerpt}")
            case ModuleLog():
                self._step(f"log of the module: {item.event.message}")
            case Ready() | StartAgain() | OutOfStep():
                self._step(f"the process {item.why}")
            case StartFailed():
                self._step(f"the process {item.message}")
            case Described():
                self._step("the module describes itself anew")
            case ResourceUpdated():
                self._step(f"a resource has changed: {item.uri}")
            case Notified():
                self._step(f"a notification of an extension: {item.method}")
            case Alive():
                pass
            case _:
                assert_never(item)

    def _unanswered(self, item: Unanswered) -> None:
        request_id = item.request_id
        if not self._per_invocation:
            fault = self._faults.get(request_id)
            outcome = on_death(self._exit, fault, self.what(request_id), item.error)
            self._settle(request_id, outcome)

    def _answered(self, item: Answered) -> None:
        outcome = item.outcome if item.fault is None else item.fault.failure()
        if self._per_invocation:
            # Not the verdict yet: the exit is part of that.
            self._said = Said(outcome, item.fault)
            self._step(f"{item.request_id}: answered")
            return
        self._settle(item.request_id, outcome)

    def _settle(self, request_id: str, outcome: Outcome) -> None:
        self.outcomes.setdefault(request_id, outcome)
        if isinstance(outcome, Success):
            self._step(f"{request_id}: {self.what(request_id)} ok")
        else:
            reason = outcome.details.get("reason")
            code = f"{outcome.code}/{reason}" if reason else outcome.code
            self._step(f"{request_id}: {self.what(request_id)} {code}: {outcome.message}")

    def _step(self, words: str) -> None:
        self.steps.append(Step(self._instance, words))

    def _bytes(self, entry: Entry) -> bytes:
        content = entry.content()
        if not entry.whole:
            size = entry.size or 0
            if size <= self._line_bytes:
                raise UnplayableError(
                    f"{self._instance}: only the beginning of a line of {size} bytes was kept at "
                    f"{entry.at_s:g} s, so what it meant cannot be found out"
                )
            # The dialect may only see its beginning, and that it is too long.
            if self._line_bytes > PLAYED_LINE_BYTES:
                raise UnplayableError(
                    f"{self._instance}: limits.line_bytes is {self._line_bytes}, and a line longer "
                    f"than {PLAYED_LINE_BYTES} bytes cannot be played"
                )
            content = content.ljust(min(size, self._line_bytes + 2), b" ")
        return content + b"\n" if entry.newline else content


def _named(entry: Entry) -> Request | None:
    """Return the request of an outcome, as the host itself knew it."""
    if entry.request_id is None or entry.operation is None:
        return None
    return Request(entry.request_id, entry.operation, entry.op or "")


def _breach(entry: Entry) -> Breach | None:
    if entry.limit is None:
        return None
    try:
        return msgspec.convert(entry.limit, Breach)
    except msgspec.ValidationError as error:
        words = f'"limit" of an exit is not a limit that was passed: {error}'
        raise UnplayableError(words) from None
