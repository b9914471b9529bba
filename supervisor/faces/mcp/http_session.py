"""The sessions of the older era over HTTP, and their streams, which can be resumed.

    GET                     the stream of messages of no request
    POST                    that of its request, as soon as a message comes before the answer
    GET, Last-Event-ID: S-N  the events of stream S after event N, and the further ones

Stream 0 has the messages of no request. A bounded number of events is kept: of a stream that has
lost some, the rest is sent; a stream that is over and of which nothing is kept is refused.

A client that hangs up has not cancelled its request (2025-11-25, Streamable HTTP), so the request
goes on, and its stream can be resumed. Only `notifications/cancelled` cancels.

A session's id is a secret, valid for the principal and the view that began it. A session ends when
its client says so, or has not used it for a while. Many clients never say so: sessions have bounds,
per principal and in all; one more ends the least recently used one.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from protocol.amcp_errors import ErrorCode
from protocol.dialects.mcp.rpc import RpcAnswer, RpcError, RpcId
from protocol.errors import Reason
from protocol.mcp_server import lines
from supervisor.faces.http.connection import HttpConnection
from supervisor.faces.http.head import SSE, Headers, Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.session import McpSession, Whose
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ANSWERS, Account, HeldBytes
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

if TYPE_CHECKING:
    from supervisor.faces.mcp.endpoint import McpExchange

SESSIONS = 256
"""Per principal."""

ALL_SESSIONS = 4096

EVENTS = 256
EVENT_BYTES = 256 << 10
"""The bytes kept for a client that resumes with Last-Event-ID; the newest event is kept whole."""

STREAM: Headers = [("Content-Type", SSE), ("X-Accel-Buffering", "no")]

GIVEN_UP = Stopped(Reason.DISCONNECT, "the session that it was asked in has ended")


EVENT_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
"""The number of a stream, and of an event."""


def event(data: bytes, named: str | None = None) -> bytes:
    """Encode a message as an event of a stream; with an id a client can resume after it."""
    head = b"" if named is None else b"id: %s\n" % named.encode()
    return b"%sevent: message\ndata: %s\n\n" % (head, data)


class HttpSession:
    def __init__(self, whose: Whose, streams: Streams, account: Account) -> None:
        self.id = secrets.token_urlsafe(24)
        self.whose = whose
        self.session = McpSession(whose, self._tell)
        self.asked: dict[str, Callable[[dict[str, Any] | RpcError], None]] = {}
        """Questions to the client, by their ids."""
        self.requests: dict[RpcId, McpExchange] = {}
        """The client's open requests."""
        self.used_at = trio.current_time()
        self.timer: Timer | None = None
        """Ends the session when it is idle."""
        self._streams = streams
        self._account = account
        self._stream: SessionStream | None = None
        self._sent: deque[tuple[int, McpExchange | None, bytes]] = deque(maxlen=EVENTS)
        self._sent_bytes = 0
        self._number = 0
        self._last_stream = 0

    @property
    def is_in_use(self) -> bool:
        """Whether a request or a stream is open."""
        return bool(self.requests) or self._stream is not None

    def answered(self, answer: RpcAnswer) -> None:
        """Take an answer to a question."""
        answered = self.asked.pop(str(answer.rpc_id), None)
        if answered is not None:
            answered(answer.outcome)

    def cancel(self, params: Mapping[str, Any]) -> None:
        """Cancel the open request that the client names, if there is one."""
        rpc_id = params.get("requestId")
        found = self.requests.get(rpc_id) if isinstance(rpc_id, str | int) else None
        if found is not None:
            found.cancel_for_client()

    def stream(self, connection: HttpConnection, seen: str | None) -> None:
        """Continue on a connection after the event last `seen`; raises `Refusal`."""
        known = None if seen is None else EVENT_ID.fullmatch(seen)
        number, after = (0, None) if known is None else map(int, known.groups())
        request = self._request_of(number)
        if self._streams.is_full:
            words = "as many streams are open as there may be"
            raise Refusal(ErrorCode.RATE_LIMITED, words, status=503)
        missed = b"" if after is None else self._sent_after(after, number)
        if request is None:
            if self._stream is not None:
                self._stream.end()
            self._stream = SessionStream(connection, self._streams, self._left)
            self._stream.begin(missed)
        else:
            request.go_on(connection, missed)

    def open(self, rpc_id: RpcId, request: McpExchange) -> None:
        """Add a request; its stream has a number of its own."""
        self._last_stream += 1
        request.stream = self._last_stream
        self.requests[rpc_id] = request

    def keep(self, request: McpExchange | None, data: bytes) -> str:
        """Keep an event of a stream for a client that resumes; returns the event's id."""
        self._number += 1
        if len(self._sent) == EVENTS:
            self._sent_bytes -= len(self._sent[0][2])
        self._sent.append((self._number, request, data))
        self._sent_bytes += len(data)
        while len(self._sent) > 1 and self._sent_bytes > EVENT_BYTES:
            self._sent_bytes -= len(self._sent.popleft()[2])
        self._account.hold(ANSWERS, self._sent_bytes)
        return f"{0 if request is None else request.stream}-{self._number}"

    def close(self) -> None:
        """Idempotent."""
        if self.timer is not None:
            self.timer.cancel()
        self.session.close()
        for request in tuple(self.requests.values()):
            request.end(GIVEN_UP)
        if self._stream is not None:
            self._stream.end()
        self._sent.clear()
        self._account.close()

    def _request_of(self, stream: int) -> McpExchange | None:
        """Return the request of a stream, None for stream 0; raises `Refusal`."""
        if stream == 0:
            return None
        kept = (one for _, one, _ in self._sent if one is not None)
        for one in (*self.requests.values(), *kept):
            if one.stream == stream:
                return one
        words = "that stream is over, and what came on it is not kept any more; ask again"
        raise Refusal(ErrorCode.BAD_REQUEST, words)

    def _sent_after(self, after: int, stream: int) -> bytes:
        return b"".join(
            event(data, f"{stream}-{number}")
            for number, of, data in self._sent
            if number > after and (0 if of is None else of.stream) == stream
        )

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        data = lines.message({"method": method, "params": params})
        named = self.keep(None, data)
        if self._stream is not None:
            self._stream.write(event(data, named))

    def _left(self, stream: SessionStream) -> None:
        if self._stream is stream:
            self._stream = None


