"""One client over HTTP/1.1: bytes in, requests begun one after the other, bytes out.

    idle -> head -> body -> served -> idle       each but `served` with a bound in time

This file is about a request's bytes, `api` about its meaning. A client may switch to WebSocket
(`faces.http.websocket`), which takes the bytes then. Bytes held for the client count in its
account, and are read a turn at a time, as with lines (`faces.conversation`). A request that was
answered before its end ends the connection: where the next one begins cannot be known.
"""

from __future__ import annotations

import time
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import h11
import structlog
import trio

from protocol.amcp_errors import AmcpError, ErrorCode
from protocol.errors import Reason
from protocol.frames import encode
from supervisor.faces.http.body import BODY_BYTES, Body, too_large
from supervisor.faces.http.head import (
    HEAD_BYTES,
    Head,
    Headers,
    Refusal,
    check_host,
    check_origin,
    cors,
    is_preflight,
    is_visit,
    read_head,
)
from supervisor.faces.http.identity import NOBODY, Identity, Peer
from supervisor.faces.outbox import TOGETHER_BYTES, Outbox
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import UNFINISHED_BYTES, Account
from supervisor.runtime.supervision.deadlines import Queue
from supervisor.runtime.turns import SERVING, Turn

if TYPE_CHECKING:
    from supervisor.faces.http.api import Api
    from supervisor.faces.http.route import Route
    from supervisor.faces.http.websocket import WebSocket

IDLE_S = 75.0
"""Between two requests; longer than the minute for which many clients keep a connection."""

HEAD_S = 10.0
"""From the first byte of a request to the end of its head."""

BODY_S = 60.0
"""From there to the end of its body."""

HUNG_UP = Stopped(Reason.DISCONNECT, "the client hung up")

_NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
_NO_STORE = ("Cache-Control", "no-store")

log = structlog.get_logger()


class Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    SERVED = auto()


_BOUND_S = {Phase.IDLE: IDLE_S, Phase.HEAD: HEAD_S, Phase.BODY: BODY_S}


class Serves(Protocol):
    """An open request, for its connection (`faces.http.exchange`)."""

    @property
    def handle(self) -> Open | None:
        """Cancelled when the client hangs up; None if nothing is open."""


class Open(Protocol):
    def cancel(self, stopped: Stopped) -> None:
        """Idempotent."""

    def resume(self) -> None: ...


