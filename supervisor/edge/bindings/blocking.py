"""The client of the control socket with a blocking caller: no event loop, few imports.

The socket does not block. What a request does not fit in it is written while its caller waits for
events, so a daemon that has us read before it reads is no deadlock.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from protocol.client import (
    Answer,
    ClientEvent,
    ConnectionEnd,
    ConnectionEndedError,
    EndCause,
    LineRefusal,
    RequestEvent,
    SocketClient,
)

if TYPE_CHECKING:
    from pathlib import Path

CONNECT_S = 5.0
"""How long a busy daemon may take to accept a client."""

WRITE_S = 30.0
"""How long the daemon may take none of what is to be written."""

LONGEST_S = 3600.0
"""For one wait: poll(2) counts milliseconds, in an int."""

SIGNAL_S = 1.0
"""For one wait of `pump`: a Ctrl-C that comes just before poll(2) is seen when that returns."""

READ_BYTES = 1 << 16

_TIMEVAL = struct.Struct("ll")
_CONNECT_TIME, _NO_BOUND = _TIMEVAL.pack(int(CONNECT_S), 0), _TIMEVAL.pack(0, 0)


OnEvent = Callable[[dict[str, Any], bytes], None]
"""Takes an event of a request, and its line."""


class RequestTimeoutError(Exception):
    """The caller's timeout has passed."""


def connect(path: Path) -> socket.socket:
    """Return a connected socket; raises `OSError`, after CONNECT_S `BlockingIOError`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not by `settimeout`: then connect(2) would not wait at all for a daemon that is busy.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _CONNECT_TIME)
        connection.connect(str(path))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _NO_BOUND)
    except BaseException:  # Ctrl-C, too: nobody else closes it
        connection.close()
        raise
    return connection


class BlockingClient:
    """One connection. `connection` takes requests, answers and cancels; `pump` does the I/O."""

    def __init__(self, sock: socket.socket, write_s: float = WRITE_S) -> None:
        """Take a connected socket; `write_s` is how long the daemon may read nothing."""
        sock.settimeout(0)
        self.connection = SocketClient()
        self._socket = sock
        self._events: deque[ClientEvent] = deque()
        self._write_s = write_s
        self._taken_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, which cancels what is open."""
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def detach(self) -> socket.socket:
        """Return the socket, which blocks; the client cannot be used afterwards."""
        self._socket.settimeout(None)
        return socket.socket(fileno=self._socket.detach())

    def failed(self, end: ConnectionEnd) -> Exception:
        """Return the exception for requests that the connection's end leaves without an answer."""
        return ConnectionEndedError(end, was_written=bool(end.written))

    def request(
        self,
        tool: str,
        operation: str,
        given: dict[str, Any],
        on_event: OnEvent | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request, wait for its end; raises `RequestTimeoutError`, and as `failed` says."""
        told = None if on_event is None else lambda _, event, line: on_event(event, line)
        _, answer = next(self.together([(tool, operation, given)], told, timeout_s))
        return answer

    def together(
        self,
        requests: Sequence[tuple[str, str, dict[str, Any]]],
        on_event: Callable[[int, dict[str, Any], bytes], None] | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """Send requests at once; yields each answer as it comes, with its number.

        Raises as `request`.
        """
        numbers = {self.send(*one): number for number, one in enumerate(requests)}
        events = self.events(timeout_s)
        while numbers:
            match next(events, None):
                case Answer(request_id) as answer if request_id in numbers:
                    yield numbers.pop(request_id), answer
                case LineRefusal(line):
                    # The daemon names no request: the first is as good as any.
                    request_id = next(iter(numbers))
                    yield numbers.pop(request_id), Answer(request_id, line, ok=False)
                case RequestEvent(request_id, line) as event if on_event and request_id in numbers:
                    on_event(numbers[request_id], event.document, line)
                case None:
                    assert self.connection.ended is not None  # noqa: S101 - the events are over
                    raise self.failed(self.connection.ended)

    def send(self, tool: str, operation: str, given: dict[str, Any]) -> str:
        """Send a request, as far as the daemon takes it at once; returns its id."""
        if self.connection.ended is not None:
            raise self.failed(self.connection.ended)
        request_id = self.connection.request(tool, operation, given)
        self.write()
        return request_id

    def events(self, timeout_s: float | None = None) -> Iterator[ClientEvent]:
        """Yield the events of all requests until the daemon closes the connection.

        Raises `RequestTimeoutError` after the timeout, and as `failed` says for another end.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            while self._events:
                event = self._events.popleft()
                if not isinstance(event, ConnectionEnd):
                    yield event
            if (end := self.connection.ended) is not None:
                if end.cause is EndCause.CLOSED:
                    return
                raise self.failed(end)
            left_s = None if ends_at is None else ends_at - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise RequestTimeoutError
            self._events += self.pump(left_s)

    def pump(self, timeout_s: float | None) -> list[ClientEvent]:
        """Write and read what is possible within a time, or `SIGNAL_S`; returns the events."""
        self.write()
        asked = select.POLLIN
        if self.connection.wants_to_send:
            asked |= select.POLLOUT
            left_s = max(self._taken_at + self._write_s - time.monotonic(), 0.0)
            timeout_s = left_s if timeout_s is None else min(left_s, timeout_s)
        poll = select.poll()
        poll.register(self._socket, asked)
        if not poll.poll((SIGNAL_S if timeout_s is None else min(timeout_s, SIGNAL_S)) * 1000):
            stalled_s = time.monotonic() - self._taken_at
            if self.connection.wants_to_send and stalled_s >= self._write_s:
                return self.connection.end(EndCause.UNREAD)
            return []
        return self.read()

    def read(self) -> list[ClientEvent]:
        """Return the events of what can be read without waiting."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        return self.connection.receive_data(data) if data else self.connection.receive_eof()

    def write(self) -> None:
        """Write as much as the daemon takes without waiting."""
        while data := self.connection.data_to_send():
            sent = 0
            with contextlib.suppress(OSError):  # full, or closed: its last lines may still be read
                sent = self._socket.send(data)
                self._taken_at = time.monotonic()
            self.connection.unsent(len(data) - sent)
            if sent < len(data):
                return
