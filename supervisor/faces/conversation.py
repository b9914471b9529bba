"""One client, speaking the wire of docs/protocol.md with the daemon as the module.

A line is a request, or a cancel of one. Requests are served concurrently; each ends with exactly
one `done` that carries its `requestId`. What is held for the client is bounded
(`runtime.held_bytes`): while its outbox is congested, or it has asked too much at a time, its
requests wait, up to a bound in bytes, and the modules that stream to it are not read
(backpressure). A request that finds no room in all is `queue_full`, an answer `slow_reader`. Two
things do not wait. A cancel of an open request takes effect at once, so that what a client no
longer wants to read, it can end; and a terminal line is always written, whatever it says. What a
client writes is served a turn at a time (`runtime.turns`): what is left when its turn is over waits
in the same way.
"""

from __future__ import annotations

import structlog
import trio

from protocol.errors import Failure, Reason
from protocol.frames import RequestFrame, decode_request, named_in
from protocol.framing import Line, LineSplitter, Overlong
from protocol.json_line import Fault, excerpt, overlong_fault
from protocol.problem import named
from protocol.response import Response
from supervisor.faces.exchange import Exchange, done_line
from supervisor.faces.inbox import Inbox
from supervisor.faces.outbox import Outbox
from supervisor.kernel.daemon import Daemon
from supervisor.kernel.parties import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ALL_BYTES, ARGS, UNFINISHED_BYTES, Account
from supervisor.runtime.stalls import SERVING
from supervisor.runtime.turns import Turn

REQUEST_BYTES = 16 << 20
"""The longest line a client may write."""

OPEN_REQUESTS = 8192
"""How many requests a client may have open; beyond it, it is told to wait for answers."""

LITTLE_BYTES = 4096
"""The args of shorter requests are not counted: all that may be open have no more of them than one
client may have (`held_bytes.PARTY_BYTES`)."""

CANCEL_BYTES = 1 << 16
"""A longer line is not looked at before its turn for being a cancel."""

_CANCEL = b'"cancel"'

log = structlog.get_logger()


