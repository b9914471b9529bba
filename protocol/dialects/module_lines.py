"""Module lines other than plain events and replies: their meaning, and the request of each line.

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
a line that failed a request stood in its answer's place or before it; `ModuleStep` finds out.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

from protocol.assets import asset_refusal
from protocol.connection import (
    TOLERABLE,
    Answered,
    Described,
    EventReceived,
    HostCalled,
    ModuleLog,
    Notice,
    Quarantined,
    Received,
    ResourceUpdated,
    Stray,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle, StdoutPolicy
from protocol.errors import Code, Failure, Outcome, Reason, Success
from protocol.events import (
    RESOURCE_UPDATED,
    Asset,
    Done,
    ErrorEvent,
    Event,
    Log,
    Progress,
    UiEvent,
    read_event,
)
from protocol.framing import Outgoing
from protocol.host_call import FEATURE, BadCall, encode_result, read_host_call
from protocol.host_events import decode_extended
from protocol.json_line import (
    LONE_SURROGATES,
    Fault,
    excerpt,
    is_utf8,
    is_utf16,
    read_object,
    shown_id,
    split_members,
    without_lone_surrogates,
)
from protocol.replies import (
    EXPECTED,
    DescribeReply,
    Operation,
    completed,
    read_done,
    read_reply,
    slips,
    slips_of_done,
)

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_DESCRIBE = Operation.DESCRIBE

GIVEN_UP_KEPT = 16
"""Late lines of this many requests, those given up last, are recognised."""


SYNC = ".sync"
"""The suffix of the id of the `describe` that marks where the stream is in step again."""


class ModuleStep:
    """Whether lines without an id can be paired with requests, and how the pairing is regained.

        kept --a line that may stand in an answer's place--> lost
        lost --before the next request a `describe` is sent--> syncing
        syncing --its answer--> kept

    The mark is a `describe` and not a `health`: `status` is a common field of results, and the late
    answer of the failed request would be taken for it. Its answer is a description in full, or the
    module's earlier answer to `describe`; a module that declined to describe itself declines again.
    """

    def __init__(self, tool: str) -> None:
        self.lost = False
        self.mark = ""
        """The id of the expected mark; until it comes, a line without an id belongs to no request.
        """
        self._tool = tool
        self._described: Any = None
        self._declines = False

    def lose(self) -> None:
        self.lost, self.mark = True, ""

    def begin_mark(self, mark: str) -> None:
        self.lost, self.mark = False, mark

    def described(self, outcome: Outcome) -> None:
        if isinstance(outcome, Success):
            self._described = outcome.result
        self._declines = isinstance(outcome, Failure) and outcome.code == Code.UNSUPPORTED_OP

    def passes(self, named: str | None, answer: Outcome | Fault) -> bool:
        """Tell whether this answers the mark; then the stream is in step."""
        if named not in (None, self.mark) or not self._is_description(answer):
            return False
        self.mark = ""
        return True

    def _is_description(self, answer: Outcome | Fault) -> bool:
        match answer:
            case Failure(code=code):
                return self._declines and code == Code.UNSUPPORTED_OP
            case Success(result=result) if result == self._described:
                return True
            case Success(result=result):
                try:
                    return msgspec.convert(result, DescribeReply).name == self._tool
                except msgspec.ValidationError:
                    return False
            case _:
                return False


class OpenRequest(msgspec.Struct, gc=False):
    request_id: str
    operation: Operation
    last_error: ErrorEvent | None = None
    assets: set[str] | None = None
    """The ids of its assets so far."""

    def take(self, event: Progress, told: bytes | None) -> EventReceived | Warned:
        """Take an event that does not end the request; `told` is the line to pass on."""
        if isinstance(event, ErrorEvent):
            self.last_error = event  # 4.5: it does not terminate the invocation by itself.
        elif isinstance(event, Asset):
            self.assets = self.assets or set()
            notice = asset_refusal(event, self.assets)
            if notice is not None:
                return Warned(self.request_id, notice)
        return EventReceived(self.request_id, event, told)


class _Envelope(msgspec.Struct):
    request_id: str | None = msgspec.field(default=None, name="requestId")
    type: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope).decode


class Lines:
    """The open requests of one process, and the reading of its lines."""

    def __init__(self, descriptor: Descriptor, outgoing: Outgoing) -> None:
        """Refusals of calls that cannot be served go to `outgoing`."""
        self.open: dict[str, OpenRequest] = {}
        self.echoes_ids = False
        """Whether an answer ever had a `requestId`."""
        self.omits_ids = False
        """Whether an event or call ever had none."""
        self.step = ModuleStep(descriptor.name)
        self.given_up: deque[str] = deque(maxlen=GIVEN_UP_KEPT)
        self.features: frozenset[str] = frozenset()
        """The protocol features that the module announced."""
        self._description: dict[str, Any] | None = None
        """The module's last answer to `describe`."""
        self._descriptor = descriptor
        self._strict = descriptor.transport.stdout is StdoutPolicy.STRICT
        self._closes_stdin = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self._outgoing = outgoing

    def receive_slowly(self, line: bytes, received: list[Received]) -> None:
        """Take a line that no decoder of a form accepts, or say what is wrong with it."""
        document = read_object(line)
        if not isinstance(document, Fault):
            self.receive_document(line, document, received)
        elif (mended := without_lone_surrogates(line)) is not None:
            self._receive_mended(mended, received)
        else:
            self._receive_unreadable(line, document, received)

    def receive_extended(self, line: bytes, received: list[Received]) -> None:
        """Take a line with a `type` that is no plain event: it may have fields of its own."""
        try:
            event, told = decode_extended(line)
        except DECODE_ERRORS:
            self.receive_slowly(line, received)
            return
        if is_utf8(line):
            if isinstance(event, Done):
                self._warn_of_slips(event, line, received)
            self.receive_event(event, line, told, received)
        else:
            self.receive_slowly(line, received)

    def _receive_mended(self, line: bytes, received: list[Received]) -> None:
        before = len(received)
        self.receive_extended(line, received)
        first = received[before] if len(received) > before else None
        if isinstance(first, EventReceived | Answered):
            notice = Notice(*LONE_SURROGATES, excerpt(line))
            received.insert(before, Warned(first.request_id, notice))

    def _receive_unreadable(self, line: bytes, fault: Fault, received: list[Received]) -> None:
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
            if named in self.open and not owned and not self._strict:
                received.append(Warned(named, Notice.of(fault)))
                return
        request = self.find(named)
        if request is not None and (owned or fault.reason is Reason.NOT_OBJECT):
            fault = unreadable_answer(line, fault, request.operation)
        self.reject(fault, named, received, owned=owned)

    def receive_document(
        self, line: bytes, document: dict[str, Any], received: list[Received]
    ) -> None:
        said = document.get("requestId")
        named = said if isinstance(said, str) else None
        if "type" in document:
            event = read_event(line, document)
            if isinstance(event, Fault):
                if event.reason is Reason.UNKNOWN_TYPE and document["type"] == FEATURE:
                    if FEATURE in self.features:
                        self._receive_host_call(line, document, received)
                        return
                    event = self._refuse_unannounced(line, document)
                self.reject(event, named, received, owned=True)
            else:
                self.receive_event(event, line, None, received)
            return
        shown = excerpt(line)
        if self.step.mark and self.step.passes(named, read_reply(_DESCRIBE, document, shown)):
            return
        request = self.find(named)
        if request is None:
            received.append(self._stray(shown, named))
            return
        outcome = read_reply(request.operation, document, shown)
        if isinstance(outcome, Fault):
            owned = is_meant_as_answer(document, request.operation)
            self.reject(outcome, named, received, owned=owned)
        else:
            words = slips(request.operation, document, request.request_id)
            _warn(request, words, shown, received)
            self._answer(request, named, outcome, received)

    def _warn_of_slips(self, done: Done, line: bytes, received: list[Received]) -> None:
        request = self.find(None if done.request_id is UNSET else done.request_id)
        if request is not None:
            _warn(request, slips_of_done(split_members(line)), excerpt(line), received)

    def _receive_host_call(
        self, line: bytes, document: dict[str, Any], received: list[Received]
    ) -> None:
        """Take a call.

        Unlike an answer it is not paired by order: with several requests open, it must name one,
        since a late call would be made on behalf of the wrong request.
        """
        named = document.get("requestId")
        if named is None:
            self.omits_ids = True
            request = self.find(None) if len(self.open) == 1 else None
        else:
            request = self.open.get(named) if isinstance(named, str) else None
        call = read_host_call(document)
        if isinstance(call, BadCall):
            if call.call_id is None:
                notice = Notice("bad_host_call", call.message, excerpt(line))
                answer = Warned(request.request_id, notice) if request else Stray(excerpt(line))
                received.append(answer)
                return
            words = call.message
        elif request is None:
            words = _no_request(named, len(self.open))
        elif request.operation is not Operation.INVOKE:
            words = "a module can call the host while it serves an invoke, not a "
            words += request.operation
        else:
            received.append(HostCalled(request.request_id, call, len(line)))
            return
        failure = Failure.because(Reason.MALFORMED_REQUEST, words)
        self._refuse(named if request is None else request.request_id, call.call_id, failure)
        if request is None:
            received.append(Stray(excerpt(line)))

    def _refuse_unannounced(self, line: bytes, document: dict[str, Any]) -> Fault:
        """Refuse a call of a module that announced none, or could read no result.

        The call fails its request; a module that still reads for a result gets an answer, since it
        would take the next request for it.
        """
        words = f'the module\'s answer to describe does not say "features": ["{FEATURE}"]'
        if self._closes_stdin:
            words = 'only a module with transport.lifecycle "persistent" can call the host'
        words = f"{FEATURE!r} is not an event type here: {words}"
        if not self._closes_stdin:
            failure = Failure.because(Reason.UNKNOWN_TYPE, words)
            self._refuse(document.get("requestId"), read_host_call(document).call_id, failure)
        return Fault(Reason.UNKNOWN_TYPE, words, excerpt(line))

    def _refuse(self, named: object, call_id: str | None, failure: Failure) -> None:
        request_id = named if isinstance(named, str) else None
        if call_id is not None and (refusal := encode_result(request_id, call_id, failure)):
            self._outgoing.add(refusal)

    def receive_event(
        self, event: Event, line: bytes, told: bytes | None, received: list[Received]
    ) -> None:
        """Take an event; `told` is the line to pass on."""
        named = None if event.request_id is UNSET else event.request_id
        if (
            self.step.mark
            and isinstance(event, Done)
            and self.step.passes(named, read_done(_DESCRIBE, event, None, ""))
        ):
            return
        if named is None and isinstance(event, UiEvent) and event.event == RESOURCE_UPDATED:
            self._receive_update(event, line, received)
            return
        request = self.find(named)
        if request is None:
            if isinstance(event, Log) and named is None:
                received.append(ModuleLog(event))
            else:
                received.append(self._stray(excerpt(line), named))
            return
        if named is None and not isinstance(event, Log):
            self.omits_ids = True
        if not isinstance(event, Done):
            received.append(request.take(event, told))
            return
        outcome = read_done(request.operation, event, request.last_error, excerpt(line))
        if isinstance(outcome, Fault):
            self.reject(outcome, request.request_id, received, owned=True)
        else:
            self._answer(request, named, outcome, received)

    def _receive_update(self, event: UiEvent, line: bytes, received: list[Received]) -> None:
        match event.payload:
            case {"uri": str(uri)}:
                received.append(ResourceUpdated(uri))
            case _:
                received.append(self._stray(excerpt(line), None))

    def _answer(
        self, request: OpenRequest, named: str | None, outcome: Outcome, received: list[Received]
    ) -> None:
        if named is not None:
            self.echoes_ids = True
        del self.open[request.request_id]
        if request.operation is not Operation.INVOKE:
            if request.operation is _DESCRIBE:
                self.step.described(outcome)
            outcome = completed(request.operation, outcome, self._descriptor)
            if request.operation is _DESCRIBE and isinstance(outcome, Success):
                self._learn(outcome.result, received)
        received.append(Answered(request.request_id, outcome))

    def _learn(self, description: dict[str, Any], received: list[Received]) -> None:
        """Store the module's description; a change is reported before the answer that has it."""
        if self._closes_stdin:
            return  # the process ends with this answer
        if self._description is not None and self._description != description:
            received.append(Described(description))
        self._description = description
        self.features = frozenset(description.get("features", ()))

    def find(self, named: str | None) -> OpenRequest | None:
        """Return the request of a line, by the id that it names, if any."""
        if named is not None:
            return self.open.get(named)
        if self.step.mark or not self.open:
            return None
        if len(self.open) > 1 and self.echoes_ids:
            return None
        return next(iter(self.open.values()))

    def _stray(self, shown: str, named: str | None) -> Stray:
        return Stray(shown, None if named in self.given_up else named)

    def reject(
        self, fault: Fault, named: str | None, received: list[Received], *, owned: bool
    ) -> None:
        """Take a line that cannot be accepted; `owned`: it is meant as an answer."""
        if named is not None:
            if self.open.pop(named, None) is None:
                received.append(self._stray(fault.excerpt, named))
            else:
                received.append(Answered(named, fault.failure(), fault))
            return
        oldest = self.find(None)
        if oldest is None:
            received.append(Quarantined(fault))
        elif (
            fault.reason in TOLERABLE
            and not self._strict
            and len(self.open) == 1
            and not (owned and not self.echoes_ids)
        ):
            received.append(Warned(oldest.request_id, Notice.of(fault)))
        else:
            # Of several requests answered in order, each later answer might now be paired with
            # the wrong one; so all of them end here, even of a tolerant module.
            received += [Answered(request_id, fault.failure(), fault) for request_id in self.open]
            self.open.clear()
            if not self.echoes_ids:
                self.step.lose()


