"""The sessions of the older era over HTTP: told by a stream of their own, which may be resumed.

An id is known to nobody else, and is good for the principal and the view that began it. A principal
may have so many; one more ends the one that was used longest ago: many clients never end theirs.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from protocol.amcp_errors import ErrorCode
from protocol.dialects.mcp.rpc import RpcAnswer, RpcError
from protocol.mcp_server import lines
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.head import SSE, Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.session import Session, Whose
from supervisor.policy.verdict import Stopped

SESSIONS = 256
"""Of one principal; clients that come and go without a DELETE leave one each time."""

ALL_SESSIONS = 4096

EVENTS = 256
"""Kept for a client that comes back with Last-Event-ID."""


class HttpSession:
    """One session."""

    def __init__(self, whose: Whose, streams: Streams) -> None:
        self.id = secrets.token_urlsafe(24)
        self.whose = whose
        self.session = Session(whose, self._tell)
        self.asked: dict[str, Callable[[dict[str, Any] | RpcError], None]] = {}
        """What was asked of the client, by the id of the question."""
        self._streams = streams
        self._stream: SessionStream | None = None
        self._events: deque[tuple[int, bytes]] = deque(maxlen=EVENTS)
        self._number = 0

    def answered(self, answer: RpcAnswer) -> None:
        """Take an answer of the client's."""
        answered = self.asked.pop(str(answer.rpc_id), None)
        if answered is not None:
            answered(answer.outcome)

    def stream(self, connection: HttpConnection, seen: str | None) -> None:
        """Have a connection be told from now on, and of what came after the event last `seen`."""
        if self._stream is not None:
            self._stream.end()
        if self._streams.is_full:
            words = "as many streams are open as there may be"
            raise Refusal(ErrorCode.RATE_LIMITED, words, status=503)
        stream = self._stream = SessionStream(connection, self._streams, self._left)
        connection.serving(stream)
        stream.begin()
        if seen is not None:
            after = int(seen) if seen.isdecimal() and len(seen) < 19 else 0  # noqa: PLR2004 - 64 bit
            for number, data in self._events:
                if number > after:
                    stream.write(number, data)

    def close(self) -> None:
        """End it; idempotent."""
        self.session.close()
        if self._stream is not None:
            self._stream.end()

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        self._number += 1
        data = lines.message({"method": method, "params": params})
        self._events.append((self._number, data))
        if self._stream is not None:
            self._stream.write(self._number, data)

    def _left(self, stream: SessionStream) -> None:
        if self._stream is stream:
            self._stream = None


class SessionStream:
    """A GET that is open; its own handle, for it is nothing that the kernel knows of."""

    ended = False

    def __init__(
        self,
        connection: HttpConnection,
        streams: Streams,
        left: Callable[[SessionStream], None],
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._left = left

    @property
    def handle(self) -> SessionStream:
        """What is cancelled when the client hangs up."""
        return self

    def begin(self) -> None:
        """Write the head."""
        self._streams.add(self)
        headers = [("Content-Type", SSE), ("X-Accel-Buffering", "no")]
        self._connection.begin_body(200, headers, b": \n\n")

    def write(self, number: int, data: bytes) -> None:
        """Write an event."""
        if not self._connection.outbox.congested:  # it can ask for the rest by its number
            self._connection.put_body(b"id: %d\nevent: message\ndata: %s\n\n" % (number, data))

    def beat(self) -> None:
        """Show that it lives."""
        self._connection.put_body(b": \n\n")

    def cancel(self, stopped: Stopped) -> None:
        """End it: the client hung up, or the daemon ends."""
        del stopped
        self.end()

    def resume(self) -> None:
        """Do nothing: what there was no room for was left out."""

    def end(self) -> None:
        """Write the end; idempotent."""
        if not self.ended:
            self.ended = True
            self._streams.discard(self)
            self._left(self)
            self._connection.end_body()


class HttpSessions:
    """The sessions of one daemon, the one used longest ago first."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._all: dict[str, HttpSession] = {}
        self._count: Counter[str] = Counter()

    def begin(self, whose: Whose) -> HttpSession:
        """Begin one."""
        name = whose.party.principal.name
        if self._count[name] >= SESSIONS:
            mine = (one for one in self._all.values() if one.whose.party.principal.name == name)
            self.end(next(mine))
        elif len(self._all) >= ALL_SESSIONS:
            self.end(next(iter(self._all.values())))
        session = HttpSession(whose, self._streams)
        self._all[session.id] = session
        self._count[name] += 1
        return session

    def find(self, named: str, whose: Whose) -> HttpSession | None:
        """Return the session of that id, if it is of the same principal and view."""
        session = self._all.get(named)
        if session is None:
            return None
        same = session.whose.party.principal == whose.party.principal
        if not same or session.whose.view != whose.view:
            return None
        self._all[named] = self._all.pop(named)
        return session

    def end(self, session: HttpSession) -> None:
        """End one; idempotent."""
        if self._all.pop(session.id, None) is not None:
            self._count[session.whose.party.principal.name] -= 1
            session.close()
