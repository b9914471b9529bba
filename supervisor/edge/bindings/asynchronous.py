"""The client of the control socket on asyncio: many requests at a time over one connection.

Back pressure goes both ways, by connection. While streams hold more than UNREAD_BYTES that their
readers have not done with, nothing is read from the socket: a stream whose reader may be slow needs
a connection of its own. While the socket takes nothing, `request` waits.

The socket is written to directly and not through a transport, which keeps bytes of its own and
does not tell at the end which of them were written.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
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
"""Lines of all streams that their readers have not done with, before the socket is not read."""

READS = 4
"""In one turn: the kernel holds no more than so many times READ_BYTES of a Unix socket's stream."""


class RequestStream:
    """A request. Iterating yields its events and questions, and at last its answer.

    Leaving the block cancels the request if it is open.
    """

    def __init__(self, client: AsyncClient, request_id: str) -> None:
        self.request_id = request_id
        self.unread_bytes = 0
        """Of events that the reader has not taken, or has not done with: the last ones."""
        self._last_bytes = 0
        self._client = client
        self._events: deque[StreamEvent] = deque()
        self._news: asyncio.Future[None] | None = None
        """While the reader waits."""
        self._over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.leave(self, is_open=not self._over)
        self._over = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        """Raises `ConnectionEndedError` if the connection ended before the answer."""
        if self._over:
            raise StopAsyncIteration
        if self._last_bytes:
            self.unread_bytes -= self._last_bytes
            self._client.taken(self._last_bytes)
            self._last_bytes = 0
        while not self._events:
            if (end := self._client.connection.ended) is not None:
                raise ConnectionEndedError(end, was_written=self.request_id in end.written)
            self._news = self._client.loop.create_future()
            await self._news
        return self._take()

    async def some(self) -> list[StreamEvent]:
        """Wait for an event, and return it with those that came after it; raises as iteration."""
        events = [await anext(self)]
        while self._events:
            events.append(self._take())
        return events

    def _take(self) -> StreamEvent:
        event = self._events.popleft()
        self._last_bytes += len(event.line)
        self._over = isinstance(event, Answer)
        return event

    async def answer(self) -> Answer:
        """Wait for the answer, and pass over the events; raises as iteration does."""
        while not isinstance(event := await anext(self), Answer):
            pass
        return event

    def ask_to_cancel(self) -> None:
        """Cancel the request; its answer tells how it ended."""
        self._client.connection.ask_to_cancel(self.request_id)
        self._client.write_soon()

    def put(self, event: StreamEvent) -> None:
        self._events.append(event)
        self.unread_bytes += len(event.line)
        self.wake()

    def wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class AsyncClient:
    """A connection to the daemon; needs a running event loop. `connection` is its sans-IO part."""

    def __init__(self, sock: socket.socket, line_bytes: int = LINE_BYTES) -> None:
        """Take a connected socket that does not block."""
        self.connection = SocketClient(line_bytes)
        self.ended = asyncio.Event()
        """Set at the end, which is noticed once what came before it has been taken."""
        self.refusal: LineRefusal | None = None
        """The daemon's refusal of this connection, or of a line that the daemon could not read."""
        self.receiver: Callable[[ClientEvent], None] | None = None
        """Takes the events of requests that are made on `connection` itself, and the end."""
        self.count: Callable[[int], None] | None = None
        """Takes by how much what is held here has changed, in bytes."""
        self._counted_bytes = 0
        self._socket = sock
        self.loop = asyncio.get_running_loop()
        self._streams: dict[str, RequestStream] = {}
        self._full: set[object] = set()
        self._unread_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._write_is_due = False
        self._left = memoryview(b"")
        """The rest of the last bytes, which the socket has not taken; a view: a long line is
        not copied for each piece."""
        self._taken_bytes = 0
        """How long those bytes are, which are held until all are written."""
        self.loop.add_reader(sock, self._read)

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
        self._take_back()
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
        self.write_soon()
        return stream

    async def answer(self, question: ClientQuestion, outcome: Outcome) -> None:
        """Answer a question once the socket has room."""
        await self._has_room.wait()
        self.connection.answer(question, outcome)
        self.write_soon()

    def leave(self, stream: RequestStream, *, is_open: bool) -> None:
        """Forget a stream that nobody reads any more; a request that `is_open` is cancelled."""
        self._streams.pop(stream.request_id, None)
        if is_open:
            self._take_back()
            self.connection.cancel(stream.request_id)
            self.write_soon()
        self.taken(stream.unread_bytes)
        stream.unread_bytes = 0

    def taken(self, size: int) -> None:
        """Count bytes of a stream that its reader has done with."""
        self._unread_bytes -= size
        self._count()
        if self._unread_bytes <= UNREAD_BYTES:
            self.release(self)

    def hold(self, reader: object) -> None:
        """Read nothing more from the socket until this slow reader is released."""
        self._full.add(reader)

    def release(self, reader: object) -> None:
        """Read from the socket again if this reader was what kept it from that; idempotent."""
        if reader in self._full:
            self._full.remove(reader)
            if not self._full and self.connection.ended is None:
                self.loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        # All that is there: when the daemon closes with lines of ours unread, the kernel tells an
        # error, after which libuv (uvloop) reports nothing more of the socket, nor its end.
        for _ in range(READS):
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            self._take_back()
            took = self.connection.receive_data(data) if data else self.connection.receive_eof()
            for event in took:
                self._take(event)
            if self._full or self.connection.ended is not None:
                break
        if self._full and self.connection.ended is None:
            self.loop.remove_reader(self._socket)
        self._count()

    def _take(self, event: ClientEvent) -> None:
        if type(event) is ConnectionEnd:  # `isinstance` of a msgspec type is slow to say no
            self.loop.remove_reader(self._socket)
            self.loop.remove_writer(self._socket)
            self._socket.close()
            self._has_room.set()
            self.ended.set()
            if self.count is not None:
                self.count(-self._counted_bytes)
                self.count = None
            for stream in self._streams.values():
                stream.wake()
            if self.receiver is not None:
                self.receiver(event)
        elif type(event) is LineRefusal:
            self.refusal = event
        elif event.request_id in self._streams:
            self._streams[event.request_id].put(event)
            self._unread_bytes += len(event.line)
            if self._unread_bytes > UNREAD_BYTES:
                self.hold(self)
        elif self.receiver is not None:
            self.receiver(event)

    def _count(self) -> None:
        if self.count is not None:
            held = self._unread_bytes + self.connection.held_bytes + self._taken_bytes
            more, self._counted_bytes = held - self._counted_bytes, held
            self.count(more)

    def write_soon(self) -> None:
        """Write at the end of this turn of the event loop, together with what others send."""
        if not self._has_room.is_set():
            self._count()
        elif not self._write_is_due:
            self._write_is_due = True
            self.loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_is_due = False
        while True:
            if not self._left:  # an empty view, too, would hold what it is of
                taken = self.connection.data_to_send()
                self._left, self._taken_bytes = memoryview(taken), len(taken)
            if not self._left:
                break
            try:
                self._left = self._left[self._socket.send(self._left) :]
            except BlockingIOError:
                self._has_room.clear()
                self.loop.add_writer(self._socket, self._write)
                self._count()
                return
            except OSError:
                # The daemon has closed the connection; its last lines may still be read.
                self._has_room.clear()
                self.loop.remove_writer(self._socket)
                return
        if not self._has_room.is_set():
            self.loop.remove_writer(self._socket)
            self._has_room.set()
            self._count()

    def _take_back(self) -> None:
        """Let the connection know what was written of what it gave."""
        self.connection.unsent(len(self._left))
        self._left, self._taken_bytes = memoryview(b""), 0