def _warn(request: OpenRequest, words: str | None, shown: str, received: list[Received]) -> None:
    if words is not None:
        received.append(Warned(request.request_id, Notice("unknown_field", words, shown)))


_KEYS = frozenset({"ok", "result", "error", "status", "type"})

_MARK = re.compile(rb"\xef\xbb\xbf|\xff\xfe|\xfe\xff")
_BEGINS_JSON = re.compile(rb'\{\s*(?:\Z|")')
_BEGINS_SHOWN = re.compile(rb"\{\s*'?(?:ok|result|error|status|type|requestId)'?\s*:")
"""How Python and JavaScript print an object for people."""


def is_meant_as_answer(
    line: bytes | dict[str, Any], operation: Operation = Operation.INVOKE
) -> bool:
    """Tell whether a wrong or unreadable line is meant as an answer; else it is a program's output.

    It is if it is an empty object, or has one of the keys that answers have, or cannot be read and
    begins as such an object would; so does a `{` alone, with which JSON over several lines begins.
    A banner, or a program's own log in JSON, answers no request. A `describe` may be meant by its
    `name`, too.
    """
    if isinstance(line, bytes):
        line = _MARK.sub(b"", line, count=1) if _MARK.match(line) else line
        if is_utf16(line):
            line = line.replace(b"\0", b"")
        return bool(_BEGINS_JSON.match(line) or _BEGINS_SHOWN.match(line))
    if not line or not _KEYS.isdisjoint(line):
        return True
    return operation is Operation.DESCRIBE and "name" in line


def unreadable_answer(line: bytes, fault: Fault, operation: Operation) -> Fault:
    """Return the fault of a line that is meant as an answer, with what would be right."""
    hint = ""
    if _BEGINS_SHOWN.match(line):
        hint = " (an object as the language shows it? JSON.stringify and json.dumps make JSON)"
    words = f"bad reply to {operation}: {fault.message}{hint}; expected {EXPECTED[operation]}"
    return msgspec.structs.replace(fault, message=words)


def _no_request(named: object, count: int) -> str:
    if named is None:
        state = "none is open" if count == 0 else f"{count} are open"
        return f'the call names no "requestId", and {state}'
    if not isinstance(named, str):
        return '"requestId" of the call must be a string'
    return f"the request {named!r:.80} of the call is not open"
