"""One client, speaking section 5.1 of the wire with the daemon as the module (DESIGN 9).

A line is a request, or a cancel of one. Requests are served concurrently; each ends with exactly
one `done` that carries its `requestId`. What the client does not read is bounded: when its outbox
is congested, nothing more is read from it, and the modules that stream to it are not read either
(backpressure). A terminal line is always taken, since there is one per open request at the most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog
import trio

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Event, Log, Progress
from protocol.frames import RequestFrame, decode_request, encode_line
from protocol.framing import LineSplitter, Overlong
from protocol.json_line import Fault, overlong_fault, read_object
from protocol.replies import Operation
from protocol.response import Response
from supervisor.faces.outbox import Outbox
from supervisor.kernel.daemon import Daemon
from supervisor.kernel.invocations import Invocation
from supervisor.kernel.refusal import RefusedError
from supervisor.policy.verdict import Stopped

REQUEST_BYTES = 16 << 20
"""The longest line a client may write."""

OPEN_REQUESTS = 8192
"""How many requests a client may have open; beyond it, it is told to wait for answers."""

SUPERVISOR = "supervisor"

UNENCODABLE = (RecursionError, UnicodeError, TypeError, ValueError, OverflowError)
"""What `encode_line` may raise over a value it was given."""

log = structlog.get_logger()


class Conversation:
    """The requests of one client, and what is to be written back to it."""

    def __init__(self, daemon: Daemon, nursery: trio.Nursery, name: str = SUPERVISOR) -> None:
        """Run the daemon's own ops in `nursery`; answer as `name` too."""
        self.outbox = Outbox(self._resume)
        self._daemon = daemon
        self._nursery = nursery
        self._names = frozenset({SUPERVISOR, name})
        self._splitter = LineSplitter(REQUEST_BYTES)
        self._open: dict[str, Exchange] = {}
        self._nameless: set[Exchange] = set()
        self._idle = trio.Event()

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the client."""
        for line in self._splitter.feed(data):
            if isinstance(line, Overlong):
                self._refuse_line(overlong_fault(line))
            else:
                self._receive_line(line)

    def receive_eof(self) -> None:
        """Take the end of what the client writes; a last line may lack its newline."""
        line = self._splitter.finish()
        if line is not None:
            self._receive_line(line)

    def cancel_all(self, stopped: Stopped) -> None:
        """Give up whatever the client still waits for."""
        for exchange in (*self._open.values(), *self._nameless):
            exchange.cancel(stopped)

    async def wait_answered(self) -> None:
        """Return when no request is open."""
        while self._open or self._nameless:
            self._idle = trio.Event()
            await self._idle.wait()

    def _receive_line(self, line: bytes) -> None:
        frame = decode_request(line)
        if isinstance(frame, Fault):
            self._refuse_line(frame, self._answerable_id(line))
        elif frame.operation == "cancel":
            self._cancel(frame)
        elif frame.request_id is not None and frame.request_id in self._open:
            words = f"requestId {frame.request_id!r:.80} is open already; wait for its answer"
            self._write_done(None, Failure.because(Reason.MALFORMED_REQUEST, words))
        elif len(self._open) + len(self._nameless) >= OPEN_REQUESTS:
            words = f"more than {OPEN_REQUESTS} requests are open on this connection"
            self._write_done(frame.request_id, Failure.because(Reason.QUEUE_FULL, words))
        else:
            self._begin(frame)

    def _begin(self, frame: RequestFrame) -> None:
        exchange = Exchange(frame.request_id, self.outbox, self._ended)
        if frame.request_id is None:
            self._nameless.add(exchange)
        else:
            self._open[frame.request_id] = exchange
        if frame.tool in self._names:
            self._begin_own(exchange, frame)
        elif frame.tool is None or frame.operation is None:
            words = (
                'a request needs "tool" and "operation": {"requestId","tool","operation","input"}'
            )
            exchange.finish(Failure.because(Reason.MALFORMED_REQUEST, words))
        elif frame.operation == Operation.INVOKE:
            exchange.invocation = self._daemon.invocations.submit(frame.tool, frame.input, exchange)
        elif frame.operation in (Operation.HEALTH, Operation.DESCRIBE):
            tool, operation = frame.tool, Operation(frame.operation)
            self._run(exchange, lambda: self._daemon.operations.ask(tool, operation))
        else:
            words = f"{frame.operation!r:.80} is no operation; there are health, describe, invoke"
            exchange.finish(Failure.because(Reason.MALFORMED_REQUEST, words))

    def _begin_own(self, exchange: Exchange, frame: RequestFrame) -> None:
        operations = self._daemon.operations
        op: object = frame.operation
        args: Any = frame.input
        if op == Operation.HEALTH:
            exchange.finish(Success({"status": "ok"}))
            return
        if op == Operation.DESCRIBE:
            exchange.finish(Success(operations.describe(str(frame.tool))))
            return
        if op == Operation.INVOKE:
            op, args = frame.input.get("op"), frame.input.get("args", {})
        if not isinstance(op, str) or not op:
            words = 'an invoke of the daemon names no op; "input" needs {"op":"...","args":{...}}'
            exchange.finish(Failure.because(Reason.MISSING_OP, words))
        elif (refusal := operations.refusal(op, args)) is not None:
            exchange.finish(refusal)
        elif op == "invoke":
            # An invocation through the daemon itself: how a daemon serves inside another one.
            exchange.invocation = self._daemon.invocations.submit(args["module"], args, exchange)
        else:
            own_op = op
            self._run(exchange, lambda: operations.run(own_op, args, exchange.emit))

    def _run(self, exchange: Exchange, op: Callable[[], Any]) -> None:
        async def task() -> None:
            with exchange.scope:
                try:
                    outcome: Outcome = Success(await op())
                except RefusedError as error:
                    outcome = error.failure
                exchange.finish(outcome)

        self._nursery.start_soon(task)

    def _cancel(self, frame: RequestFrame) -> None:
        exchange = self._open.get(frame.request_id or "")
        # A cancel may cross the answer on its way; then there is nothing left to cancel.
        if exchange is not None:
            exchange.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _answerable_id(self, line: bytes) -> str | None:
        document = read_object(line)
        named = None if isinstance(document, Fault) else document.get("requestId")
        return named if isinstance(named, str) and named not in self._open else None

    def _refuse_line(self, fault: Fault, request_id: str | None = None) -> None:
        failure = Failure.because(
            Reason.MALFORMED_REQUEST, fault.message, line_excerpt=fault.excerpt
        )
        self._write_done(request_id, failure)

    def _write_done(self, request_id: str | None, outcome: Outcome) -> None:
        self.outbox.put(encode_line(done_document(request_id, outcome)))

    def _ended(self, exchange: Exchange) -> None:
        if exchange.request_id is None:
            self._nameless.discard(exchange)
        else:
            self._open.pop(exchange.request_id, None)
        if not self._open and not self._nameless:
            self._idle.set()

    def _resume(self) -> None:
        for exchange in (*self._open.values(), *self._nameless):
            if exchange.invocation is not None:
                exchange.invocation.resume()


class Exchange:
    """One request and its answer; the pipeline's client (kernel.invocations.Client)."""

    def __init__(
        self, request_id: str | None, outbox: Outbox, ended: Callable[[Exchange], None]
    ) -> None:
        self.request_id = request_id
        self.invocation: Invocation | None = None
        self.scope = trio.CancelScope()
        self._outbox = outbox
        self._ended = ended
        self._finished = False

    def event(self, event: Progress) -> None:
        """Write an event."""
        self._outbox.put(event_line(event, self.request_id))

    async def emit(self, event: Progress) -> None:
        """Write an event once there is room."""
        await self._outbox.wait_room()
        self.event(event)

    def finished(self, response: Response) -> None:
        """Write the response of an invocation as a `done` with its fields."""
        envelope = _envelope(self.request_id)
        self._end({**envelope, **response.document()})

    def finish(self, outcome: Outcome) -> None:
        """Write the end of one of the daemon's own operations."""
        self._end(done_document(self.request_id, outcome))

    def congested(self) -> bool:
        """Whether the client does not keep up."""
        return self._outbox.congested

    def cancel(self, stopped: Stopped) -> None:
        """Give the request up; its one answer says so."""
        if self.invocation is not None:
            self.invocation.give_up(stopped)
        elif not self._finished:
            self.scope.cancel()
            self.finish(Failure.because(stopped.reason, stopped.message))

    def _end(self, document: dict[str, Any]) -> None:
        if self._finished:
            return
        self._finished = True
        try:
            line = encode_line(document)
        except UNENCODABLE as error:
            # Too deep, or text that is no Unicode, such as a file's name: this request has its
            # answer all the same, and the others on the connection theirs.
            words = f"the answer cannot be passed on: {type(error).__name__}"
            failure = Failure.because(Reason.INVALID_EVENT, words)
            line = encode_line(done_document(self.request_id, failure))
        self._outbox.put(line)
        self._ended(self)


def event_line(event: Event, request_id: str | None) -> bytes:
    """Encode an event for a client, with the client's id in place of the module's."""
    named = msgspec.UNSET if request_id is None else request_id
    try:
        return encode_line(msgspec.structs.replace(event, request_id=named))
    except UNENCODABLE as error:
        kind = type(error).__name__
        words = f"a {type(event).__name__} event cannot be passed on: {kind}"
        return encode_line(Log(version="0", request_id=named, level="warn", message=words))


def done_document(request_id: str | None, outcome: Outcome) -> dict[str, Any]:
    """Return the `done` event that ends a request."""
    document = _envelope(request_id)
    if isinstance(outcome, Success):
        document |= {"ok": True, "result": outcome.result}
    else:
        error = {"code": outcome.code, "message": outcome.message, "details": outcome.details}
        document |= {"ok": False, "error": error}
    if outcome.summary is not None:
        document["summary"] = outcome.summary
    return document


def _envelope(request_id: str | None) -> dict[str, Any]:
    envelope: dict[str, Any] = {"version": "0", "type": "done"}
    if request_id is not None:
        envelope["requestId"] = request_id
    return envelope
