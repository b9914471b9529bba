"""Play a transcript to the dialect it was recorded with, and compare what comes of it.

Each process has its own connection. The recorded requests are sent, the recorded bytes received,
and the recorded exit judged, in that order; the outcome of each request is then held to the one
that the transcript says it had. Nothing is run, so it may come from anybody.

What the host decided by itself (a deadline, a cancel, a stop) cannot be found out from what was
said: such an outcome is taken as it is, and the request given up at that point, as it was then.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from protocol.connection import (
    Answered,
    Connection,
    EventReceived,
    HostCalled,
    HostCallRefused,
    LocalError,
    ModuleLog,
    Quarantined,
    Received,
    Request,
    Stray,
    Violated,
    Warned,
)
from protocol.descriptor import Descriptor, Lifecycle
from protocol.dialects import DIALECTS
from protocol.errors import Outcome, Success
from protocol.frames import decode_request
from protocol.json_line import Fault
from protocol.replies import Operation
from protocol.transcriber import outcome_document
from protocol.transcript import Entry, Happened, Source, Transcript
from supervisor.policy.recorded_outcome import BY_HOST, reason_of, same
from supervisor.policy.verdict import Breach, Exit, Said, on_death, on_invocation

PLAYED_LINE_BYTES = 64 << 20
"""A transcript may come from anybody, and its descriptor ask for lines that fill all memory."""


class Step(msgspec.Struct, frozen=True):
    """Something that came of the replay, as one readable line."""

    instance: str
    words: str


class Difference(msgspec.Struct, frozen=True):
    """An outcome that is another one than was recorded; None where there is none at all."""

    instance: str
    request_id: str
    what: str
    recorded: dict[str, Any] | None
    replayed: dict[str, Any] | None


class Replayed(msgspec.Struct, frozen=True):
    """What came of a replay."""

    steps: tuple[Step, ...]
    differences: tuple[Difference, ...]
    compared: int
    """How many outcomes were compared."""
    by_host: int
    """How many were the host's own decisions, and so taken as they are."""


class UnplayableError(Exception):
    """A transcript that lacks what a replay needs, in words."""