class SessionStream:
    """An open GET; it is its own handle, since the kernel has no request for it."""

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
        """Cancelled when the client hangs up."""
        return self

    def begin(self, missed: bytes) -> None:
        """Write the head, and the events that the client has missed."""
        self._connection.serving(self)
        self._streams.add(self)
        self._connection.begin_body(200, STREAM, b": \n\n" + missed)

    def write(self, data: bytes) -> None:
        if not self._connection.outbox.congested:  # it can ask for the rest by its number
            self._connection.put_body(data)

    def beat(self) -> None:
        self._connection.put_body(b": \n\n")

    def cancel(self, stopped: Stopped) -> None:
        del stopped
        self.end()

    def resume(self) -> None:
        """Do nothing: events that found no room were left out."""

    def end(self) -> None:
        """Write the end; idempotent."""
        if not self.ended:
            self.ended = True
            self._streams.discard(self)
            self._left(self)
            self._connection.end_body()


class HttpSessions:
    """The sessions of one daemon, the least recently used first."""

    def __init__(
        self, streams: Streams, deadlines: Deadlines, ledger: HeldBytes, idle_s: float
    ) -> None:
        """End a session that was not used for `idle_s`."""
        self.idle_s = idle_s
        self._streams = streams
        self._deadlines = deadlines
        self._ledger = ledger
        self._all: dict[str, HttpSession] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, whose: Whose) -> HttpSession:
        principal = whose.party.principal
        name = principal.name
        if self._count[name] >= SESSIONS:
            self._end_oldest_of(name)
        elif len(self._all) >= ALL_SESSIONS:
            # Not the oldest of all: a principal that begins many must not end those of others.
            self._end_oldest_of(self._count.most_common(1)[0][0])
        account = Account(self._ledger, f"session of {name}", principal.by)
        session = HttpSession(whose, self._streams, account)
        self._all[session.id] = session
        self._count[name] += 1
        session.timer = self._deadlines.after(self.idle_s, lambda: self._look(session))
        return session

    def find(self, named: str, whose: Whose) -> HttpSession | None:
        """Return the session of that id, if it is of the same principal and view."""
        session = self._all.get(named)
        if session is None:
            return None
        same = session.whose.party.principal == whose.party.principal
        if not same or session.whose.view != whose.view:
            return None
        session.used_at = trio.current_time()
        self._all[named] = self._all.pop(named)
        return session

    def end(self, session: HttpSession) -> None:
        """Idempotent."""
        if self._all.pop(session.id, None) is not None:
            name = session.whose.party.principal.name
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
            session.close()

    def _end_oldest_of(self, name: str) -> None:
        theirs = (one for one in self._all.values() if one.whose.party.principal.name == name)
        self.end(next(theirs))

    def _look(self, session: HttpSession) -> None:
        """End a session that is idle, or check again when it may be."""
        now = trio.current_time()
        if session.is_in_use:
            session.used_at = now
        left = session.used_at + self.idle_s - now
        if left <= 0:
            self.end(session)
        else:
            session.timer = self._deadlines.after(left, lambda: self._look(session))
