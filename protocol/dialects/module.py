"""Dialect `module`: Module Protocol v1 over STDIO, with Spec 001 event streams (docs/protocol.md).

This file has the start of a process, the requests to it, and the two forms of nearly all lines,
plain events and plain replies. The meaning of other lines, and the request of each line, is in
`module_lines`.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import (
    NOTHING,
    Answered,
    Asked,
    EventReceived,
    Events,
    Flow,
    HostCalled,
    LineConnection,
    LocalError,
    Memory,
    NewId,
    Notice,
    OutOfStep,
    Quarantined,
    Ready,
    Received,
    Request,
    StartFailed,
    Stray,
    Unanswered,
    Violated,
    Wait,
    Warned,
)
from protocol.descriptor.model import Descriptor, Lifecycle, Timeouts
from protocol.dialects.module_lines import DECODE_ERRORS, SYNC, Lines, OpenRequest
from protocol.errors import Failure, Outcome
from protocol.events import Log, StatePatch, UiEvent, decode_event
from protocol.frames import RequestFrame, decode_request, encode, encode_line
from protocol.framing import LineSplitter, Outgoing, Written
from protocol.host_call import Chunk, encode_result
from protocol.json_line import (
    SMALL_BYTES,
    Fault,
    is_dense,
    is_utf8,
    overlong_fault,
    read_object,
    skimmed,
    truncated_fault,
)
from protocol.replies import Operation, decode_invoke_reply, plain_outcome, read_error
from protocol.weight import LONG_BYTES, collector_paused

_INVOKE = Operation.INVOKE
"""A local name: looking up a member of an enum is slow, and each request and answer needs it."""

_LIKE_AN_ID = b"equest"
_LOOKED_AT_BYTES = 256
"""An answer without a `requestId` in its first bytes is searched for another spelling of it."""

_FLOW = frozenset(Flow)


def _invoke_frame(tool: str) -> bytes:
    """Return a request frame without its id and its input: only these are encoded each time."""
    shown = encode_line(RequestFrame("", tool, _INVOKE)).replace(b"%", b"%%")
    return shown.replace(b'""', b"%b", 1).replace(b'"input":{}', b'"input":%b')


FIRST_RETRY_S = 0.02
LAST_RETRY_S = 0.5
"""The longest pause between two `health` questions to a module that is not well yet."""


Step = Request | Ready | StartFailed | None
"""The next question, or how the start ended; None: wait."""


class Handshake:
    r"""The start of a module: `health` until it is well, then `describe`.

        health --ok--> describe --ok--> Ready
          |  |            \--describe_s, or an error--> StartFailed
          |  \--not well yet--> a pause, then health again
          \--start_s, or a wrong answer--> StartFailed

    Each question is a request like any other, and reported as one (`Asked`).
    """

    def __init__(self, timeouts: Timeouts, new_id: NewId) -> None:
        self.waits: tuple[Wait, ...] = ()
        self.request = Request("", Operation.HEALTH)
        self.instead = ""
        """The line that the module printed in place of an answer, as a clause; empty if none."""
        self._timeouts = timeouts
        self._new_id = new_id
        self._well_by = Wait(timeouts.start_s, "an answer to health")
        self._pause: Wait | None = None
        self._pause_s = FIRST_RETRY_S
        self._said: Failure | None = None
        self._asked: set[str] = set()

    def ask_health(self) -> Request:
        self.waits = (self._well_by,)
        return self._ask(Operation.HEALTH)

    def _ask(self, operation: Operation) -> Request:
        self.request = Request(self._new_id(), operation)
        self._asked.add(self.request.request_id)
        return self.request

    def heard(self, item: Received) -> Step:
        """Take an item that is no answer.

        A line with an unknown id cannot be a late answer, and no other answer will come.
        """
        match item:
            case Warned(notice=notice):
                self.instead = notice.in_place_of_answer or self.instead
            case Quarantined(fault=fault):
                self.instead = Notice.of(fault).in_place_of_answer or self.instead
            case Stray(named=named) if named is not None and named not in self._asked:
                reason = f"bad_{self.request.operation}"
                words = f"did not answer {self.request.operation}: {item.in_place_of_answer}"
                return self._failed(reason, words)
            case Stray():
                self.instead = item.in_place_of_answer or self.instead
            case _:
                self.instead = self.instead or "what it printed was not an answer"
        return None

    def answered(self, answered: Answered) -> Step:
        self.instead = ""
        outcome, fault = answered.outcome, answered.fault
        shown = "" if fault is None else f": {fault.excerpt}"
        if self.request.operation is Operation.DESCRIBE:
            if isinstance(outcome, Failure):
                words = f"did not describe itself: {outcome.message}{shown}"
                return self._failed("bad_describe", words)
            self.waits = ()
            return Ready(outcome.result, "answered health and describe")
        if not isinstance(outcome, Failure):
            self._said = None
            self.waits = (Wait(self._timeouts.describe_s, "an answer to describe"),)
            return self._ask(Operation.DESCRIBE)
        if fault is not None:
            # A line that is no answer; asking again would bring the same.
            return self._failed("bad_health", f"answered health wrongly: {outcome.message}{shown}")
        self._said = outcome
        self._pause = Wait(self._pause_s, "a better health")
        self._pause_s = min(self._pause_s * 2, LAST_RETRY_S)
        self.waits = (self._well_by, self._pause)
        return None

    def time_passed(self, wait: Wait, unfinished_line: str | None) -> Step:
        if wait is self._pause:
            return self.ask_health()
        if wait is self._well_by:
            words = f"was not healthy within {wait.seconds:g} s"
            return self._failed("start_deadline", *self._why(words, "start_s", unfinished_line))
        words = f"did not describe itself: it gave no answer to describe in {wait.seconds:g} s"
        return self._failed("bad_describe", *self._why(words, "describe_s", unfinished_line))

    def _failed(self, reason: str, words: str, bound: str = "") -> StartFailed:
        self.waits = ()
        return StartFailed(reason, words, bound)

    def _why(self, words: str, bound: str, unfinished_line: str | None) -> tuple[str, str]:
        if self._said is not None:
            return f"{words}; it said: {self._said.message}", bound
        if unfinished_line is not None:
            why = f"it printed a line without a newline at its end: {unfinished_line}"
            return f"{words}; {why}", ""
        return (f"{words}; {self.instead}", "") if self.instead else (words, bound)


class ModuleConnection(LineConnection):
    """One process that answers `health`, `describe` and `invoke`, any number of times."""

    waits: tuple[Wait, ...] = ()

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        del memory
        self._tool = descriptor.name
        self._timeouts = descriptor.supervision.timeouts
        self._new_id = new_id
        self.closes_stdin = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
        self.outgoing = Outgoing()
        self._splitter = LineSplitter(descriptor.supervision.limits.line_bytes)
        self._lines = Lines(descriptor, self.outgoing)
        self._open = self._lines.open
        self._streaming = False
        self._handshake: Handshake | None = None
        self._frame = _invoke_frame(descriptor.name)

    # What the host wants.

    def start(self) -> Events:
        if self.closes_stdin:
            return NOTHING
        self._handshake = Handshake(self._timeouts, self._new_id)
        return self._take_step(self._handshake.ask_health())

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
            line = encode_line(RequestFrame(request.request_id, self._tool, request.operation))
        step = self._lines.step
        if step.lost:
            step.begin_mark(f"{request.request_id}{SYNC}")
            sync = RequestFrame(step.mark, self._tool, Operation.DESCRIBE)
            self.outgoing.add(encode_line(sync))
        self._open[request.request_id] = OpenRequest(request.request_id, request.operation)
        self.outgoing.add(line, request.request_id)
        return NOTHING

    def cancel(self, request_id: str, written: Written) -> Events:
        """Forget a request; its late lines are strays if the module puts ids on all of them."""
        if self._open.pop(request_id, None) is None or written is not Written.ALL:
            return NOTHING
        self._lines.given_up.append(request_id)
        if "cancel" in self._lines.features:
            self.outgoing.add(encode_line({"requestId": request_id, "operation": "cancel"}))
        if self._lines.echoes_ids and not self._lines.omits_ids:
            return NOTHING
        return [OutOfStep("echoes no requestId")]

    def flow(self, request_id: str, operation: Flow) -> Events:
        if "flow" in self._lines.features and request_id in self._open:
            self.outgoing.add(encode_line({"requestId": request_id, "operation": operation}))
        return NOTHING

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        line = encode_result(asked.request_id, asked.call.call_id, outcome, chunk)
        if line is not None:
            self.outgoing.add(line)
        return NOTHING

    def sent(self, line: bytes) -> Events:
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
            if self._lines.step.lost:
                self._lines.step.begin_mark(request_id)
            return NOTHING
        if request_id in self._open:
            return NOTHING
        if operation in (Operation.HEALTH, Operation.DESCRIBE):
            request = Request(request_id, Operation(operation))
        else:
            op = frame.input.get("op") if operation == _INVOKE else operation
            request = Request(request_id, _INVOKE, op if isinstance(op, str) else "")
        self._open[request_id] = OpenRequest(request_id, request.operation)
        return [Asked(request)]

    # What the module says.

    def receive_data(self, data: bytes) -> Events:
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
                self._lines.reject(overlong_fault(line), None, received, owned=True)
            # After an event mostly comes another one: the look costs a fifth of what an event does.
            elif not streaming and line.find(b'"type"') < 0:  # in half the time of `in`
                self._receive_reply_line(line, received)
            else:
                # No function of its own: a stream spends its time here. Nothing is skipped in what
                # the decoder takes, so it is UTF-8.
                try:
                    unread = len(line) > SMALL_BYTES and is_dense(line)
                    event = None if unread else decode_event(line)
                except DECODE_ERRORS:
                    event = None
                if event is None:
                    streaming = False
                    if line.find(b'"type"') < 0:
                        self._receive_reply_line(line, received)
                    else:
                        self._lines.receive_extended(line, received)
                    continue
                streaming = True
                named = event.request_id
                # `type() is`: where the answer is no, `isinstance` of a msgspec type takes five
                # times as long.
                kind = type(event)
                if (kind is UiEvent or kind is Log or kind is StatePatch) and named in self._open:
                    received.append(EventReceived(named, event, line))
                else:
                    self._lines.receive_event(event, line, line, received)
        self._streaming = streaming
        return received

    def receive_eof(self) -> Events:
        """Accept a last line without a newline if it is a whole object (docs/protocol.md)."""
        line = self._splitter.finish()
        if line is None:
            return NOTHING
        received: list[Received] = []
        if not isinstance(line, bytes):
            self._lines.reject(overlong_fault(line), None, received, owned=True)
        elif isinstance(document := read_object(line), Fault):
            fault = truncated_fault(line)
            request = self._lines.find(None)
            # Not an answer yet: how the process ended may say more (policy.verdict).
            received.append(Violated(request.request_id, fault) if request else Quarantined(fault))
        elif "type" in document:
            self._lines.receive_extended(line, received)
        else:
            self._lines.receive_document(line, document, received)
        return received if self._handshake is None else self._shake(received, self._handshake)

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

    def time_passed(self, wait: Wait) -> Events:
        if self._handshake is None:
            return NOTHING
        return self._take_step(self._handshake.time_passed(wait, self.unfinished_line))

    def _shake(self, received: list[Received], handshake: Handshake) -> list[Received]:
        """Pick out the answers that the start waits for."""
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
        except DECODE_ERRORS:
            self._lines.receive_slowly(line, received)
            return
        named = reply.request_id
        request = self._lines.find(None) if named is None else self._open.get(named)
        outcome = plain_outcome(reply, line)
        if (
            request is None
            or outcome is None
            or request.operation is not _INVOKE
            or (named is None and line.find(_LIKE_AN_ID, 0, _LOOKED_AT_BYTES) >= 0)
            or not (line.isascii() or is_utf8(line))
        ):
            self._lines.receive_slowly(line, received)
            return
        if named is not None:
            self._lines.echoes_ids = True
        del self._open[request.request_id]
        received.append(Answered(request.request_id, outcome))
