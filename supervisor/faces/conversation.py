"""One client, speaking the wire of docs/protocol.md with the daemon as the module.

A line is a request, or a cancel of one. Requests are served concurrently; each ends with exactly
one `done` that carries its `requestId`. What the client does not read is bounded: while its outbox
is congested, its requests wait, up to a bound in bytes, and the modules that stream to it are not
read (backpressure). Two things do not wait. A cancel of an open request takes effect at once, so
that what a client no longer wants to read, it can end; and a terminal line is always taken, since
there is one per open request at the most. What a client writes is served a turn at a time
(`runtime.turns`): what is left when its turn is over waits in the same way.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.frames import RequestFrame, decode_request, encode_line, named_in
from protocol.framing import Line, LineSplitter, Overlong
from protocol.json_line import Fault, excerpt, overlong_fault
from protocol.problem import named
from protocol.replies import Operation
from supervisor.faces.exchange import Exchange, done_document
from supervisor.faces.inbox import Inbox
from supervisor.faces.outbox import Outbox
from supervisor.faces.unfinished import UNFINISHED_BYTES, UnfinishedLines
from supervisor.kernel.begin_order import BeginOrder
from supervisor.kernel.daemon import Daemon
from supervisor.kernel.operations.op import Begun
from supervisor.kernel.refusal import RefusedError
from supervisor.policy.verdict import Stopped
from supervisor.runtime.serving import SERVING
from supervisor.runtime.turns import Turn

REQUEST_BYTES = 16 << 20
"""The longest line a client may write."""

OPEN_REQUESTS = 8192
"""How many requests a client may have open; beyond it, it is told to wait for answers."""

CANCEL_BYTES = 1 << 16
"""A longer line is not looked at before its turn for being a cancel."""

SUPERVISOR = "supervisor"

_CANCEL = b'"cancel"'

_INVOKE = Operation.INVOKE
"""A member of an enum is slow to look up, and each request asks for this one."""

_NUMBERS = itertools.count(1)
"""Of the clients of this process."""

log = structlog.get_logger()


class Conversation:
    """The requests of one client, and what is to be written back to it."""

    def __init__(
        self,
        daemon: Daemon,
        nursery: trio.Nursery,
        name: str = SUPERVISOR,
        unfinished: UnfinishedLines | None = None,
        party: str | None = None,
    ) -> None:
        """Run the daemon's own ops in `nursery`; answer as `name` too.

        `unfinished` bounds what this client and others hold of lines without an end; `party` is
        what the client is called.
        """
        self.outbox = Outbox(self._resume)
        self._daemon = daemon
        self._nursery = nursery
        self._names = frozenset({SUPERVISOR, name})
        self._splitter = LineSplitter(REQUEST_BYTES)
        self._unfinished = unfinished or UnfinishedLines()
        self._inbox = Inbox()
        self._turn = Turn()
        self._order = BeginOrder(daemon.checks, party or f"client {next(_NUMBERS)}")
        self._open: dict[str, Exchange] = {}
        self._nameless: set[Exchange] = set()
        self._idle = trio.Event()

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the client; what its turn is too short for waits, but for cancels."""
        self._turn.begin()
        SERVING.begin(self._order.party, "requests")
        lines = self._splitter.feed(data)
        # First, so that a line and what others have begun are not all held while it is served.
        self._unfinished.hold(self, self._splitter.pending_bytes)
        self._receive_lines(lines)
        SERVING.end()

    def drop_unfinished(self) -> None:
        """Hold the client's unfinished line no longer, and tell it so."""
        beginning = excerpt(self._splitter.drop_pending())
        log.warning("an unfinished line was dropped: too many bytes of them", beginning=beginning)
        words = (
            "the line was dropped before its end: all clients' unfinished lines were more than"
            f" {UNFINISHED_BYTES} bytes, and this was the longest; send it again"
        )
        self._refuse_line(Fault(Reason.LINE_TOO_LONG, words, beginning))

    def forget_unfinished(self) -> None:
        """Take note that the client is gone, and will not end its line."""
        self._unfinished.hold(self, 0)

    def receive_eof(self) -> None:
        """Take the end of what the client writes; a last line may lack its newline."""
        self._turn.begin()
        line = self._splitter.finish()
        self.forget_unfinished()
        if line is not None:
            self._receive_lines([line])

    async def wait_room(self) -> None:
        """Return once more may be read from the client."""
        await self._inbox.wait_room()

    async def serve_held(self) -> None:
        """Serve what had to wait, in order, whenever the client has read; until cancelled."""
        while True:
            await self._inbox.wait_some()
            await self.outbox.wait_room()
            self._turn.begin()
            SERVING.begin(self._order.party, "requests")
            while not (self._inbox.empty or self.outbox.congested or self._turn.over):
                self._serve_line(self._inbox.take())
            SERVING.end()
            self._look_idle()
            await trio.lowlevel.checkpoint()  # then the neighbours' turn

    def cancel_all(self, stopped: Stopped) -> None:
        """Give up whatever the client still waits for."""
        # The last one first: the end of one must not be the beginning of another.
        for exchange in (*reversed(self._open.values()), *self._nameless):
            exchange.cancel(stopped)

    async def wait_fleet_stopped(self) -> None:
        """Return when the daemon has stopped all modules."""
        await self._daemon.wait_fleet_stopped()

    async def wait_answered(self) -> None:
        """Return when no request is open, and none waits."""
        while not self._all_answered():
            if self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()

    def _receive_lines(self, lines: list[Line]) -> None:
        for number, line in enumerate(lines):
            if not self._inbox.empty or self.outbox.congested or self._turn.over:
                # A chunk may hold as many lines as bytes: those that wait are not looked into.
                self._inbox.put([one for one in lines[number:] if not self._cancels_open(one)])
                return
            self._serve_line(line)

    def _cancels_open(self, line: Line) -> bool:
        """Cancel the open request that a line names, if that is what it is about."""
        if isinstance(line, Overlong) or len(line) > CANCEL_BYTES or _CANCEL not in line:
            return False
        frame = decode_request(line)
        if not isinstance(frame, RequestFrame) or frame.operation != "cancel":
            return False
        if frame.request_id not in self._open:
            return False  # what it names may wait itself
        self._cancel(frame)
        return True

    def _serve_line(self, line: Line) -> None:
        if isinstance(line, Overlong):
            self._refuse_line(overlong_fault(line))
            return
        frame = decode_request(line)
        if isinstance(frame, Fault):
            self._refuse_line(frame, self._answerable_id(line))
            return
        SERVING.about(frame)
        if frame.operation == "cancel":
            self._cancel(frame)
        elif frame.request_id is not None and frame.request_id in self._open:
            words = f"requestId {named(frame.request_id, 80)} is open already; wait for its answer"
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
        elif frame.operation == _INVOKE:
            self._submit(exchange, frame.tool, frame.input)
        elif frame.operation in (Operation.HEALTH, Operation.DESCRIBE):
            tool, operation = frame.tool, Operation(frame.operation)
            self._run(exchange, lambda: self._daemon.operations.ask(tool, operation))
        else:
            asked = named(frame.operation, 80)
            words = f"{asked} is no operation; there are health, describe, invoke"
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
        elif isinstance(refusal := operations.refusal(op, args), Failure):
            exchange.finish(refusal)
        elif refusal is not None:
            doubt, party = refusal, self._order.party
            self._run(exchange, lambda: operations.look_and_run(doubt, party, exchange.emit))
        elif op == "invoke":
            # An invocation through the daemon itself: how a daemon serves inside another one.
            self._submit(exchange, args["module"], args)
        else:
            own_op = op
            self._run_in_order(exchange, lambda: operations.begin(own_op, args, exchange.emit))

    def _submit(self, exchange: Exchange, tool: str, content: dict[str, Any]) -> None:
        submit = self._daemon.invocations.submit
        exchange.invocation = submit(tool, content, exchange, order=self._order)

    def _run_in_order(self, exchange: Exchange, begin: Callable[[], Begun]) -> None:
        if self._order.is_empty:
            self._run(exchange, begin)
        else:
            # What leaves is skipped: an exchange that was cancelled meanwhile has its answer.
            self._order.hold(
                None, None, lambda _: None if exchange.is_finished else self._run(exchange, begin)
            )

    def _run(self, exchange: Exchange, begin: Callable[[], Begun]) -> None:
        # Begun before the next line is looked at, so that requests have their effects in the order
        # they are written in; what takes time is a task's, and holds up no other.
        try:
            begun = begin()
        except RefusedError as error:
            exchange.finish(error.failure)
            return
        if isinstance(begun, dict):
            exchange.finish(Success(begun))
        else:
            exchange.scope = trio.CancelScope()
            self._nursery.start_soon(self._finish, exchange, exchange.scope, begun)

    async def _finish(
        self, exchange: Exchange, scope: trio.CancelScope, rest: Awaitable[Any]
    ) -> None:
        with scope:
            try:
                outcome: Outcome = Success(await rest)
            except RefusedError as error:
                outcome = error.failure
            exchange.finish(outcome)

    def _cancel(self, frame: RequestFrame) -> None:
        exchange = self._open.get(frame.request_id or "")
        # A cancel may cross the answer on its way; then there is nothing left to cancel.
        if exchange is not None:
            exchange.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _answerable_id(self, line: bytes) -> str | None:
        named = named_in(line)
        return None if named in self._open else named

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
        if not self._open:
            self._look_idle()

    def _look_idle(self) -> None:
        if self._all_answered():
            self._idle.set()

    def _all_answered(self) -> bool:
        return not self._open and not self._nameless and self._inbox.empty

    def _resume(self) -> None:
        for exchange in (*self._open.values(), *self._nameless):
            if exchange.invocation is not None:
                exchange.invocation.resume()
