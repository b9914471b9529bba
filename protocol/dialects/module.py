"""Dialect `module`: Module Protocol v1 over STDIO, with Spec 001 event streams (docs/protocol.md).

How a line finds its request, in this order:

1. it has a `requestId`: the open request of that id; a line for no open request is a stray;
2. one request is open: that one;
3. several are open: the oldest, as long as the module was never seen to echo ids (it then answers
   in order, whatever it was sent); of a module that does echo ids it belongs to no request;
4. none is open: a `log` is the module's own, anything else is a stray.

A line that cannot be accepted finds its request in the same way, and fails the request it names; of
a tolerant module, an event with only an unreadable value is set aside as a warning of the request.
While one request is open, and the module was not seen to echo ids, it is that one's answer and
fails it if it is meant as one (`is_meant_as_answer`): as it stands there, no other answer may come.
Any other line is noise, which a tolerant module may print: it is set aside. A line that might stand
for one of several answers fails all of them. When the module echoes no ids, nobody can tell whether
a line that failed a request stood in its answer's place or before it:

    in step --a line that may stand in an answer's place--> lost
    lost    --before the next request a `describe` is sent, the mark--> marked
    marked  --its answer--> in step

Until the mark is answered, a line without an id belongs to no request. The mark is a `describe` and
not a `health`: `status` is a common field of results, and the late answer of the failed request
would be taken for it. Its answer is a description in full, or the module's earlier answer to
`describe`; a module that declined to describe itself declines again.

The start of a process is in `module_start`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

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
    Logged,
    Memory,
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
from protocol.dialects.lines import DECODE_ERRORS, LineConnection, OpenRequest
from protocol.dialects.module_start import Handshake, StartStep
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import (
    RESOURCE_UPDATED,
    Done,
    Event,
    Log,
    StatePatch,
    UiEvent,
    decode_event,
    read_event,
)
from protocol.frames import RequestFrame, encode, encode_line, invoke_frame
from protocol.framing import Written
from protocol.host_call import (
    FEATURE,
    BadCall,
    Chunk,
    encode_result,
    read_host_call,
    why_no_request,
)
from protocol.host_events import decode_extended
from protocol.json_line import (
    LONE_SURROGATES,
    SMALL_BYTES,
    Fault,
    excerpt,
    is_dense,
    is_utf8,
    overlong_fault,
    read_object,
    shown_id,
    skimmed,
    split_members,
    without_lone_surrogates,
)
from protocol.replies import (
    DescribeReply,
    Operation,
    completed,
    decode_invoke_reply,
    is_meant_as_answer,
    plain_outcome,
    read_done,
    read_error,
    read_reply,
    slips,
    slips_of_done,
    unreadable_answer,
)

_DESCRIBE = Operation.DESCRIBE
_INVOKE = Operation.INVOKE
"""A local name: looking up a member of an enum is slow, and each request and answer needs it."""

_TYPE = b'"type"'
_LIKE_AN_ID = b"equest"
_LOOKED_AT_BYTES = 256
"""An answer without a `requestId` in its first bytes is searched for another spelling of it."""

GIVEN_UP_KEPT = 16
"""Late lines of this many requests, those given up last, are recognised."""

SYNC = ".sync"
"""The suffix of the id of the `describe` that marks where the stream is in step again."""


class _LineHead(msgspec.Struct):
    request_id: str | None = msgspec.field(default=None, name="requestId")
    type: str | None = None


_ENVELOPE = msgspec.json.Decoder(_LineHead).decode


class ModuleConnection(LineConnection):
    """One process that answers `health`, `describe` and `invoke`, any number of times."""

    waits: tuple[Wait, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        del memory
        super().__init__(descriptor.supervision.limits.line_bytes)
        self.closes_stdin = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._descriptor = descriptor
        self._new_id = new_id
        self._strict = descriptor.transport.stdout is StdoutPolicy.STRICT
        self._frame = invoke_frame(descriptor.name)
        self._handshake: Handshake | None = None
        self._open: dict[str, OpenRequest] = {}
        self._given_up: deque[str] = deque(maxlen=GIVEN_UP_KEPT)
        self._streaming = False
        """Whether the last line was an event."""
        self._echoes_ids = False
        """Whether an answer ever had a `requestId`."""
        self._omits_ids = False
        """Whether an event or call ever had none."""
        self._features: frozenset[str] = frozenset()
        """The protocol features that the module announced."""
        self._description: dict[str, Any] | None = None
        """The module's last answer to `describe`, completed from the descriptor."""
        self._is_lost = False
        """Whether a mark has to be sent before the next request."""
        self._mark = ""
        """The id of the mark that is to be answered."""
        self._described: Any = None
        """The module's last answer to `describe` in its own words."""
        self._declines = False
        """Whether the module answered `describe` with an error."""

    # The start.

    def start(self) -> Events:
        if self.closes_stdin:
            return NOTHING
        self._handshake = Handshake(self._descriptor.supervision.timeouts, self._new_id)
        return self._take_step(self._handshake, self._handshake.ask_health())

    def time_passed(self, wait: Wait) -> Events:
        if self._handshake is None:
            return NOTHING
        step = self._handshake.time_passed(wait, self.unfinished_line)
        return self._take_step(self._handshake, step)

    def _take_events(self) -> Events:
        """Return the events, with those that each leads to in the start, if it is under way."""
        events = self._events.copy()
        self._events.clear()
        if self._handshake is None:
            return events
        led_to: list[Received] = []
        for item in events:
            led_to.append(item)
            if self._handshake is not None:
                led_to += self._take_step(self._handshake, self._handshake.take(item))
        return led_to

    def _take_step(self, handshake: Handshake, step: StartStep) -> Events:
        self.waits = handshake.waits
        if step is None:
            return NOTHING
        if isinstance(step, Request):
            return [Asked(step), *self.ask(step)]
        self._handshake = None
        return [step]

    # The host's requests.

    def ask(self, request: Request) -> Events:
        if request.request_id in self._open:
            raise LocalError(f"request {request.request_id} is open already")
        # Encoded before it is noted as open: args that cannot be encoded leave nothing behind.
        if request.operation is _INVOKE:
            content: dict[str, Any] = {"op": request.op, "args": request.args}
            if request.session_id is not None:
                content["session_id"] = request.session_id
            if request.traceparent is not None:
                content["traceparent"] = request.traceparent
            line = self._frame % (encode(request.request_id), encode(content))
        else:
            line = encode_line(
                RequestFrame(request.request_id, self._descriptor.name, request.operation)
            )
        if self._is_lost:
            self._is_lost, self._mark = False, f"{request.request_id}{SYNC}"
            self.outgoing.add(
                encode_line(RequestFrame(self._mark, self._descriptor.name, _DESCRIBE))
            )
        self._open[request.request_id] = OpenRequest(request.request_id, request.operation)
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
        if "flow" in self._features and request_id in self._open:
            self.outgoing.add(encode_line({"requestId": request_id, "operation": operation}))
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        line = encode_result(asked.request_id, asked.call.call_id, outcome, chunk)
        if line is not None:
            self.outgoing.add(line)
        return NOTHING

    # The output and the end of the process.

    def _reject_cut_off(self, fault: Fault) -> None:
        request = self._find(None)
        # Not an answer yet: how the process ended may say more (policy.verdict).
        self._events.append(Violated(request.request_id, fault) if request else Quarantined(fault))

    def process_exited(self, code: int | None) -> Events:
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

    def _receive_data(self, data: bytes) -> None:
        """Take plain events and plain replies, nearly all lines, with one typed parse each.

        What these refuse is read again by `_receive_line`.
        """
        events, streaming = self._events, self._streaming
        for line in self._splitter.feed(data):
            if not isinstance(line, bytes):
                self._reject(overlong_fault(line))
                continue
            event: Any = None
            # After an event mostly comes another one: the look costs a fifth of what an event does.
            may_be_event = streaming or line.find(_TYPE) >= 0  # in half the time of `in`
            if may_be_event:
                # No function of its own: a stream spends its time here. Nothing is skipped in what
                # the decoder takes, so it is UTF-8.
                try:
                    if len(line) <= SMALL_BYTES or not is_dense(line):
                        event = decode_event(line)
                except DECODE_ERRORS:
                    pass
            streaming = event is not None
            if event is None:
                has_type = may_be_event and line.find(_TYPE) >= 0
                if has_type or not self._take_plain_reply(line):
                    self._receive_line(line)
                continue
            named = event.request_id
            # `type() is`: where the answer is no, `isinstance` of a msgspec type takes five times
            # as long.
            kind = type(event)
            if (kind is UiEvent or kind is Log or kind is StatePatch) and named in self._open:
                events.append(EventReceived(named, event, line))
            else:
                self._take_event(event, line, line)
        self._streaming = streaming

    def _take_plain_reply(self, line: bytes) -> bool:
        """Take the answer to an invoke that can be passed on as it is; False for another line."""
        try:
            if len(line) <= SMALL_BYTES:
                reply = decode_invoke_reply(line)
            else:
                reply = skimmed(decode_invoke_reply, line)
        except DECODE_ERRORS:
            return False
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
            return False
        if named is not None:
            self._echoes_ids = True
        del self._open[request.request_id]
        self._events.append(Answered(request.request_id, outcome))
        return True

    def _receive_line(self, line: bytes) -> None:
        """Take a line in any form.

        An event may have members of its own, and an object a slip; of a line that cannot be read a
        few fields may show.
        """
        try:
            extended = decode_extended(line) if _TYPE in line and is_utf8(line) else None
        except DECODE_ERRORS:
            extended = None
        if extended is not None:
            event, told = extended
            if isinstance(event, Done):
                self._warn_of_slips(event, line)
            self._take_event(event, line, told)
            return
        document = read_object(line)
        if not isinstance(document, Fault):
            self._take_object(line, document)
        elif (mended := without_lone_surrogates(line)) is not None:
            before = len(self._events)
            self._receive_line(mended)
            first = next(iter(self._events[before:]), None)
            if isinstance(first, EventReceived | Answered):
                notice = Notice(*LONE_SURROGATES, excerpt(mended))
                self._events.insert(before, Warned(first.request_id, notice))
        else:
            self._take_unreadable(line, document)

    def _take_object(self, line: bytes, document: dict[str, Any]) -> None:
        said = document.get("requestId")
        named = said if isinstance(said, str) else None
        if "type" in document:
            event = read_event(line, document)
            if not isinstance(event, Fault):
                self._take_event(event, line, None)
            elif event.reason is not Reason.UNKNOWN_TYPE or document["type"] != FEATURE:
                self._reject(event, named)
            elif FEATURE in self._features:
                self._take_host_call(line, document)
            else:
                self._reject(self._refuse_unannounced(line, document), named)
            return
        shown = excerpt(line)
        if self._mark and self._answers_mark(named, read_reply(_DESCRIBE, document, shown)):
            return
        request = self._find(named)
        if request is None:
            self._drop(shown, named)
            return
        outcome = read_reply(request.operation, document, shown)
        if isinstance(outcome, Fault):
            owned = is_meant_as_answer(document, request.operation)
            self._reject(outcome, named, owned=owned)
        else:
            self._warn(request, slips(request.operation, document, request.request_id), line)
            self._answer(request, named, outcome)

    def _take_unreadable(self, line: bytes, fault: Fault) -> None:
        """Take a line that cannot be read, of which a few fields may show.

        No other line will answer the request that a bad answer names, so the request fails at once
        instead of at its deadline. After a bad event more may come.
        """
        try:
            envelope = _ENVELOPE(line)
        except DECODE_ERRORS:
            named, owned = shown_id(line), is_meant_as_answer(line)
        else:
            named, owned = envelope.request_id, envelope.type in (None, "done")
            if named in self._open and not owned and not self._strict:
                self._events.append(Warned(named, Notice.of(fault)))
                return
        request = self._find(named)
        if request is not None and (owned or fault.reason is Reason.NOT_OBJECT):
            fault = unreadable_answer(line, fault, request.operation)
        self._reject(fault, named, owned=owned)

    def _warn_of_slips(self, done: Done, line: bytes) -> None:
        request = self._find(None if done.request_id is UNSET else done.request_id)
        if request is not None:
            self._warn(request, slips_of_done(split_members(line)), line)

    def _warn(self, request: OpenRequest, words: str | None, line: bytes) -> None:
        if words is not None:
            notice = Notice("unknown_field", words, excerpt(line))
            self._events.append(Warned(request.request_id, notice))

    def _take_event(self, event: Event, line: bytes, told: bytes | None) -> None:
        """Take an event; `told` is the line to pass on."""
        named = None if event.request_id is UNSET else event.request_id
        if (
            self._mark
            and isinstance(event, Done)
            and self._answers_mark(named, read_done(_DESCRIBE, event, None, ""))
        ):
            return
        if named is None and isinstance(event, UiEvent) and event.event == RESOURCE_UPDATED:
            match event.payload:
                case {"uri": str(uri)}:
                    self._events.append(ResourceUpdated(uri))
                case _:
                    self._drop(excerpt(line), None)
            return
        request = self._find(named)
        if request is None:
            if isinstance(event, Log) and named is None:
                self._events.append(Logged(event))
            else:
                self._drop(excerpt(line), named)
            return
        if named is None and not isinstance(event, Log):
            self._omits_ids = True
        if not isinstance(event, Done):
            self._events.append(request.take(event, told))
            return
        outcome = read_done(request.operation, event, request.last_error, excerpt(line))
        if isinstance(outcome, Fault):
            self._reject(outcome, request.request_id)
        else:
            self._answer(request, named, outcome)

    def _answer(self, request: OpenRequest, named: str | None, outcome: Outcome) -> None:
        if named is not None:
            self._echoes_ids = True
        del self._open[request.request_id]
        if request.operation is not _INVOKE:
            stated = completed(request.operation, outcome, self._descriptor)
            if request.operation is _DESCRIBE:
                self._learn(outcome, stated)
            outcome = stated
        self._events.append(Answered(request.request_id, outcome))

    def _learn(self, said: Outcome, stated: Outcome) -> None:
        """Store the answer to a `describe`, in the module's words and completed.

        A change is reported before the answer that has it.
        """
        if isinstance(said, Success):
            self._described = said.result
        self._declines = isinstance(said, Failure) and said.code == Code.UNSUPPORTED_OP
        if self.closes_stdin or isinstance(stated, Failure):
            return  # with stdin closed, the process ends with this answer
        if self._description is not None and self._description != stated.result:
            self._events.append(Described(stated.result))
        self._description = stated.result
        self._features = frozenset(stated.result.get("features", ()))

    def _answers_mark(self, named: str | None, answer: Outcome | Fault) -> bool:
        """Tell whether this answers the mark; then the stream is in step."""
        if named not in (None, self._mark) or not self._is_description(answer):
            return False
        self._mark = ""
        return True

    def _is_description(self, answer: Outcome | Fault) -> bool:
        match answer:
            case Failure(code=code):
                return self._declines and code == Code.UNSUPPORTED_OP
            case Success(result=result) if result == self._described:
                return True
            case Success(result=result):
                try:
                    return msgspec.convert(result, DescribeReply).name == self._descriptor.name
                except msgspec.ValidationError:
                    return False
            case _:
                return False

    def _find(self, named: str | None) -> OpenRequest | None:
        """Return the request of a line, by the id that it names, if any."""
        if named is not None:
            return self._open.get(named)
        if self._mark or not self._open:
            return None
        if len(self._open) > 1 and self._echoes_ids:
            return None
        return next(iter(self._open.values()))

    def _drop(self, shown: str, named: str | None) -> None:
        """Drop a line for a request that is not open."""
        self._events.append(Stray(shown, None if named in self._given_up else named))

    def _reject(self, fault: Fault, named: str | None = None, *, owned: bool = True) -> None:
        """Take a line that cannot be accepted; `owned`: it is meant as an answer."""
        if named is not None:
            if self._open.pop(named, None) is None:
                self._drop(fault.excerpt, named)
            else:
                self._events.append(Answered(named, fault.failure(), fault))
            return
        oldest = self._find(None)
        if oldest is None:
            self._events.append(Quarantined(fault))
        elif (
            fault.reason in TOLERABLE
            and not self._strict
            and len(self._open) == 1
            and not (owned and not self._echoes_ids)
        ):
            self._events.append(Warned(oldest.request_id, Notice.of(fault)))
        else:
            # Of several requests answered in order, each later answer might now be paired with
            # the wrong one; so all of them end here, even of a tolerant module.
            self._events += [
                Answered(request_id, fault.failure(), fault) for request_id in self._open
            ]
            self._open.clear()
            if not self._echoes_ids:
                self._is_lost, self._mark = True, ""

    # Calls of the module to the host.

    def _take_host_call(self, line: bytes, document: dict[str, Any]) -> None:
        """Take a call.

        Unlike an answer it is not paired by order: with several requests open, it must name one,
        since a late call would be made on behalf of the wrong request.
        """
        named = document.get("requestId")
        if named is None:
            self._omits_ids = True
            request = self._find(None) if len(self._open) == 1 else None
        else:
            request = self._open.get(named) if isinstance(named, str) else None
        call = read_host_call(document)
        if isinstance(call, BadCall):
            if call.call_id is None:
                notice = Notice("bad_host_call", call.message, excerpt(line))
                answer = Warned(request.request_id, notice) if request else Stray(excerpt(line))
                self._events.append(answer)
                return
            words = call.message
        elif request is None:
            words = why_no_request(named, len(self._open))
        elif request.operation is not _INVOKE:
            words = "a module can call the host while it serves an invoke, not a "
            words += request.operation
        else:
            self._events.append(HostCalled(request.request_id, call, len(line)))
            return
        failure = Failure.because(Reason.MALFORMED_REQUEST, words)
        self._refuse(named if request is None else request.request_id, call.call_id, failure)
        if request is None:
            self._events.append(Stray(excerpt(line)))

    def _refuse_unannounced(self, line: bytes, document: dict[str, Any]) -> Fault:
        """Refuse a call of a module that announced none, or could read no result.

        The call fails its request; a module that still reads for a result gets an answer, since it
        would take the next request for it.
        """
        words = f'the module\'s answer to describe does not say "features": ["{FEATURE}"]'
        if self.closes_stdin:
            words = 'only a module with transport.lifecycle "persistent" can call the host'
        words = f"{FEATURE!r} is not an event type here: {words}"
        if not self.closes_stdin:
            failure = Failure.because(Reason.UNKNOWN_TYPE, words)
            self._refuse(document.get("requestId"), read_host_call(document).call_id, failure)
        return Fault(Reason.UNKNOWN_TYPE, words, excerpt(line))

    def _refuse(self, named: object, call_id: str | None, failure: Failure) -> None:
        request_id = named if isinstance(named, str) else None
        if call_id is not None and (refusal := encode_result(request_id, call_id, failure)):
            self.outgoing.add(refusal)
