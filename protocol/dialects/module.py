"""Dialect `module`: Module Protocol v1 over STDIO, with Spec 001 event streams (docs/protocol.md).

How a line finds its request, in this order:

1. it has a `requestId`: the open request of that id; a line for no open request is a stray;
2. one request is open: that one;
3. several are open: the oldest, as long as the module was never seen to echo ids (it then answers
   in order, whatever it was sent); of a module that does echo ids such a line is nobody's;
4. none is open: a `log` is the module's own, anything else is a stray.

A line that cannot be accepted is looked at in the same way. It fails the request it names. While
one request is open, and the module was not seen to echo ids, it is that one's answer and fails it
if it is meant as one (`is_meant_as_answer`): as it stands there, no other answer may come. Any
other line is noise, which a tolerant module may print: it is set aside. A line that might stand for
one of several answers fails all of them. When the module echoes no ids, nobody can tell whether a
line that failed a request stood in its answer's place or before it; `module_step` finds out.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

from protocol.assets import AssetRules
from protocol.connection import (
    NOTHING,
    TOLERABLE,
    Answered,
    Asked,
    Described,
    EventReceived,
    Events,
    Flow,
    HostCalled,
    LocalError,
    Memory,
    ModuleLog,
    NewId,
    Notice,
    OutOfStep,
    Quarantined,
    Received,
    Request,
    ResourceUpdated,
    Stray,
    Unanswered,
    Violated,
    Wait,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle, StdoutPolicy
from protocol.dialects.host_call_lines import Refused, received_call, unannounced
from protocol.dialects.line_owner import is_meant_as_answer, named_in, unreadable_answer
from protocol.dialects.module_start import Handshake, Step
from protocol.dialects.module_step import SYNC, ModuleStep
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import (
    RESOURCE_UPDATED,
    Asset,
    Done,
    ErrorEvent,
    Event,
    Log,
    StatePatch,
    UiEvent,
    decode_event,
    read_event,
)
from protocol.extended_event import decode_extended
from protocol.frames import RequestFrame, decode_request, encode_line
from protocol.framing import LineSplitter, Outgoing, Written
from protocol.host_call import FEATURE, Chunk, encode_result
from protocol.json_line import (
    LONE_SURROGATES,
    SMALL_BYTES,
    Fault,
    excerpt,
    is_dense,
    is_utf8,
    overlong_fault,
    read_object,
    skimmed,
    split_members,
    without_lone_surrogates,
)
from protocol.replies import (
    Operation,
    completed,
    decode_invoke_reply,
    plain_outcome,
    read_done,
    read_error,
    read_reply,
    slips,
    slips_of_done,
)
from protocol.weight import LONG_BYTES, collector_paused

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_INVOKE = Operation.INVOKE
_DESCRIBE = Operation.DESCRIBE
"""A member of an enum is slow to look up, and each request and each answer ask for these."""

_LIKE_AN_ID = b"equest"
_LOOKED_AT_BYTES = 256
"""Where an answer without a `requestId` has this, it may have one of another spelling."""

_FLOW = frozenset(Flow)

GIVEN_UP_KEPT = 16
"""Of so many requests that were given up last, late lines are known for what they are."""


class _Open(msgspec.Struct, gc=False):
    """A request that waits for its answer."""

    request_id: str
    operation: Operation
    last_error: ErrorEvent | None = None
    assets: AssetRules | None = None


class _Envelope(msgspec.Struct):
    """What tells whose answer a line is; what else it holds is not read."""

    request_id: str | None = msgspec.field(default=None, name="requestId")
    type: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope).decode


class ModuleConnection:
    """One process that answers `health`, `describe` and `invoke`, any number of times."""

    arguments: tuple[str, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        del memory
        transport = descriptor.transport
        self._tool = descriptor.name
        self._descriptor = descriptor
        self._strict = transport.stdout is StdoutPolicy.STRICT
        self.closes_stdin = transport.lifecycle is Lifecycle.PER_INVOCATION
        self.outgoing = Outgoing()
        self.waits: tuple[Wait, ...] = ()
        self._splitter = LineSplitter(descriptor.supervision.limits.line_bytes)
        self._open: dict[str, _Open] = {}
        self._echoes_ids = False
        self._omits_ids = False
        self._streaming = False
        """Whether the last line was an event."""
        self._step = ModuleStep(descriptor.name)
        self._given_up: deque[str] = deque(maxlen=GIVEN_UP_KEPT)
        self._features: frozenset[str] = frozenset()
        self._description: dict[str, Any] | None = None
        """What it said last that it is."""
        self._timeouts = descriptor.supervision.timeouts
        self._new_id = new_id
        self._handshake: Handshake | None = None

    @property
    def unfinished_line(self) -> str | None:
        """The beginning of what was printed without a newline, if anything was."""
        return excerpt(self._splitter.pending) if self._splitter.pending else None

    # What the host wants.

    def start(self) -> Events:
        """Ask how it is, unless the process serves one request and nothing else."""
        if self.closes_stdin:
            return NOTHING
        self._handshake = Handshake(self._timeouts, self._new_id)
        return self._take_step(self._handshake.ask_health())

    def ask(self, request: Request) -> Events:
        """Queue a request frame."""
        if request.request_id in self._open:
            raise LocalError(f"request {request.request_id} is open already")
        content: dict[str, Any] = {}
        if request.operation is _INVOKE:
            content = {"op": request.op, "args": request.args}
            if request.session_id is not None:
                content["session_id"] = request.session_id
            if request.traceparent is not None:
                content["traceparent"] = request.traceparent
        # Encoded before it is noted as open: args that cannot be encoded leave nothing behind.
        line = encode_line(RequestFrame(request.request_id, self._tool, request.operation, content))
        if self._step.lost:
            self._step.begin_mark(f"{request.request_id}{SYNC}")
            sync = RequestFrame(self._step.mark, self._tool, Operation.DESCRIBE)
            self.outgoing.add(encode_line(sync))
        self._open[request.request_id] = _Open(request.request_id, request.operation)
        self.outgoing.add(line, request.request_id)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        """Forget a request; its late lines are strays if the module puts ids on all of them."""
        if self._open.pop(request_id, None) is None or written is not Written.ALL:
            return NOTHING
        self._given_up.append(request_id)
        if "cancel" in self._features:
            self.outgoing.add(encode_line({"requestId": request_id, "operation": "cancel"}))
        if self._echoes_ids and not self._omits_ids:
            return NOTHING
        return [OutOfStep("echoes no requestId")]

    def flow(self, request_id: str, operation: Flow) -> Events:
        """Queue a `pause` or a `resume`, if the module knows them."""
        if "flow" in self._features and request_id in self._open:
            self.outgoing.add(encode_line({"requestId": request_id, "operation": operation}))
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        """Queue a `host_result`."""
        line = encode_result(asked.request_id, asked.call.call_id, outcome, chunk)
        if line is not None:
            self.outgoing.add(line)
        return NOTHING

    def sent(self, line: bytes) -> Events:
        """Open the request that this line is, or forget the one that it cancels."""
        frame = decode_request(line)
        if isinstance(frame, Fault) or frame.request_id is None or frame.operation is None:
            return NOTHING
        request_id, operation = frame.request_id, frame.operation
        if operation == "cancel":
            self._open.pop(request_id, None)
            return NOTHING
        if frame.tool is None and operation in _FLOW:
            return NOTHING
        if operation == Operation.DESCRIBE and request_id.endswith(SYNC):
            if self._step.lost:
                self._step.begin_mark(request_id)
            return NOTHING
        if request_id in self._open:
            return NOTHING
        if operation in (Operation.HEALTH, Operation.DESCRIBE):
            request = Request(request_id, Operation(operation))
        else:
            op = frame.input.get("op") if operation == _INVOKE else operation
            request = Request(request_id, _INVOKE, op if isinstance(op, str) else "")
        self._open[request_id] = _Open(request_id, request.operation)
        return [Asked(request)]

    # What the module says.

    def receive_data(self, data: bytes) -> Events:
        """Take bytes from stdout."""
        if self._splitter.pending_bytes + len(data) > LONG_BYTES:
            with collector_paused():
                received = self._receive_data(data)
        else:
            received = self._receive_data(data)
        return received if self._handshake is None else self._shake(received, self._handshake)

    def _receive_data(self, data: bytes) -> list[Received]:
        received: list[Received] = []
        streaming = self._streaming
        for line in self._splitter.feed(data):
            if not isinstance(line, bytes):
                self._reject(overlong_fault(line), None, received, owned=True)
            # After an event mostly comes another one: the look costs a fifth of what an event does.
            elif not streaming and line.find(b'"type"') < 0:  # in half the time of `in`
                self._receive_reply_line(line, received)
            else:
                # No function of its own: a stream spends its time here. Nothing is skipped in what
                # the decoder takes, so it is UTF-8.
                try:
                    unread = len(line) > SMALL_BYTES and is_dense(line)
                    event = None if unread else decode_event(line)
                except _DECODE_ERRORS:
                    event = None
                if event is None:
                    streaming = False
                    if line.find(b'"type"') < 0:
                        self._receive_reply_line(line, received)
                    else:
                        self._receive_extended(line, received)
                    continue
                streaming = True
                named = event.request_id
                # `type() is`: where the answer is no, `isinstance` of a msgspec type takes five
                # times as long.
                kind = type(event)
                if (kind is UiEvent or kind is Log or kind is StatePatch) and named in self._open:
                    received.append(EventReceived(named, event, line))
                else:
                    self._receive_event(event, line, line, received)
        self._streaming = streaming
        return received

    def receive_eof(self) -> Events:
        """Accept a last line without a newline if it is a whole object (docs/protocol.md)."""
        line = self._splitter.finish()
        if line is None:
            return NOTHING
        received: list[Received] = []
        if not isinstance(line, bytes):
            self._reject(overlong_fault(line), None, received, owned=True)
        elif isinstance(document := read_object(line), Fault):
            words = "the output ends in the middle of a line"
            fault = Fault(Reason.TRUNCATED_LINE, words, excerpt(line))
            request = self._find(None)
            # Not an answer yet: how the process ended may say more (policy.verdict).
            received.append(Violated(request.request_id, fault) if request else Quarantined(fault))
        elif "type" in document:
            self._receive_extended(line, received)
        else:
            self._receive_document(line, document, received)
        return received if self._handshake is None else self._shake(received, self._handshake)

    def process_exited(self, code: int | None) -> Events:
        """Leave all requests unanswered that are still open."""
        del code
        unanswered = [
            Unanswered(
                one.request_id, None if one.last_error is None else read_error(one.last_error)
            )
            for one in self._open.values()
        ]
        self._open.clear()
        self._handshake, self.waits = None, ()
        return unanswered

    def time_passed(self, wait: Wait) -> Events:
        """Have the start go on."""
        if self._handshake is None:
            return NOTHING
        return self._take_step(self._handshake.time_passed(wait, self.unfinished_line))

    def _shake(self, received: list[Received], handshake: Handshake) -> list[Received]:
        """Look among what was received for the answers that the start waits for."""
        led_to: list[Received] = []
        for item in received:
            led_to.append(item)
            if self._handshake is None:
                continue
            if not isinstance(item, Answered):
                led_to += self._take_step(handshake.heard(item))
            elif item.request_id == handshake.request.request_id:
                led_to += self._take_step(handshake.answered(item))
        return led_to

    def _take_step(self, step: Step) -> list[Received]:
        assert self._handshake is not None  # noqa: S101 - whose step it is
        self.waits = self._handshake.waits
        if step is None:
            return []
        if isinstance(step, Request):
            return [Asked(step), *self.ask(step)]
        self._handshake = None
        return [step]

    # There are two fast paths, for events (above) and for plain replies: one typed parse each. What
    # they refuse is read again: an event with fields of the module's own, or slowly.

    def _receive_reply_line(self, line: bytes, received: list[Received]) -> None:
        try:
            if len(line) <= SMALL_BYTES:
                reply = decode_invoke_reply(line)
            else:
                reply = skimmed(decode_invoke_reply, line)
        except _DECODE_ERRORS:
            self._receive_slowly(line, received)
            return
        named = reply.request_id
        request = self._find(None) if named is None else self._open.get(named)
        outcome = plain_outcome(reply, line)
        if (
            request is None
            or outcome is None
            or request.operation is not _INVOKE
            or (named is None and line.find(_LIKE_AN_ID, 0, _LOOKED_AT_BYTES) >= 0)
            or not (line.isascii() or is_utf8(line))
        ):
            self._receive_slowly(line, received)
            return
        self._answer(request, named, outcome, received)

    def _receive_extended(self, line: bytes, received: list[Received]) -> None:
        try:
            event, told = decode_extended(line)
        except _DECODE_ERRORS:
            self._receive_slowly(line, received)
            return
        if is_utf8(line):
            if isinstance(event, Done):
                self._warn_of_slips(event, line, received)
            self._receive_event(event, line, told, received)
        else:
            self._receive_slowly(line, received)

    def _receive_slowly(self, line: bytes, received: list[Received]) -> None:
        document = read_object(line)
        if not isinstance(document, Fault):
            self._receive_document(line, document, received)
        elif (mended := without_lone_surrogates(line)) is not None:
            self._receive_mended(mended, received)
        else:
            named, owned = self._answered_by(line)
            request = self._find(named)
            if request is not None and (owned or document.reason is Reason.NOT_OBJECT):
                document = unreadable_answer(line, document, request.operation)
            self._reject(document, named, received, owned=owned)

    def _receive_mended(self, line: bytes, received: list[Received]) -> None:
        before = len(received)
        self._receive_extended(line, received)
        first = received[before] if len(received) > before else None
        if isinstance(first, EventReceived | Answered):
            notice = Notice(*LONE_SURROGATES, excerpt(line))
            received.insert(before, Warned(first.request_id, notice))

    def _answered_by(self, line: bytes) -> tuple[str | None, bool]:
        """Return which request a line names that cannot be read, and whether it is an answer.

        Nothing else will answer that request, so it is not to wait for its deadline.
        """
        try:
            envelope = _ENVELOPE(line)
        except _DECODE_ERRORS:
            return named_in(line), is_meant_as_answer(line)
        answers = envelope.type in (None, "done")
        return envelope.request_id if answers and is_utf8(line) else None, answers

    def _receive_document(
        self, line: bytes, document: dict[str, Any], received: list[Received]
    ) -> None:
        said = document.get("requestId")
        named = said if isinstance(said, str) else None
        if "type" in document:
            event = read_event(line, document)
            if isinstance(event, Fault):
                if event.reason is Reason.UNKNOWN_TYPE and document["type"] == FEATURE:
                    if FEATURE in self._features:
                        self._receive_host_call(line, document, received)
                        return
                    event = unannounced(line, reads_results=not self.closes_stdin)
                self._reject(event, named, received, owned=True)
            else:
                self._receive_event(event, line, None, received)
            return
        shown = excerpt(line)
        if self._step.mark and self._step.passes(named, read_reply(_DESCRIBE, document, shown)):
            return
        request = self._find(named)
        if request is None:
            received.append(self._stray(shown, named))
            return
        outcome = read_reply(request.operation, document, shown)
        if isinstance(outcome, Fault):
            owned = is_meant_as_answer(document, request.operation)
            self._reject(outcome, named, received, owned=owned)
        else:
            words = slips(request.operation, document, request.request_id)
            _warn(request, words, shown, received)
            self._answer(request, named, outcome, received)

    def _warn_of_slips(self, done: Done, line: bytes, received: list[Received]) -> None:
        request = self._find(None if done.request_id is UNSET else done.request_id)
        if request is not None:
            _warn(request, slips_of_done(split_members(line)), excerpt(line), received)

    def _receive_host_call(
        self, line: bytes, document: dict[str, Any], received: list[Received]
    ) -> None:
        """Take a call; unlike an answer it is not paired by order: with several open, it names one.

        A late one without an id would be made on behalf of the wrong request.
        """
        named = document.get("requestId")
        if named is None:
            self._omits_ids = True
            request = self._find(None) if len(self._open) == 1 else None
        else:
            request = self._open.get(named) if isinstance(named, str) else None
        call = received_call(line, document, request, len(self._open))
        if not isinstance(call, Refused):
            received.append(call)
            return
        failure = Failure.because(Reason.MALFORMED_REQUEST, call.message)
        refusal = encode_result(call.request_id, call.call_id, failure)
        if refusal is not None:
            self.outgoing.add(refusal)
        if call.stray:
            received.append(Stray(excerpt(line)))

    def _receive_event(
        self, event: Event, line: bytes, told: bytes | None, received: list[Received]
    ) -> None:
        """Take an event; `told` is what of its line is passed on."""
        named = None if event.request_id is UNSET else event.request_id
        if (
            self._step.mark
            and isinstance(event, Done)
            and self._step.passes(named, read_done(_DESCRIBE, event, None, ""))
        ):
            return
        if named is None and isinstance(event, UiEvent) and event.event == RESOURCE_UPDATED:
            self._receive_update(event, line, received)
            return
        request = self._find(named)
        if request is None:
            if isinstance(event, Log) and named is None:
                received.append(ModuleLog(event))
            else:
                received.append(self._stray(excerpt(line), named))
            return
        if named is None and not isinstance(event, Log):
            self._omits_ids = True
        self._receive_of(request, event, line, told, received)

    def _receive_of(
        self,
        request: _Open,
        event: Event,
        line: bytes,
        told: bytes | None,
        received: list[Received],
    ) -> None:
        match event:
            case Done():
                outcome = read_done(request.operation, event, request.last_error, excerpt(line))
                if isinstance(outcome, Fault):
                    self._reject(outcome, request.request_id, received, owned=True)
                else:
                    named = None if event.request_id is UNSET else event.request_id
                    self._answer(request, named, outcome, received)
                return
            case ErrorEvent():
                request.last_error = event
            case Asset():
                request.assets = request.assets or AssetRules()
                notice = request.assets.refusal(event)
                if notice is not None:
                    received.append(Warned(request.request_id, notice))
                    return
            case _:
                pass
        received.append(EventReceived(request.request_id, event, told))

    def _receive_update(self, event: UiEvent, line: bytes, received: list[Received]) -> None:
        match event.payload:
            case {"uri": str(uri)}:
                received.append(ResourceUpdated(uri))
            case _:
                received.append(self._stray(excerpt(line), None))

    def _answer(
        self, request: _Open, named: str | None, outcome: Outcome, received: list[Received]
    ) -> None:
        if named is not None:
            self._echoes_ids = True
        del self._open[request.request_id]
        if request.operation is not _INVOKE:
            if request.operation is _DESCRIBE:
                self._step.described(outcome)
            outcome = completed(request.operation, outcome, self._descriptor)
            if request.operation is _DESCRIBE and isinstance(outcome, Success):
                self._learn(outcome.result, received)
        received.append(Answered(request.request_id, outcome))

    def _learn(self, description: dict[str, Any], received: list[Received]) -> None:
        """Take note of what the module says that it is; told before the answer that says so."""
        if self.closes_stdin:
            return  # the process ends with this answer
        if self._description is not None and self._description != description:
            received.append(Described(description))
        self._description = description
        self._features = frozenset(description.get("features", ()))

    def _find(self, named: str | None) -> _Open | None:
        if named is not None:
            return self._open.get(named)
        if self._step.mark or not self._open:
            return None
        if len(self._open) > 1 and self._echoes_ids:
            return None
        return next(iter(self._open.values()))

    def _stray(self, shown: str, named: str | None) -> Stray:
        return Stray(shown, None if named in self._given_up else named)

    def _reject(
        self, fault: Fault, named: str | None, received: list[Received], *, owned: bool
    ) -> None:
        if named is not None:
            if self._open.pop(named, None) is None:
                received.append(self._stray(fault.excerpt, named))
            else:
                received.append(Answered(named, fault.failure(), fault))
            return
        oldest = self._find(None)
        if oldest is None:
            received.append(Quarantined(fault))
        elif (
            fault.reason in TOLERABLE
            and not self._strict
            and len(self._open) == 1
            and not (owned and not self._echoes_ids)
        ):
            received.append(Warned(oldest.request_id, Notice.of(fault)))
        else:
            # Of several requests answered in order, each later answer might now be paired with
            # the wrong one; so all of them end here, even of a tolerant module.
            received += [Answered(request_id, fault.failure(), fault) for request_id in self._open]
            self._open.clear()
            if not self._echoes_ids:
                self._step.lose()


def _warn(request: _Open, words: str | None, shown: str, received: list[Received]) -> None:
    if words is not None:
        received.append(Warned(request.request_id, Notice("unknown_field", words, shown)))