def replay_through_dialect(transcript: Transcript, descriptor: Descriptor) -> Replayed:
    """Play all processes of a transcript; raises `UnplayableError`."""
    dialect = DIALECTS[descriptor.transport.protocol]
    steps: list[Step] = []
    differences: list[Difference] = []
    compared = by_host = 0
    for instance, entries in transcript.instances().items():
        played = _Process(instance, entries, descriptor, dialect.connect(descriptor))
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
    """One process of the transcript, played again."""

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
        # Requests that were never written, or only in part: their outcomes name them all the same.
        named = {one.request_id: one for entry in entries if (one := _named(entry)) is not None}
        written = {one.request_id: one for entry in entries if (one := _written(entry)) is not None}
        self._requests = written | named
        self._unwritten = [one for name, one in named.items() if name not in written]
        self._sent: set[str] = set()
        if self._per_invocation:
            # A tool may print before its input is written to it: its request is open from the start
            self._send(list(self._requests))

    def what(self, request_id: str) -> str:
        """Return `MODULE.OP` of a request."""
        request = self._requests[request_id]
        return f"{self._descriptor.name}.{request.op or request.operation}"

    def play(self, entry: Entry) -> None:
        """Do again what an entry tells."""
        match entry.source:
            case Source.HOST if entry.outcome is not None:
                self._host_decided(entry)
            case Source.HOST:
                self._write(entry)
            case Source.MODULE:
                self._receive(self._connection.receive_data(self._bytes(entry)))
            case Source.PROCESS if entry.event is Happened.EOF:
                self._receive(self._connection.receive_eof())
            case Source.PROCESS if entry.event is Happened.EXITED:
                self._exited(entry)
            case _:
                pass

    def _write(self, entry: Entry) -> None:
        request = _written(entry)
        if request is not None:
            self._send([request.request_id])
            return
        frame = decode_request(entry.content()) if entry.newline else None
        if frame is not None and not isinstance(frame, Fault) and frame.operation == "cancel":
            self._connection.send_cancel(frame.request_id or "")

    def _send(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            # The `describe` that finds the step again is the connection's own; it will make it.
            if request_id in self._sent or request_id.endswith(".sync"):
                continue
            self._sent.add(request_id)
            try:
                self._connection.send_request(self._requests[request_id])
            except LocalError as error:
                raise UnplayableError(f"{self._instance}: {error}") from None
            self._connection.data_to_send()

    def _host_decided(self, entry: Entry) -> None:
        request_id = entry.request_id or ""
        if request_id in self.outcomes:
            return
        if reason_of(entry.outcome or {}) in BY_HOST:
            self._connection.abandon(request_id)
            self._step(f"{request_id}: given up by the host: {reason_of(entry.outcome or {})}")

    def _exited(self, entry: Entry) -> None:
        self._send([one.request_id for one in self._unwritten])
        self._receive(self._connection.receive_eof())
        end = Exit(
            exit_code=entry.exit_code,
            signal=entry.signal,
            instance=self._instance,
            breach=_breach(entry),
            stopped_by_host=entry.stopped_by_host or False,
        )
        self._step(end.words)
        unanswered = self._connection.process_exited()
        if self._per_invocation:
            for request_id in self._requests:
                outcome = on_invocation(self._said, end, None, self.what(request_id))
                self._settle(request_id, outcome)
            return
        for request_id in unanswered:
            fault = self._faults.get(request_id)
            self._settle(request_id, on_death(end, fault, self.what(request_id)))

    def _receive(self, received: list[Received]) -> None:
        for item in received:
            match item:
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
                case Quarantined():
                    self._step(f"set aside: {item.fault.reason}: {item.fault.excerpt}")
                case Stray():
                    self._step(f"dropped: {item.excerpt}")
                case HostCalled() | HostCallRefused():
                    self._called(item)
                case ModuleLog():
                    self._step(f"log of the module: {item.event.message}")
                case _:
                    assert_never(item)

    def _called(self, item: HostCalled | HostCallRefused) -> None:
        if isinstance(item, HostCalled):
            self._step(f"{item.request_id}: host call {item.call.method}")
        else:
            self._step(f"host call refused: {item.message}")

    def _answered(self, item: Answered) -> None:
        outcome = item.outcome if item.fault is None else item.fault.failure()
        if self._per_invocation:
            # Not the verdict yet: the exit is part of that.
            self._said = Said(outcome, item.fault)
            self._step(f"{item.request_id}: answered")
            return
        self._settle(item.request_id, outcome)
        request = self._requests.get(item.request_id)
        if isinstance(outcome, Success) and request and request.operation is Operation.DESCRIBE:
            features = outcome.result.get("features", ())
            self._connection.allow_features(frozenset(features))

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
            # All the dialect may see of it is that it is too long, and its beginning.
            if self._line_bytes > PLAYED_LINE_BYTES:
                raise UnplayableError(
                    f"{self._instance}: limits.line_bytes is {self._line_bytes}, and a line longer "
                    f"than {PLAYED_LINE_BYTES} bytes cannot be played"
                )
            content = content.ljust(min(size, self._line_bytes + 2), b" ")
        return content + b"\n" if entry.newline else content


def _named(entry: Entry) -> Request | None:
    """Return the request that an outcome is of: what was asked as the host itself knew it."""
    if entry.request_id is None or entry.operation is None:
        return None
    return Request(entry.request_id, entry.operation, entry.op or "")


def _written(entry: Entry) -> Request | None:
    """Return the request that a line of the host's is, or None if it is none."""
    if entry.source is not Source.HOST or not entry.is_line or not entry.newline:
        return None
    frame = decode_request(entry.content())
    if isinstance(frame, Fault) or frame.request_id is None:
        return None
    if frame.operation in (None, "cancel"):  # without one it is the result of a host call
        return None
    if frame.operation in (Operation.HEALTH, Operation.DESCRIBE):
        return Request(frame.request_id, Operation(frame.operation))
    op = frame.input.get("op") if frame.operation == Operation.INVOKE else frame.operation
    return Request(frame.request_id, Operation.INVOKE, op if isinstance(op, str) else "")


def _breach(entry: Entry) -> Breach | None:
    if entry.limit is None:
        return None
    try:
        return msgspec.convert(entry.limit, Breach)
    except msgspec.ValidationError as error:
        raise UnplayableError(f'"limit" of an exit is no limit that was passed: {error}') from None
