"""The wire of docs/protocol.md, with the daemon as the module: what each line of a client means.

Requests are served concurrently; each ends with exactly one `done` that carries its `requestId`.
One that finds no room in all is `queue_full`, an answer `slow_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.errors import Failure, Reason
from protocol.frames import RequestFrame, decode_request, named_in
from protocol.json_line import Fault
from protocol.problem import named
from protocol.response import Response
from supervisor.faces.exchange import Exchange, done_line
from supervisor.faces.outbox import Outbox
from supervisor.kernel.parties import Begin, Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ALL_BYTES, ARGS
from supervisor.runtime.stalls import SERVING

OPEN_REQUESTS = 8192
"""How many requests a client may have open; beyond it, it is told to wait for answers."""

LITTLE_BYTES = 4096
"""The args of shorter requests are not counted: all that may be open have no more of them than one
client may have (`held_bytes.PARTY_BYTES`)."""


class ModuleWire:
    """The requests of one client."""

    CANCEL = b'"cancel"'

    def __init__(
        self,
        begin: Begin,
        party: Party,
        outbox: Outbox,
        ended: Callable[[], None],
        become_mcp: Callable[[], None],
    ) -> None:
        """Call `ended` for each request that has its answer, `become_mcp` when that was asked."""
        self._begin = begin
        self._party = party
        self._outbox = outbox
        self._account = outbox.account
        self._told_ended = ended
        self._become_mcp = become_mcp
        self._open: dict[str, Exchange] = {}
        self._nameless: set[Exchange] = set()

    @property
    def all_answered(self) -> bool:
        """Whether no request is open."""
        return not self._open and not self._nameless

    def serve(self, line: bytes) -> None:
        """Take a line."""
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
        elif len(line) > LITTLE_BYTES and not self._account.fits(len(line)):
            words = f"{ALL_BYTES} bytes are what the daemon holds for all clients, and this request"
            words += f" of {len(line)} bytes finds no room; try again when others are answered"
            self._write_done(frame.request_id, Failure.because(Reason.QUEUE_FULL, words))
        else:
            exchange = Exchange(frame.request_id, self._outbox, self._ended)
            if len(line) > LITTLE_BYTES:
                exchange.size_bytes = len(line)
                self._account.add(ARGS, len(line))
            if frame.request_id is None:
                self._nameless.add(exchange)
            else:
                self._open[frame.request_id] = exchange
            exchange.handle = self._begin(
                self._party, frame.tool, frame.operation, frame.input, exchange
            )
            if self._party.view is not None:
                self._become_mcp()

    def refuse(self, fault: Fault) -> None:
        """Answer a line that cannot be read."""
        self._refuse_line(fault, None)

    def cancels_open(self, line: bytes) -> bool:
        """Cancel the open request that a line names, if that is what it is about."""
        frame = decode_request(line)
        if not isinstance(frame, RequestFrame) or frame.operation != "cancel":
            return False
        if frame.request_id not in self._open:
            return False  # what it names may wait itself
        self._cancel(frame)
        return True

    def cancelling(self, stopped: Stopped) -> Iterator[None]:
        """Give up whatever the client still waits for, one with each step."""
        # The last one first: the end of one must not be the beginning of another.
        for exchange in (*reversed(self._open.values()), *self._nameless):
            if exchange.handle is not None:
                exchange.handle.cancel(stopped)
            yield

    def close(self) -> None:
        """Do nothing: there are requests, and nothing else."""

    def resume(self) -> None:
        """Have all go on: the client may have room again."""
        for exchange in (*self._open.values(), *self._nameless):
            if exchange.handle is not None:
                exchange.handle.resume()

    def _cancel(self, frame: RequestFrame) -> None:
        exchange = self._open.get(frame.request_id or "")
        # A cancel may cross the answer on its way; then there is nothing left to cancel.
        if exchange is not None and exchange.handle is not None:
            exchange.handle.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _answerable_id(self, line: bytes) -> str | None:
        named = named_in(line)
        return None if named in self._open else named

    def _refuse_line(self, fault: Fault, request_id: str | None) -> None:
        failure = Failure.because(
            Reason.MALFORMED_REQUEST, fault.message, line_excerpt=fault.excerpt
        )
        self._write_done(request_id, failure)

    def _write_done(self, request_id: str | None, failure: Failure) -> None:
        self._outbox.put(done_line(request_id, Response(failure)))

    def _ended(self, exchange: Exchange) -> None:
        if exchange.request_id is None:
            self._nameless.discard(exchange)
        else:
            self._open.pop(exchange.request_id, None)
        if exchange.size_bytes:
            self._account.add(ARGS, -exchange.size_bytes)
        elif self._open:
            return
        self._told_ended()
