"""Play a transcript to the dialect it was recorded with, and compare the outcomes.

Each process has its own connection, which is asked what was asked, told what was answered, and
hears what the module printed; the recorded exit is judged. The outcome of each request is then
compared with the recorded one. Nothing is run, so a transcript may come from anybody.

The host's own decisions (a deadline, a cancel, a stop) do not follow from the conversation: such an
outcome is taken as it is, and the request given up at that point, as it was then. What the
connection writes counts as written where the host's next line stands. Its waits pass by the times
in the transcript, each before what the host did next: what the module said is heard first.

A recording that began in the middle lacks the start of its process: the connection is not started
then, and takes the requests all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count, takewhile
from typing import Any

import msgspec

from protocol.connection import (
    Answered,
    Asked,
    Described,
    EventReceived,
    Events,
    HostCalled,
    LocalError,
    Logged,
    Memory,
    NewId,
    Notified,
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
    Wait,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.dialects.mcp.vocabulary import DISCOVER, INITIALIZE, Era
from protocol.dialects.registry import DIALECTS
from protocol.errors import Outcome, Success
from protocol.json_line import Fault, read_object
from protocol.replies import Operation
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Transcript,
    outcome_document,
    outcome_of,
)
from supervisor.policy.verdict import Breach, Exit, Said, on_death, on_invocation
from supervisor.transcripts.compare import is_of_host, reason_of, same
from supervisor.transcripts.old_form import RpcIds, with_requests

PLAYED_LINE_BYTES = 64 << 20
"""A transcript may come from anybody, and its descriptor ask for lines that fill all memory."""

ROUNDED_S = 1e-5
"""Times in a transcript are rounded."""


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
    memory = Memory()
    steps: list[Step] = []
    differences: list[Difference] = []
    compared = by_host = 0
    for instance, entries in transcript.instances().items():
        played = ReplayedProcess(instance, with_requests(entries, descriptor), descriptor, memory)
        for entry in played.entries:
            played.play(entry)
        steps += played.steps
        recorded = {
            one.request_id: one.outcome
            for one in entries
            if one.request_id is not None and one.outcome is not None and not one.is_answer
        }
        for request_id, outcome in recorded.items():
            if is_of_host(outcome):
                by_host += 1
                continue
            compared += 1
            made = played.outcomes.get(request_id)
            document = None if made is None else outcome_document(made)
            if not same(outcome, document):
                what = played.what(request_id)
                differences.append(Difference(instance, request_id, what, outcome, document))
    return Replayed(tuple(steps), tuple(differences), compared, by_host)


def own_ids(entries: Sequence[Entry]) -> NewId:
    """Return what gives a connection the ids of the requests that it made itself then."""
    asked = (one for one in entries if one.is_request)
    own = takewhile(lambda one: one.operation is not Operation.INVOKE, asked)
    ids = chain((one.request_id or "" for one in own), map("replayed-{}".format, count(1)))
    return ids.__next__


def started_with(entries: Sequence[Entry]) -> bool:
    """Tell whether the start of a process is among its entries."""
    first = next((one.operation for one in entries if one.is_request), None)
    asks = first in (Operation.HEALTH, Operation.DESCRIBE)
    is_started = asks or first_method(entries) in (INITIALIZE, DISCOVER)
    return is_started and any(one.event is Happened.SPAWNED for one in entries)


def first_method(entries: Sequence[Entry]) -> str | None:
    """Return the method of the host's first line; None if there is none."""
    for entry in entries:
        if entry.source is EntrySource.HOST and entry.is_line:
            document = read_object(entry.content())
            return None if isinstance(document, Fault) else document.get("method")
    return None


def remembered(entries: Sequence[Entry]) -> Memory:
    """Return what an earlier connection had left to that of the recording, as far as it shows."""
    return {"era": str(Era.LEGACY)} if first_method(entries) == INITIALIZE else {}


def call_answered_by(entry: Entry, calls: Sequence[HostCalled]) -> HostCalled | None:
    """Return the open call that an entry answers, if it does.

    An older recording does not say of which request it was, and a module may make up other ids.
    """
    if not entry.is_answer:
        return None
    fitting = [one for one in calls if entry.request_id in (None, one.request_id)]
    named = [one for one in fitting if one.call.call_id == entry.call_id]
    return next(iter((*named, *fitting)), None)


