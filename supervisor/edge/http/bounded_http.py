"""Uvicorn's protocols, with bounds on what a client may do, and what it holds counted.

    idle -> head -> body -> served -> idle       each but `served` with a bound in time

What the parser does not accept, and what is too long, too slow or too much, is refused here, and
the connection closed: the application never hears of it. Answers to requests before that one are
due first; then the connection is closed when they are given, without a refusal.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import resource
import sys
import termios
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple, cast

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from protocol.amcp_errors import ErrorCode
from supervisor.edge.http.auth import CLIENTS, Peer
from supervisor.edge.http.messages import (
    ALWAYS,
    CLOSE,
    HEAD_BYTES,
    HEADERS,
    NO_STORE,
    RETRY,
    WHOLE,
    Refusal,
)
from supervisor.edge.http.websocket import GOING_AWAY, SOCKET_PATH, handshake_refusal

UNREAD_BYTES = 1 << 14
"""As much of an answer may wait for its client before its maker waits. It is not counted."""

PIPELINED = 128
"""Requests of one connection that are not answered yet: each costs more than its bytes."""

OF_ONE_SOURCE = 3 / 4
"""The share that one address, or one user of the Unix socket, has of all connections."""

REFUSED = 512
"""Refused connections that linger; of more, a client may read a reset instead of the reason."""


CLOSE_S = 5.0
"""How long a client may take to read the close frame of a WebSocket, and all before it."""


class Bounds(NamedTuple):
    idle_s: float = 75.0
    """Between two requests; longer than the minute for which many clients keep a connection."""
    head_s: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_s: float = 60.0
    """From there to the end of its body."""
    write_s: float = 30.0
    """How long a client may take none of the bytes written to it."""
    linger_s: float = 1.0
    """How long the client's bytes are still read after a refusal: if the connection is closed
    while some are unread, the kernel drops the refusal. Also how long clients may take to close
    when the gateway ends."""
    ping_s: float = 15.0
    """How often a WebSocket is pinged, of which proxies close silent ones; none has to answer."""
    clients: int = 4096
    """In all; under a limit of fewer than twice as many open files, half of those."""


_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)([/?].*)?", re.IGNORECASE)


class BoundedHttp(HttpToolsProtocol):
    _refused: ClassVar[set[BoundedHttp]] = set()
    """Connections beyond the bound, until they are closed."""

    def __init__(self, bounds: Bounds, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._bounds = bounds
        self._refusal: Refusal | None = None
        """Why the parser was stopped, if it was by us."""
        self._running: RequestResponseCycle | None = None
        """The request that the application has; those in `pipeline` come after it."""
        self._is_in_head = False
        self._framing_bytes = 0
        """Received of an unfinished head; or since the last byte of an unfinished body, as
        extensions of a chunk or trailers. What came together with something else is not counted."""
        self._is_deaf = False
        """Whether nothing is read any more: the connection is closed when all is answered."""
        self._is_going_on = False
        """Whether the parser is given a head again, for the body that it left out."""
        self._timer: asyncio.TimerHandle | None = None
        self._bound_s: float | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.peer = Peer(self.transport)
        self.app_state = {**self.app_state, "peer": self.peer}
        self.transport.set_write_buffer_limits(UNREAD_BYTES)
        if self._is_one_too_many():
            self.peer.gone()  # refused connections count for no share
            self.connections.discard(self)
            self._refused.add(self)
            self._refuse(_CROWDED)
            # Over TLS, a close waits for the client's own.
            linger_s = self._bounds.linger_s if len(self._refused) <= REFUSED else 0
            self.loop.call_later(linger_s, self.transport.abort)
        else:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bound_by(None)
        self._unset_keepalive_if_required()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._refused.discard(self)
        self.peer.gone()
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        """Tell the application that the client is gone: uvicorn tells the last request alone."""
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if not self._is_deaf:
            self.peer.received(len(data))
            self._framing_bytes += len(data)
            self._unset_keepalive_if_required()
            self._feed(data)
            self._look()

    def _feed(self, data: bytes) -> None:
        """Parse; goes on behind an upgrade that is ignored (h2c), body and all.

        The parser takes what follows such a head for another protocol's. It is given the head's
        framing again, in a head of which nothing is told.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserError:
                self.send_400_response("")
            except httptools.HttpParserUpgrade as found:
                if not self._should_upgrade():
                    framing = (b"content-length", b"transfer-encoding")
                    again = [b"%b: %b\r\n" % one for one in self.headers if one[0] in framing]
                    rest = data[found.args[0] :]
                    data = b"".join((b"POST / HTTP/1.1\r\n", *again, b"\r\n", rest))
                    continue
                self.handle_websocket_upgrade()
            return

    def _look(self) -> None:
        """Set the bounds for what is unfinished now."""
        if self._is_deaf:
            return
        if not self._is_in_head and self._unfinished is None:
            self._framing_bytes = 0  # an empty line is the beginning of nothing
            if self._running is None and self.timeout_keep_alive_task is None:
                self._wait_for_request()
        elif self._framing_bytes > HEAD_BYTES:
            self._refuse(_TOO_MANY_HEADERS)
        else:
            self._bound_by(self._bounds.head_s if self._is_in_head else self._bounds.body_s)

    # The events of the parser.

    def on_message_begin(self) -> None:
        if self._is_going_on:
            return
        super().on_message_begin()
        self._is_in_head = True
        if len(self.pipeline) >= PIPELINED - 1:
            self._stop(f"more than {PIPELINED} requests were sent ahead of their answers")

    def on_url(self, url: bytes) -> None:
        if not self._is_going_on:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer is no header of the request (RFC 9110 6.5.1): a proxy has not looked at it.
        if self._is_in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self._is_going_on:
            self._is_going_on = False
            return
        self._is_in_head = False
        self._framing_bytes = 0
        self._bound_by(None)
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            self._stop("the only Transfer-Encoding that is understood is chunked", status=501)
        if not self.url.startswith(b"/"):
            self._take_absolute()
        was_paused = self.flow.read_paused
        super().on_headers_complete()
        if not was_paused:  # uvicorn pauses for a pipelined one, and would miss a hang-up
            self.flow.resume_reading()
        self._is_going_on = self.parser.should_upgrade() and not self._should_upgrade()

    def on_message_complete(self) -> None:
        if self._is_going_on:
            return
        self._framing_bytes = 0
        self._bound_by(None)
        super().on_message_complete()

    def _take_absolute(self) -> None:
        """Take host and path of a target that is written as for a proxy."""
        absolute = _ABSOLUTE.fullmatch(self.url)
        if absolute is not None:
            self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"]
            self.headers.append((b"host", absolute[1]))
            self.url = absolute[2] or b"/"
        elif (self.url, self.parser.get_method()) != (b"*", b"OPTIONS"):
            self._stop("the target of a request is a path, such as /api/v1")

    @property
    def _unfinished(self) -> RequestResponseCycle | None:
        """The request of which the body is being read."""
        cycle: RequestResponseCycle | None = self.cycle  # None at first, which its type hides
        is_read = cycle is not None and cycle.more_body and not cycle.response_complete
        return cycle if is_read else None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = Cycle  # uvicorn makes it, and asks nobody of which class
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _should_upgrade(self) -> bool:
        """Whether the connection switches to WebSocket; any other upgrade is ignored."""
        if self.url.partition(b"?")[0] != SOCKET_PATH or not super()._should_upgrade():
            return False
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        return handshake_refusal(headers) is None

    def handle_websocket_upgrade(self) -> None:
        self._is_deaf = True
        if self._running is None:  # else it is closed, when those are answered
            if self._write_timer is not None:
                self._write_timer.cancel()
            super().handle_websocket_upgrade()
            if self.flow.write_paused:  # by an answer before, which nobody else knows
                cast("asyncio.Protocol", self.transport.get_protocol()).pause_writing()
            self.parser = None  # type: ignore[assignment] # as at the end: they have each other

    def on_response_complete(self) -> None:
        self._running = None
        if not self.pipeline:
            self.peer.passed_on(self.peer.unanswered_bytes)
        super().on_response_complete()  # begins the next one
        if self._is_deaf and self._running is None:
            self._part()

    # Refusals, all of which end the connection.

    def _stop(self, words: str, status: int = 400) -> None:
        """Stop the parser within one of its callbacks; `send_400_response` is called next."""
        self._refusal = Refusal(ErrorCode.BAD_REQUEST, words, status=status)
        raise httptools.HttpParserError

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser or one of its callbacks did not accept."""
        del msg
        words = "the request is not as HTTP/1.1 has it (RFC 9112)"
        self._refuse(self._refusal or Refusal(ErrorCode.BAD_REQUEST, words))

    def _refuse(self, refusal: Refusal) -> None:
        self._is_deaf = True
        self._bound_by(None)
        self.flow.resume_reading()
        running, unfinished = self._running, self._unfinished
        if running is not None and running is not unfinished:
            if unfinished is not None:
                self.pipeline.popleft()
            return
        self._disconnect()
        if running is None or not running.response_started:
            self.transport.write(_written(refusal, self.server_state.default_headers))
        self._part()

    def _part(self) -> None:
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
            self._timer = self.loop.call_later(self._bounds.linger_s, self.transport.close)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Cut a stream off, and part from an idle client; other requests are answered first."""
        if self._running is not None and self._running.chunked_encoding:
            self._disconnect()
            self.transport.close()
        else:
            super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(self._bounds.linger_s, self.transport.abort)

    def _is_one_too_many(self) -> bool:
        most = min(self._bounds.clients, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        return CLIENTS.total() > most or CLIENTS[self.peer.source] > int(most * OF_ONE_SOURCE)

    # Time.

    def _wait_for_request(self) -> None:
        later = self.loop.call_later(self._bounds.idle_s, self.timeout_keep_alive_handler)
        self.timeout_keep_alive_task = later

    def _bound_by(self, bound_s: float | None) -> None:
        if bound_s == self._bound_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._bound_s = bound_s
        self._timer = None if bound_s is None else self.loop.call_later(bound_s, self._too_slow)

    def _too_slow(self) -> None:
        words = f"the request did not come to its end within {self._bound_s:g} s"
        self._refuse(Refusal(ErrorCode.TIMEOUT, words, status=408))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.peer.unread(self.transport.get_write_buffer_size())
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.peer.unread(0)
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _watch_writing(self, before: int | None = None) -> None:
        """Abort the connection of a client that takes nothing; a slow one is served."""
        queued = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        size = self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
        if size == before:
            self._disconnect()
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(
                self._bounds.write_s, self._watch_writing, size
            )


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A connection that began as a `BoundedHttp`, whose client it has."""

    @property
    def peer(self) -> Peer:
        return cast("Peer", self.app_state["peer"])

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.gone()
        self.conn.receive_eof()  # ends its parser, which holds it, and all that it has read
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.peer.received(len(data))
        super().data_received(data)

    def handle_cont(self, event: Frame) -> None:
        """Append to the message: short frames would take more memory than their bytes."""
        (begun,) = cast("list[bytes | bytearray]", self.frames)
        whole = begun if isinstance(begun, bytearray) else bytearray(begun)
        whole += event.data
        self.frames = cast("list[bytes]", [whole])
        if event.fin:
            self.send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        if self.queue.empty():  # what came is served, but for what has not come whole
            unfinished = len(self.conn.reader.buffer) + sum(map(len, self.frames))
            self.peer.passed_on(self.peer.unanswered_bytes - unfinished)
        return await super().receive()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.peer.unread(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self.peer.unread(0)

    async def send(self, message: ASGISendEvent) -> None:
        """Write a message; a close does not wait until the client reads."""
        if self.close_sent:  # the client made a mistake, or the server goes
            raise ClientDisconnected
        if message["type"] == "websocket.close":
            self.writable.set()
            self.loop.call_later(CLOSE_S, self.transport.abort)
        await super().send(message)

    def shutdown(self) -> None:
        """Close with 1001, as the server goes."""
        if self.handshake_complete and not self.close_sent:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})
            self.conn.send_close(GOING_AWAY, "the daemon is stopping")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        super().shutdown()


class Cycle(RequestResponseCycle):
    """A request whose whole answer is one write (WHOLE); uvicorn writes head and body apart."""

    async def send(self, message: Any) -> None:
        if message["type"] != WHOLE:
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        headers, body = [*self.default_headers, *message["headers"]], message["body"]
        if (b"Connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        lines = [b"%b: %b\r\n" % header for header in headers]
        if self.scope["method"] == "HEAD":
            body = b""
        self.transport.write(b"".join((STATUS_LINE[message["status"]], *lines, b"\r\n", body)))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _written(refusal: Refusal, headers: list[tuple[bytes, bytes]]) -> bytes:
    status, more, body = refusal.reply()
    length = ("Content-Length", str(len(body) + 1))
    said = [*headers]
    for name, value in (*more, ALWAYS, NO_STORE, length, CLOSE):
        said.append((name.encode(), value.encode()))
    lines = b"".join(b"%s: %s\r\n" % header for header in said)
    phrase = HTTPStatus(status).phrase.encode()
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s\n" % (status, phrase, lines, body)


_TOO_MANY_HEADERS = Refusal(
    ErrorCode.BAD_REQUEST,
    f"a request may have {HEADERS} headers, and {HEAD_BYTES} bytes of them",
    status=431,
)
_CROWDED = Refusal(
    ErrorCode.RATE_LIMITED,
    "more clients are connected than there is room for; nothing was begun, so try again when some"
    " have parted",
    status=503,
    headers=[RETRY],
)