class Conversation:
    """The requests of one client, and what is to be written back to it."""

    def __init__(self, daemon: Daemon, party: Party) -> None:
        """Ask the daemon as `party`."""
        self._account = Account(daemon.facts.ledger, party.label, party.principal.by)
        party.account = self._account
        self.outbox = Outbox(self._resume, self._account)
        self._daemon = daemon
        self._begin = daemon.requests.begin
        self._party = party
        self._splitter = LineSplitter(REQUEST_BYTES)
        self._inbox = Inbox(self._account)
        self._turn = Turn()
        self._open: dict[str, Exchange] = {}
        self._nameless: set[Exchange] = set()
        self._idle = trio.Event()
        self._fewer = trio.lowlevel.ParkingLot()
        """Where it is waited for that less is held."""

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the client; what its turn is too short for waits, but for cancels."""
        self._turn.begin()
        SERVING.begin(self._party.label, "requests")
        lines = self._splitter.feed(data)
        # First, so that a line and what others have begun are not all held while it is served.
        self._account.hold_unfinished(self._splitter.pending_bytes, self._drop_unfinished)
        self._receive_lines(lines)
        SERVING.end()

    def _drop_unfinished(self) -> None:
        beginning = excerpt(self._splitter.drop_pending())
        log.warning("an unfinished line was dropped: too many bytes of them", beginning=beginning)
        words = (
            "the line was dropped before its end: all clients' unfinished lines were more than"
            f" {UNFINISHED_BYTES} bytes, and this was the longest; send it again"
        )
        self._refuse_line(Fault(Reason.LINE_TOO_LONG, words, beginning))

    def close(self, stopped: Stopped) -> None:
        """Give up what the client had open: it is gone."""
        self.outbox.close()
        self.cancel_all(stopped)
        self._account.close()

    def receive_eof(self) -> None:
        """Take the end of what the client writes; a last line may lack its newline."""
        self._turn.begin()
        line = self._splitter.finish()
        self._account.hold_unfinished(0, self._drop_unfinished)
        if line is not None:
            self._receive_lines([line])

    async def wait_room(self) -> None:
        """Return once more may be read from the client."""
        await self._inbox.wait_room()

    async def serve_held(self) -> None:
        """Serve what had to wait, in order, whenever the client has read; until cancelled."""
        while True:
            await self._inbox.wait_some()
            await self._wait_served()
            self._turn.begin()
            SERVING.begin(self._party.label, "requests")
            while not (self._inbox.empty or self._must_wait):
                self._serve_line(self._inbox.take())
            SERVING.end()
            self._look_idle()
            await trio.lowlevel.checkpoint()  # then the neighbours' turn

    def cancel_all(self, stopped: Stopped) -> None:
        """Give up whatever the client still waits for."""
        # The last one first: the end of one must not be the beginning of another.
        for exchange in (*reversed(self._open.values()), *self._nameless):
            if exchange.handle is not None:
                exchange.handle.cancel(stopped)

    def is_idle(self) -> bool:
        """Whether nothing is open, waits, or is still to be read by the client."""
        return self._all_answered() and not self.outbox.waiting_bytes

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
            if not self._inbox.empty or self._must_wait:
                # A chunk may hold as many lines as bytes: those that wait are not looked into.
                self._inbox.put([one for one in lines[number:] if not self._cancels_open(one)])
                return
            self._serve_line(line)

    @property
    def _must_wait(self) -> bool:
        return self.outbox.congested or self._turn.over or self._account.is_full

    async def _wait_served(self) -> None:
        """Return when what the client asks may be served: it reads, and has not asked too much."""
        while self.outbox.congested or self._account.is_full:
            await self.outbox.wait_room()
            if self._account.is_full:  # of requests that are open, then
                await self._fewer.park()

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
        elif len(line) > LITTLE_BYTES and not self._account.fits(len(line)):
            words = f"{ALL_BYTES} bytes are what the daemon holds for all clients, and this request"
            words += f" of {len(line)} bytes finds no room; try again when others are answered"
            self._write_done(frame.request_id, Failure.because(Reason.QUEUE_FULL, words))
        else:
            exchange = Exchange(frame.request_id, self.outbox, self._ended)
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

    def _cancel(self, frame: RequestFrame) -> None:
        exchange = self._open.get(frame.request_id or "")
        # A cancel may cross the answer on its way; then there is nothing left to cancel.
        if exchange is not None and exchange.handle is not None:
            exchange.handle.cancel(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def _answerable_id(self, line: bytes) -> str | None:
        named = named_in(line)
        return None if named in self._open else named

    def _refuse_line(self, fault: Fault, request_id: str | None = None) -> None:
        failure = Failure.because(
            Reason.MALFORMED_REQUEST, fault.message, line_excerpt=fault.excerpt
        )
        self._write_done(request_id, failure)

    def _write_done(self, request_id: str | None, failure: Failure) -> None:
        self.outbox.put(done_line(request_id, Response(failure)))

    def _ended(self, exchange: Exchange) -> None:
        if exchange.request_id is None:
            self._nameless.discard(exchange)
        else:
            self._open.pop(exchange.request_id, None)
        if exchange.size_bytes:
            self._account.add(ARGS, -exchange.size_bytes)
            self._fewer.unpark_all()
        if not self._open:
            self._look_idle()

    def _look_idle(self) -> None:
        if self._all_answered():
            self._idle.set()

    def _all_answered(self) -> bool:
        return not self._open and not self._nameless and self._inbox.empty

    def _resume(self) -> None:
        self._fewer.unpark_all()
        for exchange in (*self._open.values(), *self._nameless):
            if exchange.handle is not None:
                exchange.handle.resume()