class ReplayedProcess:
    def __init__(
        self, instance: str, entries: list[Entry], descriptor: Descriptor, memory: Memory
    ) -> None:
        """Replay the `entries` of a process, among which are its requests."""
        self.entries = entries
        self.steps: list[Step] = []
        self.outcomes: dict[str, Outcome] = {}
        self._instance = instance
        self._descriptor = descriptor
        self._line_bytes = descriptor.supervision.limits.line_bytes
        self._rpc_ids = RpcIds() if descriptor.transport.protocol == "mcp" else None
        if "initialize_next" not in memory:
            memory.update(remembered(entries))
        dialect = DIALECTS[descriptor.transport.protocol]
        self._connection = dialect.connect(descriptor, own_ids(entries), memory)
        self._waits: dict[Wait, float] = {}
        """Each with the time at which it is over."""
        self._per_invocation = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._said = Said()
        self._faults: dict[str, Fault] = {}
        self._exit = Exit()
        self._requests: dict[str, Request] = {}
        self._named = {one.request.request_id: one.request for one in entries if one.operation}
        self._calls: list[HostCalled] = []

    def what(self, request_id: str) -> str:
        """Return `MODULE.OP` of a request."""
        request = self._requests.get(request_id) or self._named[request_id]
        return f"{self._descriptor.name}.{request.op or request.operation}"

    def play(self, entry: Entry) -> None:
        if entry.source in (EntrySource.HOST, EntrySource.PROCESS):
            self._pass_time(entry.at_s)
        match entry.source:
            case EntrySource.HOST if entry.is_answer:
                self._answer(entry)
            case EntrySource.HOST if entry.outcome is not None:
                self._host_decided(entry)
            case EntrySource.HOST if entry.is_request:
                self._ask(entry.request)
            case EntrySource.HOST:
                self._write(entry)
            case EntrySource.MODULE:
                self._hear(entry)
            case EntrySource.PROCESS if entry.event is Happened.SPAWNED and started_with(
                self.entries
            ):
                self._receive(self._connection.start())
            case EntrySource.PROCESS if entry.event is Happened.EOF:
                self._receive(self._connection.receive_eof())
            case EntrySource.PROCESS if entry.event is Happened.EXITED:
                self._exited(entry)
            case _:
                pass
        self._keep_waits(entry.at_s)

    # The time.

    def _keep_waits(self, now_s: float) -> None:
        waits = self._connection.waits
        self._waits = {one: self._waits.get(one, now_s + one.seconds) for one in waits}

    def _pass_time(self, now_s: float) -> None:
        while due := [
            (at_s, one) for one, at_s in self._waits.items() if at_s <= now_s + ROUNDED_S
        ]:
            at_s, wait = min(due, key=lambda one: one[0])
            self._end_wait(wait, at_s)

    def _end_wait(self, wait: Wait, at_s: float) -> None:
        del self._waits[wait]
        self._receive(self._connection.time_passed(wait))
        self._keep_waits(at_s)

    # The host.

    def _ask(self, request: Request) -> None:
        if request.request_id in self._requests:
            return  # its connection has asked it itself
        self._requests[request.request_id] = request
        try:
            self._receive(self._connection.ask(request))
        except LocalError as error:
            raise UnplayableError(f"{self._instance}: {error}") from None

    def _answer(self, entry: Entry) -> None:
        called = call_answered_by(entry, self._calls)
        if called is not None:
            self._calls.remove(called)
            self._receive(self._connection.answer(called, outcome_of(entry.outcome or {})))

    def _write(self, entry: Entry) -> None:
        while written := self._connection.outgoing.take():
            if self._rpc_ids is not None:
                self._rpc_ids.written(written)
        if self._rpc_ids is not None:
            self._rpc_ids.recorded(entry.content())

    def _host_decided(self, entry: Entry) -> None:
        request_id, outcome = entry.request_id or "", entry.outcome or {}
        if request_id in self.outcomes or not is_of_host(outcome):
            return
        written = self._connection.outgoing.withdraw(request_id)
        self._connection.cancel(request_id, written)
        self._step(f"{request_id}: given up by the host: {reason_of(outcome)}")

    # The module.

    def _hear(self, entry: Entry) -> None:
        line: bytes | None = self._content(entry)
        if line is not None and self._rpc_ids is not None:
            line = self._rpc_ids.translated(line)
        if line is None:
            return
        self._receive(self._connection.receive_data(line + b"\n" if entry.newline else line))
        self._keep_waits(entry.at_s)
        while over := [one for one in self._waits if not one.seconds]:
            self._end_wait(over[0], entry.at_s)

    def _exited(self, entry: Entry) -> None:
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
            case Asked(request=request):
                self._requests[request.request_id] = request
            case Answered() if self._per_invocation:
                # Not the verdict yet: the exit is part of that.
                self._said = Said(item.outcome, item.fault, self._said.error, item.codes)
                self._step(f"{item.request_id}: answered")
            case Answered(request_id=request_id, outcome=outcome, fault=fault):
                self._settle(request_id, outcome if fault is None else fault.failure())
            case Unanswered(request_id=request_id, error=error) if not self._per_invocation:
                fault, what = self._faults.get(request_id), self.what(request_id)
                self._settle(request_id, on_death(self._exit, fault, what, error))
            case Violated(request_id=request_id, fault=fault):
                self._said = msgspec.structs.replace(self._said, fault=fault)
                self._faults[request_id] = fault
            case HostCalled():
                self._calls.append(item)
        # Of the start, the outcomes of its questions say enough.
        if (words := _WORDS.get(type(item))) and not (isinstance(item, Ready) and self.outcomes):
            self._step(words(item))

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

    def _content(self, entry: Entry) -> bytes:
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
        return content


_WORDS: dict[type[Received], Callable[[Any], str]] = {
    EventReceived: lambda it: f"{it.request_id}: event {type(it.event).__struct_config__.tag}",
    Warned: lambda it: f"{it.request_id}: warning {it.notice.reason}",
    Violated: lambda it: f"{it.request_id}: fault {it.fault.reason}",
    HostCalled: lambda it: f"{it.request_id or 'no request'}: host call {it.call.method}",
    Quarantined: lambda it: f"set aside: {it.fault.reason}: {it.fault.excerpt}",
    Stray: lambda it: f"dropped: {it.excerpt}",
    Logged: lambda it: f"log of the module: {it.event.message}",
    Ready: lambda it: f"the process {it.why}",
    StartAgain: lambda it: f"the process {it.why}",
    OutOfStep: lambda it: f"the process {it.why}",
    StartFailed: lambda it: f"the process {it.message}",
    Described: lambda _: "the module describes itself anew",
    ResourceUpdated: lambda it: f"a resource has changed: {it.uri}",
    Notified: lambda it: f"a notification of an extension: {it.method}",
}
"""The step that an event is."""


def _breach(entry: Entry) -> Breach | None:
    if entry.limit is None:
        return None
    try:
        return msgspec.convert(entry.limit, Breach)
    except msgspec.ValidationError as error:
        words = f'"limit" of an exit is not a limit that was passed: {error}'
        raise UnplayableError(words) from None
