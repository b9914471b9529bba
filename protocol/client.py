"""A client of the daemon's control socket, without I/O: one connection (docs/protocol.md).

Requests go in and lines to be written come out; the daemon's bytes go in and events come out. What
drives it (`supervisor/edge/bindings`) has five verbs: `data_to_send` and `unsent` for what the
socket took, `receive_data`, `receive_eof` and `end` for what came from it.

Rules that live here, and nowhere else:

- no id is used twice on a connection, so a line whose id is not open belongs to a request that was
  cancelled, and is dropped;
- a request is open until its `done`, its cancel, or the end of the connection;
- a cancelled request of which nothing was written is not written; else a `cancel` line follows it;
  it may stay open until its answer (`ask_to_cancel`);
- what is not a line of a daemon ends the connection; nothing after it is read;
- the end names the open requests by whether any byte of them was written: a request of which none
  was can be sent again over another connection, the others may have been served.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Any, final

import msgspec

from protocol.errors import Failure, Outcome, Reason
from protocol.frames import encode_line
from protocol.framing import EXCERPT_BYTES, UNCOUNTED, LineSplitter, Outgoing, Overlong, Written
from protocol.host_call import HostCall, encode_result, read_host_call

LINE_BYTES = 256 << 20
"""A longer line is no answer: modules may write 8 MiB, unless their descriptors allow more."""

_DOCUMENT = msgspec.json.Decoder(dict[str, Any]).decode
_ENVELOPE = ("version", "type", "requestId")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Head(msgspec.Struct, frozen=True):
    """The members of a line that tell which request it belongs to; the others are skipped."""

    type: str
    request_id: str | None = msgspec.field(default=None, name="requestId")
    ok: bool = False


_HEAD = msgspec.json.Decoder(_Head).decode


class _Request(msgspec.Struct, omit_defaults=True):
    request_id: str = msgspec.field(name="requestId")
    tool: str
    operation: str
    input: dict[str, Any]
    login: str | None = msgspec.field(default=None, name="as")
    asks: Sequence[str] = ()
    mcp: bool = False


# --- Events ------------------------------------------------------------------


@final
class RequestEvent(msgspec.Struct, frozen=True, dict=True):
    """An event of an open request, and its line without the newline."""

    request_id: str
    line: bytes

    @cached_property
    def document(self) -> dict[str, Any]:
        """Decode the line; a number beyond a double raises one of `UNDECODABLE`."""
        return _DOCUMENT(self.line)


@final
class Answer(msgspec.Struct, frozen=True, dict=True):
    """The `done` that ended a request."""

    request_id: str
    line: bytes
    ok: bool

    @cached_property
    def document(self) -> dict[str, Any]:
        """Decode the line, without its envelope; raises as that of an event."""
        return {key: value for key, value in _DOCUMENT(self.line).items() if key not in _ENVELOPE}

    @property
    def result(self) -> Any:
        return self.document.get("result")

    @property
    def error(self) -> dict[str, Any]:
        error = self.document.get("error")
        return error if isinstance(error, dict) else {}


@final
class ClientQuestion(msgspec.Struct, frozen=True):
    """The daemon asks the client on behalf of a request whose line had `asks`; see `answer`."""

    request_id: str
    call: HostCall
    line: bytes


@final
class QuestionWithdrawn(msgspec.Struct, frozen=True):
    """The daemon needs no answer to a question any more (`ClientQuestion.call.call_id`)."""

    request_id: str
    call_id: str
    line: bytes


@final
class LineRefusal(msgspec.Struct, frozen=True):
    """A `done` without an id.

    The daemon has no room for the client, could not read a line, or got an answer to a question
    that is not open any more.
    """

    line: bytes


class EndCause(Enum):
    CLOSED = auto()
    """The daemon closed the connection, or the client did."""
    NOT_A_DAEMON = auto()
    """A line came that no daemon writes."""
    OVERLONG = auto()
    """A line came that is longer than the client accepts."""
    UNREAD = auto()
    """The daemon does not read."""


@final
class ConnectionEnd(msgspec.Struct, frozen=True):
    """The last event. `written` and `unwritten` are the ids of the requests that were open."""

    cause: EndCause
    written: tuple[str, ...] = ()
    """At least one byte of each was written."""
    unwritten: tuple[str, ...] = ()
    excerpt: bytes = b""
    """The beginning of the line that ended it."""


StreamEvent = RequestEvent | Answer | ClientQuestion | QuestionWithdrawn
"""An event of one open request."""

ClientEvent = StreamEvent | LineRefusal | ConnectionEnd


class ConnectionEndedError(Exception):
    """There is no answer: the connection has ended.

    `was_written` tells whether any byte of the request was written: if not, it can be sent again.
    """

    def __init__(self, end: ConnectionEnd, *, was_written: bool) -> None:
        super().__init__(f"the connection to the daemon has ended: {end.cause.name.lower()}")
        self.end = end
        self.was_written = was_written


# --- The connection ----------------------------------------------------------


class SocketClient:
    def __init__(self, line_bytes: int = LINE_BYTES) -> None:
        """Accept lines of up to so many bytes."""
        self._splitter = LineSplitter(line_bytes, UNCOUNTED)
        self._outgoing = Outgoing()
        self._open: dict[str, None] = {}  # in the order of their ids
        self._number = 0
        self.ended: ConnectionEnd | None = None

    def request(
        self,
        tool: str,
        operation: str,
        given: dict[str, Any],
        *,
        login: str | None = None,
        asks: Sequence[str] = (),
        mcp: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """Queue a request, and return its id.

        `login` is the handle as which it is asked (`"as"`), `asks` are the host calls that this
        client answers, `mcp` says that it asks for an MCP client, `timeout_s` replaces the module's
        `invoke_s`. Raises `ConnectionEndedError`,
        or what the encoder does for `given`; then nothing is queued.
        """
        if self.ended is not None:
            raise ConnectionEndedError(self.ended, was_written=False)
        request_id = f"c{self._number + 1}"
        if timeout_s is not None:
            given = {**given, "timeout_s": timeout_s}
        frame = _Request(request_id, tool, operation, given, login, asks, mcp)
        self._outgoing.add(encode_line(frame), request_id)
        self._number += 1
        self._open[request_id] = None
        return request_id

    def answer(self, question: ClientQuestion, outcome: Outcome) -> None:
        """Answer a question; dropped if its request has ended meanwhile."""
        self._answer_call(question.request_id, question.call.call_id, outcome)

    def cancel(self, request_id: str) -> None:
        """Give a request up: no event of it comes any more. Does nothing if it is not open."""
        if request_id not in self._open:
            return
        del self._open[request_id]
        if self._outgoing.withdraw(request_id) is not Written.NOTHING:
            self._outgoing.add(encode_line({"requestId": request_id, "operation": "cancel"}))

    def is_written(self, request_id: str) -> bool:
        """Whether the whole line of a request is written, and is not put back any more."""
        return not self._outgoing.holds(request_id)

    def ask_to_cancel(self, request_id: str) -> None:
        """Cancel a request that stays open until its answer, which tells how it ended."""
        if request_id in self._open:
            self._outgoing.add(encode_line({"requestId": request_id, "operation": "cancel"}))

    # Bytes for the daemon.

    @property
    def wants_to_send(self) -> bool:
        return not self._outgoing.empty

    @property
    def held_bytes(self) -> int:
        """Of the line that has not come whole, and of those that were not written."""
        return self._splitter.pending_bytes + self._outgoing.waiting_bytes

    def data_to_send(self) -> bytes:
        """Return bytes for the socket; what it does not take is given back at once (`unsent`)."""
        return self._outgoing.take()

    def unsent(self, size: int) -> None:
        """Put back the last `size` bytes of those that were taken."""
        self._outgoing.take_back(size)

    # Bytes from the daemon.

    def receive_data(self, data: bytes) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        if self.ended is not None:
            return events
        for line in self._splitter.feed(data):
            if isinstance(line, Overlong):
                return events + self.end(EndCause.OVERLONG, line.excerpt)
            try:
                event = self._read(line)
            except UNDECODABLE:
                return events + self.end(EndCause.NOT_A_DAEMON, line[:EXCERPT_BYTES])
            if event is not None:
                events.append(event)
        return events

    def receive_eof(self) -> list[ClientEvent]:
        return self.end(EndCause.CLOSED)

    def end(self, cause: EndCause, excerpt: bytes = b"") -> list[ClientEvent]:
        """End the connection, unless it has ended; nothing is written or read any more."""
        if self.ended is not None:
            return []
        whether = {one: self._outgoing.withdraw(one) is Written.NOTHING for one in self._open}
        self._open, self._outgoing = {}, Outgoing()
        self.ended = ConnectionEnd(
            cause,
            tuple(one for one, unwritten in whether.items() if not unwritten),
            tuple(one for one, unwritten in whether.items() if unwritten),
            excerpt,
        )
        return [self.ended]

    def _read(self, line: bytes) -> ClientEvent | None:
        head = _HEAD(line)
        if not line.isascii():
            line.decode()  # values that are skipped were not checked
        if head.request_id is None:
            return LineRefusal(line) if head.type == "done" else None
        if head.request_id not in self._open:
            return None
        match head.type:
            case "done":
                del self._open[head.request_id]
                return Answer(head.request_id, line, head.ok)
            case "host_call":
                return self._question(head.request_id, line)
            case "host_cancel":
                return _withdrawn(head.request_id, line)
            case _:
                return RequestEvent(head.request_id, line)

    def _question(self, request_id: str, line: bytes) -> ClientQuestion | None:
        call = read_host_call(_DOCUMENT(line))
        if isinstance(call, HostCall):
            return ClientQuestion(request_id, call, line)
        if call.call_id is not None:
            failure = Failure.because(Reason.MALFORMED_REQUEST, call.message)
            self._answer_call(request_id, call.call_id, failure)
        return None

    def _answer_call(self, request_id: str, call_id: str, outcome: Outcome) -> None:
        if request_id in self._open:
            line = encode_result(request_id, call_id, outcome)
            assert line is not None  # noqa: S101 - None is for a part of an answer
            self._outgoing.add(line)


def _withdrawn(request_id: str, line: bytes) -> QuestionWithdrawn | None:
    payload = _DOCUMENT(line).get("payload")
    call_id = payload.get("call_id") if isinstance(payload, dict) else None
    return QuestionWithdrawn(request_id, call_id, line) if isinstance(call_id, str) else None


# --- Dialling again ----------------------------------------------------------

FIRST_S, MOST_S = 0.05, 5.0
"""The pause after the first failure; each further one is twice as long, up to the second figure."""

STEADY_S = 10.0
"""A connection that lasted so long was none that fails at once: the pauses begin anew."""


class Redial:
    """Tells when to connect again; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._connected_at: float | None = None

    def connected(self, now: float) -> None:
        self._connected_at = now

    def failed(self, now: float, draw: float) -> float:
        """Return the time of the next attempt, after one that failed or a connection that ended.

        `draw` is random in [0, 1): a pause is between half of its length and all of it, so that
        many clients of one daemon do not come back together.
        """
        if self._connected_at is not None and now - self._connected_at >= STEADY_S:
            self._failures = 0
        self._connected_at = None
        pause_s = min(FIRST_S * 2.0**self._failures, MOST_S)
        self._failures = min(self._failures + 1, 32)
        return now + pause_s * (0.5 + draw / 2)