class HttpConnection:
    """The requests of one client, and the answers to it."""

    def __init__(self, daemon: Kernel, api: Api, peer: Peer) -> None:
        self.party = Party(peer.user or NOBODY)
        self.account = Account(daemon.facts.ledger, self.party.label, self.party.principal.by)
        self.party.account = self.account
        self.current: HttpConnection | WebSocket = self
        self.outbox = Outbox(self._resume, self.account)
        self.begin = daemon.requests.begin
        self.head: Head | None = None
        self.closing = False
        """Whether nothing more is read: the connection is closed once all is written."""
        self.patience = trio.CancelScope()
        """Cancelled when the client takes too long."""
        self._daemon = daemon
        self._api = api
        self._peer = peer
        self.identity = Identity(peer, daemon.tokens, self.account)
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self.turn = Turn(who=self.party.label)
        """The client's bytes are served in it, WebSocket too."""
        self._phase = Phase.SERVED
        self._body = Body(self.account, self._drop_unfinished)
        self._route: Route | None = None
        """The route of `head`, once it is checked."""
        self._exchange: Serves | None = None
        self._bound: Queue | None = None
        """The deadline of the current phase."""
        self._ended = trio.lowlevel.ParkingLot()
        self._unread = 0
        self._wait_for(Phase.IDLE)

    # What comes from the client.

    def receive_data(self, data: bytes) -> None:
        """Take bytes; `b""` is their end. `advance` serves them."""
        self._unread += len(data)
        try:
            self._wire.receive_data(data)
        except h11.RemoteProtocolError:  # bytes behind the end
            self.closing = True

    def advance(self) -> bool:
        """Serve the received bytes for one turn; returns whether another turn is needed."""
        self.turn.begin()
        SERVING.begin(self.party.label, "requests")
        try:
            more = False
            while self._exchange is None and not self.closing:
                more = self.turn.over
                if more or not self._step():
                    break
            self._rest()
            return more
        finally:
            SERVING.end()

    @property
    def has_enough(self) -> bool:
        """Whether a further request has begun to come during the open one."""
        return self._exchange is not None and self._unread > 0

    @property
    def is_serving(self) -> bool:
        return self._exchange is not None

    def is_idle(self) -> bool:
        """Whether nothing is open, and nothing is unread by the client."""
        return self._phase is Phase.IDLE and not self.outbox.waiting_bytes

    async def wait_ended(self) -> None:
        await self._ended.park()

    async def wait_answered(self) -> None:
        while self._exchange is not None:
            await self._ended.park()

    def too_slow(self) -> None:
        """Give up on a client that took too long."""
        if self._phase in (Phase.HEAD, Phase.BODY):
            words = f"the request did not come to its end within {_BOUND_S[self._phase]:g} s"
            self._refuse(Refusal(ErrorCode.TIMEOUT, words, status=408))
        self.closing = True

    def cancel(self, stopped: Stopped) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.handle is not None:
            exchange.handle.cancel(stopped)

    def expired(self) -> None:
        """The client took too long (deadlines.Bounded)."""
        self.patience.cancel()

    def holds_nothing(self) -> bool:
        """Whether nothing is open, and nothing is unread by the client."""
        return self.current.is_idle()

    def close(self, stopped: Stopped) -> None:
        """Cancel all that the client had open: the client is gone; idempotent."""
        self.closing = True
        self._wait_for(Phase.SERVED)
        self.outbox.close()
        self.current.cancel(stopped)
        self.identity.leave()
        self.account.close()

    # What goes to the client: a whole response, or its parts.

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the open request; JSON ends with a newline."""
        if body and JSON in headers:
            body += b"\n"
        length = [] if status in _NO_BODY else [("Content-Length", str(len(body)))]
        self.begin_body(status, [*headers, *length], body)
        self.end_body()

    def begin_body(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Write the head of a response, and the beginning of its body."""
        said = [*headers, _NO_SNIFFING, ("Date", _date(int(time.time())))]
        if _NO_STORE[0] not in dict(headers):
            said.append(_NO_STORE)
        if self.head is not None and self._peer.origins:
            said += cors(self.head, self._peer.origins)
        if self.closing or self._daemon.ending:
            said.append(("Connection", "close"))
        data = self._wire.send(_response(status, tuple(said))) or b""
        if body and self._wants_body:
            more = self._wire.send(h11.Data(body)) or b""
            if len(more) > TOGETHER_BYTES:
                self._put(data)
                data = more
            else:
                data += more
        self._put(data)

    def put_body(self, data: bytes) -> None:
        if self._wants_body:
            self._put(self._wire.send(h11.Data(data)) or b"")

    @property
    def _wants_body(self) -> bool:
        return self.head is None or self.head.method != "HEAD"

    def end_body(self) -> None:
        """Write the end of a response; then the next request may come."""
        self._put(self._wire.send(h11.EndOfMessage()) or b"")
        self._exchange = None
        self.head = None
        self._body.take()
        if self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE:
            self._wire.start_next_cycle()
            self._wait_for(Phase.IDLE)
        else:
            self.closing = True
            self.patience.cancel()  # nothing more is read
        self._ended.unpark_all()

    def switch(self, headers: Headers) -> bytes:
        """Switch to WebSocket; returns the bytes that have come for it already."""
        said = [("Upgrade", "websocket"), ("Connection", "Upgrade"), *headers]
        self._put(self._wire.send(h11.InformationalResponse(status_code=101, headers=said)) or b"")
        self._exchange = None
        self.head = None
        self._ended.unpark_all()
        return bytes(self._wire.trailing_data[0])

    def abort(self) -> None:
        """Give up a response that can't be ended as it was announced."""
        self._exchange = None
        self.closing = True
        self.patience.cancel()
        self._ended.unpark_all()

    def _put(self, data: bytes) -> None:
        if data:
            self.outbox.put(data)

    # One step of the request that comes.

    def _step(self) -> bool:
        try:
            event = self._wire.next_event()
            # `isinstance` of an abstract class is slow to say no.
            if type(event) is h11.Request:
                self._begin_request(event)
            elif type(event) is h11.Data:
                self._body.add(bytes(event.data))
            elif type(event) is h11.EndOfMessage:
                self._serve()
            elif type(event) is h11.ConnectionClosed:
                self.closing = True
            else:
                return False
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            self._refuse(Refusal(ErrorCode.BAD_REQUEST, str(error), status=status))
        except Refusal as refusal:
            self._refuse(refusal)
        return True

    def _begin_request(self, event: h11.Request) -> None:
        head = read_head(event.method, event.target, event.headers)
        self.head = head
        check_host(head, self._peer.served)
        # The answer to an allowed page's preflight is no secret, nor is our own page.
        asks = bool(cors(head, self._peer.origins)) and is_preflight(head)
        is_open = self._api.is_open(head)
        if not (is_open and is_visit(head)):
            check_origin(head, self._peer.scheme, self._peer.origins)
        is_open = is_open or asks
        principal = NOBODY if is_open else self.identity.principal_of(head, self._token_over)
        self.party.principal = principal
        self.identity.count_request()
        self._route = self._api.check(head)
        length = head.headers.get("content-length", "0")
        most = HEAD_BYTES if is_open else BODY_BYTES
        is_long = len(length) > 20 or int(length) > most  # noqa: PLR2004 - digits, by h11
        if is_long or (is_open and "transfer-encoding" in head.headers):
            raise too_large(most)
        if self._wire.they_are_waiting_for_100_continue:
            self._put(
                self._wire.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
            )

    def _token_over(self) -> None:
        self.closing = True
        self.current.cancel(Stopped(Reason.DISCONNECT, "the token that it was asked with is over"))
        self.patience.cancel()

    def _drop_unfinished(self) -> None:
        words = (
            f"all clients' unfinished requests were more than {UNFINISHED_BYTES} bytes, and this"
            " was the longest; send it again"
        )
        self._refuse(Refusal(ErrorCode.RATE_LIMITED, words, status=503, headers=[RETRY]))
        self.closing = True
        self.patience.cancel()

    def _serve(self) -> None:
        assert self.head is not None  # noqa: S101 - a body has a head
        self._unread = len(self._wire.trailing_data[0])
        self._api.serve(self, self.head, self._route, self._body.take())

    def serving(self, exchange: Serves) -> None:
        self._exchange = exchange

    def _refuse(self, refusal: Refusal) -> None:
        if self._wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.closing = True
            return
        if (
            self._wire.their_state is h11.SEND_BODY
            and self.head is not None
            and not self.head.has_body
        ):
            self._wire.next_event()  # the end of nothing
        self.closing = self.closing or self._wire.their_state in _NOT_WHOLE
        self.respond(refusal.status, [*refusal.headers, JSON], error_body(refusal.error))

    def _rest(self) -> None:
        """Count the unfinished request and bound the wait for the rest of it."""
        self._body.hold()
        if self._exchange is not None or self.current is not self:
            self._wait_for(Phase.SERVED)
        elif self.head is not None:
            self._wait_for(Phase.BODY)
        else:
            self._wait_for(Phase.HEAD if self._wire.trailing_data[0] else Phase.IDLE)

    def _wait_for(self, phase: Phase) -> None:
        if phase is self._phase:
            return
        self._phase = phase
        if self._bound is not None:
            self._bound.pop(self, None)
            self._bound = None
        if phase is not Phase.SERVED:
            deadlines = self._daemon.requests.deadlines
            self._bound = deadlines.bound(self, _BOUND_S[phase], trio.current_time())

    def _resume(self) -> None:
        self.current.resume()

    def resume(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.handle is not None:
            exchange.handle.resume()


_NOT_WHOLE = {h11.IDLE, h11.SEND_BODY, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR}
"""The states of a client that has not ended a request, or will not begin another one."""

_NO_BODY = {204, 304}
"""A length would be taken for the new length of a cached body (RFC 9110 8.6)."""

JSON = ("Content-Type", "application/json")
RETRY = ("Retry-After", "1")


def error_body(error: AmcpError) -> bytes:
    return encode(error.body())


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


@lru_cache(maxsize=16)
def _response(status: int, headers: tuple[tuple[str, str], ...]) -> h11.Response:
    """Return the head of a response; within a second the same head is often used again."""
    return h11.Response(status_code=status, headers=list(headers))
