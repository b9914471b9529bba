"""An HTTP request and its response over ASGI, and the requests that it makes to the daemon.

Answers have the headers of all our answers whatever they are, and JSON ends with a newline.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from protocol.amcp_errors import ErrorCode
from protocol.weight import LONG_BYTES, ValueCount
from supervisor.edge.http.messages import (
    ALWAYS,
    BODY_BYTES,
    CLOSE,
    JSON,
    NDJSON,
    NO_STORE,
    RETRY,
    SSE,
    STREAMS,
    WHOLE,
    Headers,
    Receive,
    Refusal,
    Scope,
    Send,
    read_headers,
    read_query,
    read_segment,
    refuse_many,
    too_large,
)

if TYPE_CHECKING:
    from protocol.client import Answer
    from supervisor.edge.bindings.asynchronous import RequestStream
    from supervisor.edge.http.auth import Door, Peer
    from supervisor.edge.http.daemon import Daemon, Login
    from supervisor.edge.http.routes import Route

CUT_OFF_S = 5.0
"""How long a client may take to read what was written before its response was cut off."""

_NO_BODY = {204, 304}
"""A length would be taken for the new length of a cached body (RFC 9110 8.6)."""


_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")


class ClientGoneError(Exception):
    """The client hung up: there is nobody to answer."""


class Exchange:
    """One request, and its response: `respond`, or `begin`, `write` and `end`."""

    route: Route
    login: Login

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        peer: Peer,
        door: Door,
        daemon: Daemon,
    ) -> None:
        """Take a request with nothing of it read."""
        self.scope = scope
        self.receive = receive
        self.send = send
        self.peer = peer
        self.door = door
        self.daemon = daemon
        self.method: str = scope.get("method", "GET")  # a WebSocket's has none
        self.headers: Mapping[str, str] = {}
        self.path = ""
        self.segments: tuple[str, ...] = ()
        """The path's segments, decoded."""
        self.query: Mapping[str, str] = {}
        self.body = b""
        """Of a route that reads it by itself."""
        self.body_bytes = 0
        self.more_headers: Headers = []
        """Headers of whatever is answered."""
        self.is_whole = False
        """Whether all of the request was read: else the next one cannot be found."""
        self.is_begun = False
        """Whether the head of the response was written."""
        self.is_lost = False
        """Whether the gateway's room is full, and the owner holds most: it ends this exchange."""
        self.is_until_hung_up = self.is_hung_up = False
        task = asyncio.current_task(peer.loop)  # of a loop that is not given, it asks the OS
        assert task is not None  # noqa: S101 - it is within one
        self.task = task

    # The request.

    def read_head(self) -> None:
        """Raises `Refusal`."""
        self.headers = read_headers(self.scope["headers"])
        self.is_whole = not self.has_body
        self.path = self.scope["raw_path"].decode("ascii", "replace")
        if not self.path.startswith("/") and not (self.path == "*" and self.method == "OPTIONS"):
            words = "the target of a request is a path, such as /api/v1"
            raise Refusal(ErrorCode.BAD_REQUEST, words)
        segments = self.path.split("/")[1:]
        if "%" in self.path:
            segments = [read_segment(one) for one in segments]
        self.segments = tuple(segments)
        if self.scope["query_string"]:
            self.query = read_query(self.scope["query_string"].decode("ascii", "replace"))

    @property
    def has_body(self) -> bool:
        length = self.headers.get("content-length", "0")
        return length != "0" or "transfer-encoding" in self.headers

    @property
    def is_socket(self) -> bool:
        """Whether it is a WebSocket's handshake."""
        return bool(self.scope["type"] == "websocket")

    def accepts(self, media: str) -> bool:
        """Whether the client accepts that type, or any."""
        said = self.headers.get("accept", "*/*").lower()
        return any(one.partition(";")[0].strip() in (media, "*/*") for one in said.split(","))

    def accepted(self) -> Iterator[str]:
        """Yield the accepted types in order."""
        for part in self.headers.get("accept", "").lower().split(","):
            name, *parameters = (one.strip() for one in part.split(";"))
            if not {"q=0", "q=0.0"} & {*parameters}:
                yield name

    @property
    def wants_stream(self) -> str | None:
        """Return the type of the stream that the client prefers, or None."""
        said = self.headers.get("accept", "").lower()
        if SSE not in said and NDJSON not in said:  # mostly, and looking closer takes longer
            return None
        return next((name for name in self.accepted() if name in STREAMS), None)

    async def read_body(self, most: int = BODY_BYTES) -> bytes:
        """Read the body whole; raises `Refusal`, `ClientGoneError`."""
        if self.is_whole:
            return b""
        said = self.headers.get("content-length", "0")
        if len(said) > 20 or int(said) > most:  # noqa: PLR2004 - digits, by the server
            raise too_large(most)
        body, values, more = bytearray(), ValueCount(), True
        while more:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            piece, more = message.get("body", b""), message.get("more_body", False)
            body += piece
            if len(body) > most:
                raise too_large(most)
            if more or len(body) > LONG_BYTES:
                values.feed(piece)
            if len(body) > LONG_BYTES:
                refuse_many(values)
        self.is_whole, self.body_bytes = True, len(body)
        return bytes(body)

    def until_hung_up(self) -> _UntilHungUp:
        """Cancel the block when the client hangs up, and raise `ClientGoneError` then."""
        return _UntilHungUp(self)

    def hung_up(self) -> None:
        """Cancel the block that is served until the client hangs up."""
        if self.is_until_hung_up:
            self.is_hung_up = True
            self.task.cancel()

    def lose(self) -> None:
        """Cancel its task, which then refuses it: what is held for its principal is too much."""
        self.is_lost = True
        self.task.cancel()

    def passed_on(self) -> None:
        """Note that what the body said is in a line for the daemon; idempotent."""
        self.peer.passed_on(self.body_bytes)
        self.body_bytes = 0

    # Asking the daemon.

    async def ask(self, tool: str, operation: str, given: dict[str, Any]) -> Answer:
        """Ask over the shared connection; raises as `Daemon.ask`."""
        return await self.daemon.ask(self.login, tool, operation, given, self.passed_on)

    def connect(self) -> AbstractAsyncContextManager[Login]:
        """Yield a login over a connection of its own; raises as `Daemon.connect`."""
        return self.daemon.connect(self.login, self.peer.hold)

    @contextlib.asynccontextmanager
    async def stream(
        self, tool: str, operation: str, given: dict[str, Any]
    ) -> AsyncIterator[RequestStream]:
        """Ask over a connection of its own; raises as `ask`, also while it is read."""
        async with self.connect() as own:
            request = await own.request(tool, operation, given)
            self.passed_on()
            async with request as stream:
                yield stream

    # The response.

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer with a whole body."""
        if body and JSON in headers:
            body += b"\n"
        if status not in _NO_BODY:
            headers = [*headers, ("Content-Length", str(len(body)))]
        if self.is_socket or len(body) > LONG_BYTES:  # which is not copied
            await self.begin(status, headers)
            await self.end(body)
        else:
            self.is_begun = True
            raw = self._encoded(headers)
            await self.send({"type": WHOLE, "status": status, "headers": raw, "body": body})

    async def begin(self, status: int, headers: Headers) -> None:
        """Write the head of a response; without a `Content-Length` its body is chunked."""
        self.is_begun = True
        start = "websocket.http.response.start" if self.is_socket else "http.response.start"
        await self.send({"type": start, "status": status, "headers": self._encoded(headers)})

    def _encoded(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Encode the headers of an answer, with those of all our answers."""
        said = [*headers, ALWAYS, *self.more_headers]
        if all(name != "Cache-Control" for name, _ in headers):
            said.append(NO_STORE)
        if self.peer.is_parting or not self.is_whole:
            said.append(CLOSE)
        return [_RAW.get(one) or _encoded(one) for one in said]

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Write a part of the body, once the client has read most of what came before."""
        part = "websocket.http.response.body" if self.is_socket else "http.response.body"
        await self.send({"type": part, "body": data, "more_body": more})

    async def end(self, data: bytes = b"") -> None:
        await self.write(data, more=False)

    async def cut_off(self) -> None:
        """Close the connection, of a body that can't be ended as its head says."""
        self.peer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_OFF_S):
                while (await self.receive())["type"] != "http.disconnect":
                    pass


def _encoded(header: tuple[str, str]) -> tuple[bytes, bytes]:
    name, value = header
    if _CONTROL.search(value):
        raise ValueError(name)  # it would end the header
    return name.encode(), value.encode("latin-1")


_RAW = {one: _encoded(one) for one in (JSON, ALWAYS, NO_STORE, RETRY, CLOSE)}


class _UntilHungUp:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __enter__(self) -> None:
        if self._exchange.peer.is_gone:
            raise ClientGoneError
        self._exchange.is_until_hung_up = True

    def __exit__(self, *_: object) -> None:
        self._exchange.is_until_hung_up = False
        if self._exchange.is_hung_up:  # however the block ended, perhaps before it was cancelled
            self._exchange.task.uncancel()
            raise ClientGoneError from None
