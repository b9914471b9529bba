"""The client of the control socket on asyncio: many requests at a time over one connection.

Back pressure goes both ways, by connection. While a stream holds more than UNREAD_BYTES that its
reader has not taken, nothing is read from the socket: a stream whose reader may be slow needs a
connection of its own. While the socket takes nothing, `request` waits.

The socket is written to directly and not through a transport, which keeps bytes of its own and
does not tell at the end which of them were written.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from protocol.client import (
    LINE_BYTES,
    Answer,
    ClientEvent,
    ClientQuestion,
    ConnectionEnd,
    ConnectionEndedError,
    EndCause,
    LineRefusal,
    SocketClient,
    StreamEvent,
)
from protocol.errors import Outcome
from supervisor.edge.bindings.blocking import CONNECT_S, READ_BYTES

PAUSE_S = 0.01
"""Between two attempts: the kernel does not tell when a listener has room again."""

UNREAD_BYTES = 1 << 18
"""Lines of one stream that its reader has not taken, before the socket is not read."""


class RequestStream:
    """A request. Iterating yields its events and questions, and at last its answer.

    Leaving the block cancels the request if it is open.
    """

    def __init__(self, client: AsyncClient, request_id: str) -> None:
        self.request_id = request_id
        self.unread_bytes = 0
        self._client = client
        self._events: deque[StreamEvent] = deque()
        self._news = asyncio.Event()
        self._over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        self.unread_bytes = 0
        self._client.leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        """Raises `ConnectionEndedError` if the connection ended before the answer."""
        if self._over:
            raise StopAsyncIteration
        while not self._events:
            if (end := self._client.connection.ended) is not None:
                raise ConnectionEndedError(end, was_written=self.request_id in end.written)
            self._news.clear()
            await self._news.wait()
        event = self._events.popleft()
        self.unread_bytes -= len(event.line)
        self._client.taken_from(self)
        self._over = isinstance(event, Answer)
        return event

    async def answer(self) -> Answer:
        """Wait for the answer, and pass over the events; raises as iteration does."""
        while not isinstance(event := await anext(self), Answer):
            pass
        return event

    def put(self, event: StreamEvent) -> None:
        self._events.append(event)
        self.unread_bytes += len(event.line)
        self._news.set()

    def wake(self) -> None:
        self._news.set()


class AsyncClient:
    """A connection to the daemon; needs a running event loop. `connection` is its sans-IO part."""

    def __init__(self, sock: socket.socket, line_bytes: int = LINE_BYTES) -> None:
        """Take a connected socket that does not block."""
        self.connection = SocketClient(line_bytes)
        self.ended = asyncio.Event()
        """Set at the end, which is noticed once what came before it has been taken."""
        self.refusal: LineRefusal | None = None
        """The daemon's refusal of this connection, or of a line that the daemon could not read."""
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, RequestStream] = {}
        self._full: set[RequestStream] = set()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._write_is_due = False
        self._loop.add_reader(sock, self._read)

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Raises `OSError`; `TimeoutError` if the daemon accepts nobody in CONNECT_S."""
        async with asyncio.timeout(CONNECT_S):
            while True:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    connection.settimeout(0)
                    connection.connect(str(path))
                    return cls(connection)
                except BlockingIOError:
                    connection.close()
                except BaseException:  # cancelled, too: nobody else closes it
                    connection.close()
                    raise
                await asyncio.sleep(PAUSE_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, which cancels what is open."""
        for end in self.connection.end(EndCause.CLOSED):
            self._take(end)

    async def request(
        self,
        tool: str,
        operation: str,
        given: dict[str, Any],
        *,
        login: str | None = None,
        asks: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> RequestStream:
        """Send a request once the socket has room; see `SocketClient.request`."""
        await self._has_room.wait()
        request_id = self.connection.request(
            tool, operation, given, login=login, asks=asks, timeout_s=timeout_s
        )
        stream = self._streams[request_id] = RequestStream(self, request_id)
        self._write_soon()
        return stream

    async def answer(self, question: ClientQuestion, outcome: Outcome) -> None:
        """Answer a question once the socket has room."""
        await self._has_room.wait()
        self.connection.answer(question, outcome)
        self._write_soon()

    def leave(self, stream: RequestStream) -> None:
        """Cancel the request of a stream that nobody reads any more, if it is open."""
        self._streams.pop(stream.request_id, None)
        self.connection.cancel(stream.request_id)
        self._write_soon()
        self.taken_from(stream)

    def taken_from(self, stream: RequestStream) -> None:
        """Read from the socket again if this stream was what kept it from that."""
        if stream in self._full and stream.unread_bytes <= UNREAD_BYTES:
            self._full.remove(stream)
            if not self._full and self.connection.ended is None:
                self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        for event in self.connection.receive_data(data) if data else self.connection.receive_eof():
            self._take(event)
        if self._full and self.connection.ended is None:
            self._loop.remove_reader(self._socket)

    def _take(self, event: ClientEvent) -> None:
        match event:
            case ConnectionEnd():
                self._loop.remove_reader(self._socket)
                self._loop.remove_writer(self._socket)
                self._socket.close()
                self._has_room.set()
                self.ended.set()
                for stream in self._streams.values():
                    stream.wake()
            case LineRefusal():
                self.refusal = event
            case _:
                stream = self._streams[event.request_id]
                stream.put(event)
                if stream.unread_bytes > UNREAD_BYTES:
                    self._full.add(stream)

    def _write_soon(self) -> None:
        """Write at the end of this turn of the event loop, together with what others send."""
        if not self._write_is_due and self._has_room.is_set():
            self._write_is_due = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_is_due = False
        while data := self.connection.data_to_send():
            sent = 0
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                # The daemon has closed the connection; its last lines may still be read.
                self.connection.unsent(len(data))
                self._has_room.clear()
                self._loop.remove_writer(self._socket)
                return
            self.connection.unsent(len(data) - sent)
            if sent < len(data):
                self._has_room.clear()
                self._loop.add_writer(self._socket, self._write)
                return
        if not self._has_room.is_set():
            self._loop.remove_writer(self._socket)
            self._has_room.set()
