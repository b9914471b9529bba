"""MCP over HTTP: `POST|GET|DELETE /mcp`, and `/mcp/VIEW`.

    newer era   each POST stands alone; its headers have to fit its body; hanging up cancels
    older era   `initialize` makes a session, whose id comes with all that follows (`http_session`);
                GET is the stream of its notifications, DELETE its end

An answer is one JSON document, unless a notification comes before it: then it is the last event of
a stream. An event is never long: the long result of a call is set aside then, and linked to
(`faces.mcp.request`); other requests send nothing before the answer but questions to the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from protocol.amcp_errors import ErrorCode
from protocol.dialects.mcp.greeting import INITIALIZE, LEGACY, META, MODERN
from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcAnswer,
    RpcCall,
    RpcError,
    RpcMistake,
    RpcNotification,
    read_message,
)
from protocol.errors import Reason
from protocol.frames import DEPTH
from protocol.mcp_server import lines
from protocol.mcp_server.client import (
    HEADER_MISMATCH,
    LISTEN,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    legacy_client,
    says_modern,
    unsupported,
)
from protocol.mcp_server.headers import SESSION, VERSION, header_problem
from protocol.problem import described, quoted
from protocol.weight import LONG_BYTES, collector_paused, is_deeper
from supervisor.faces.http.connection import HUNG_UP, JSON, HttpConnection
from supervisor.faces.http.head import SSE, Head, Headers, Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.http_session import (
    SESSIONS,
    STREAM,
    HttpSession,
    HttpSessions,
    event,
)
from supervisor.faces.mcp.questions import ask_client
from supervisor.faces.mcp.server import McpServer
from supervisor.faces.mcp.session import CANCELLED, Serving, Whose, serve_modern
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party
from supervisor.policy.mcp_views import find_view
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import FREE_BYTES
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.turns import SERVING, Turn

STATUS = {
    lines.PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Of errors, in the newer era; in the older one an error is an answer like any other."""

TOLD = frozenset({"tools/call", LISTEN})
"""Requests whose progress and logs are sent. The answers of the others may be long, and so are
documents."""

log = structlog.get_logger()


class McpEndpoint:
    def __init__(self, daemon: Kernel, streams: Streams) -> None:
        self._daemon = daemon
        self._server = McpServer.of(daemon)
        self._streams = streams
        ledger, idle_s = daemon.facts.ledger, daemon.mcp.session_idle_s
        self._sessions = HttpSessions(streams, self._server.deadlines, ledger, idle_s)

    def serve(self, connection: HttpConnection, head: Head, view: str | None, body: bytes) -> None:
        """Answer a request, now or later; raises `Refusal`."""
        whose = self._whose(connection, view)
        match head.method:
            case "POST":
                self._post(connection, head, whose, body)
            case "DELETE":
                self._sessions.end(self._session(head, whose))
                connection.respond(204, [], b"")
            case "GET":
                session = self._session(head, whose)
                session.stream(connection, head.headers.get("last-event-id"))
            case _:
                words = "a stream without a body would not end"
                raise Refusal(ErrorCode.BAD_REQUEST, words, status=405)

    def _whose(self, connection: HttpConnection, named: str | None) -> Whose:
        principal = connection.party.principal
        view = find_view(self._daemon.mcp.views, named, principal)
        if isinstance(view, str):
            raise Refusal(ErrorCode.NOT_FOUND, view)
        party = Party(view.narrowed(principal))
        party.account = connection.account
        return Whose(self._server, party, view)

    def _post(
        self, connection: HttpConnection | McpBatch, head: Head, whose: Whose, body: bytes
    ) -> None:
        if lines.is_array(body):
            session = self._session(head, whose) if SESSION in head.headers else None
            client = None if session is None else session.session.client
            batch = lines.split_batch(body, client)
            if not head.accepts(SSE):
                words = f"the answers to a batch come as a stream; accept {SSE}"
                batch = RpcError(INVALID_REQUEST, words)
            if isinstance(batch, RpcError):
                connection.respond(400, [JSON], lines.answer(None, batch))
            elif isinstance(connection, HttpConnection):  # in a batch there is none
                post = partial(self._post, head=head, whose=whose)
                McpBatch(connection, batch, post, self._server.deadlines).begin()
            return
        if len(body) > LONG_BYTES:
            with collector_paused():
                message = read_message(body)
        else:
            message = read_message(body)
        match message:
            case RpcCall():
                self._call(connection, head, whose, message, body)
            case RpcNotification():
                self._notified(connection, head, whose, message)
            case RpcAnswer():
                self._session(head, whose).answered(message)
                connection.respond(202, [], b"")
            case RpcMistake():
                answer = lines.answer(message.rpc_id, lines.mistake(message))
                connection.respond(400, [JSON], answer)

    def _notified(
        self,
        connection: HttpConnection | McpBatch,
        head: Head,
        whose: Whose,
        notification: RpcNotification,
    ) -> None:
        method, params = notification.method, notification.params
        problem = None
        if head.headers.get(VERSION) == MODERN:
            problem = header_problem(head.headers, method, params, MODERN)
        elif method == CANCELLED:
            self._session(head, whose).cancel(params)
        else:
            self._session(head, whose).session.notified(method)
        if problem is None:
            connection.respond(202, [], b"")
        else:
            connection.respond(400, [JSON], lines.answer(None, problem))

    def _call(
        self,
        connection: HttpConnection | McpBatch,
        head: Head,
        whose: Whose,
        call: RpcCall,
        body: bytes,
    ) -> None:
        exchange = McpExchange(connection, head, self._streams, call)
        connection.serving(exchange)
        said = head.headers.get(VERSION)
        if is_deeper(call.params, DEPTH, body):
            words = f"the request is nested more than {DEPTH} levels deep"
            exchange.finish(RpcError(INVALID_REQUEST, words))
        elif said == MODERN or says_modern(call.method, call.params):
            self._modern(exchange, head, whose, call)
        elif said is not None and said not in LEGACY:
            exchange.finish(unsupported(said, f"the revision {quoted(said)} is not spoken here"))
        else:
            self._legacy(exchange, head, whose, call)

    def _modern(self, exchange: McpExchange, head: Head, whose: Whose, call: RpcCall) -> None:
        meta = call.params.get("_meta")
        version = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
        if isinstance(version, str):
            problem = header_problem(head.headers, call.method, call.params, version)
            if problem is not None:
                exchange.finish(problem)
                return
        asked = (call.rpc_id, call.method, call.params, exchange)
        exchange.begin(serve_modern(whose, *asked, headers=head.headers))

    def _legacy(self, exchange: McpExchange, head: Head, whose: Whose, call: RpcCall) -> None:
        exchange.statuses = {}
        if call.method == INITIALIZE and SESSION not in head.headers:
            client = legacy_client(call.params)
            if isinstance(client, RpcError):  # no session is begun for that
                exchange.finish(client)
                return
            session = self._sessions.begin(whose)
            exchange.headers = [(SESSION, session.id)]
        else:
            session = self._session(head, whose)
        if call.rpc_id in session.requests:
            words = f"a request {described(call.rpc_id)} is open already; wait for its answer"
            exchange.finish(RpcError(INVALID_REQUEST, words))
            return
        exchange.session = session
        asked = (call.rpc_id, call.method, call.params, exchange)
        session.open(call.rpc_id, exchange)
        exchange.begin(session.session.serve(*asked))

    def _session(self, head: Head, whose: Whose) -> HttpSession:
        said = head.headers.get(VERSION)
        if said is not None and said not in LEGACY:
            words = f"{VERSION}: the revision {quoted(said)} has no sessions here; those that have:"
            raise Refusal(ErrorCode.BAD_REQUEST, f"{words} {', '.join(LEGACY)}")
        named = head.headers.get(SESSION)
        if named is None:
            words = f"the header {SESSION} is missing: {INITIALIZE} answers with it; a request of"
            raise Refusal(ErrorCode.BAD_REQUEST, f"{words} the newer era has {VERSION}: {MODERN}")
        session = self._sessions.find(named, whose)
        if session is None:
            words = "there is no such session (any more): one ends when its client says so, when it"
            words += (
                f" is not used for {self._sessions.idle_s:g} s, or for one more than {SESSIONS}"
            )
            raise Refusal(ErrorCode.NOT_FOUND, f"{words}; begin anew with {INITIALIZE}")
        return session


class McpExchange:
    """A request over HTTP, and who is told of it (faces.mcp.call.Channel).

        begun? -> a stream, whose last event is the answer; else the answer is a document

    In the older era a client that hangs up may come back for the rest of a stream. It is its own
    handle for that.
    """

    def __init__(
        self, connection: HttpConnection | McpBatch, head: Head, streams: Streams, call: RpcCall
    ) -> None:
        self.headers: Headers = []
        self.statuses: Mapping[int, int] = STATUS
        self.session: HttpSession | None = None
        """The session of the older era, whose client can be asked something."""
        self.stream = 0
        self._connection: HttpConnection | McpBatch | None = connection
        """None while the client of a session is away."""
        self._account = connection.account
        self._streams = streams
        self._rpc_id = call.rpc_id
        self._may_stream = head.accepts(SSE)
        self._is_told = self._may_stream and call.method in TOLD
        self._serving: Serving | None = None
        self._is_over = False
        self._cancelled = False
        self._begun = False
        self._unread_bytes = 0

    def begin(self, serving: Serving | None) -> None:
        """None if the request has ended already."""
        if self._is_over:
            return
        self._serving = serving
        if self._is_told:  # it is shown not to be forgotten, however long it takes
            self._streams.add(self)

    @property
    def most_bytes(self) -> int | None:
        """How long the answer may be; None for any length."""
        return FREE_BYTES if self._begun else None

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Write an event, if the client takes a stream."""
        if not self._is_told:
            return
        data = lines.message({"method": method, "params": params})
        if len(data) <= FREE_BYTES:
            self._write(data)

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Write the answer: as the last event, or alone."""
        self._serving = None
        self._is_over = True
        self._streams.discard(self)
        if self.session is not None:
            self.session.requests.pop(self._rpc_id, None)
        if self._cancelled:
            self._end_without_answer()
            return
        body = lines.answer(self._rpc_id, outcome)
        if len(body) > self._account.free_bytes and not self._account.takes_answer(len(body)):
            words = f"an answer of {len(body)} bytes found no room to wait in"
            outcome = RpcError(INTERNAL_ERROR, words)
            body = lines.answer(self._rpc_id, outcome)
        if self._begun:
            self._write(body)
            if self._connection is not None:
                self._connection.end_body()
        elif self._connection is not None:
            code = outcome.code if isinstance(outcome, RpcError) else 0
            status = self.statuses.get(code, 200)
            self._connection.respond(status, [*self.headers, JSON], body)

    def congested(self) -> Congestion:
        outbox = None if self._connection is None else self._connection.outbox
        if outbox is None or not outbox.congested:
            self._unread_bytes = 0
            return Congestion.NONE
        unread = min(self._unread_bytes, outbox.waiting_bytes)
        return Congestion.FULL if unread > OVERRUN_BYTES else Congestion.SLOW

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Write a request to the client; the answer comes by another POST of its session."""
        if self.session is None or not self._may_stream:
            words = "the client takes no stream, and so cannot be asked"
            answered(RpcError(INVALID_REQUEST, words))
            return lambda: None
        return ask_client(self.session.asked, method, params, answered, self._write_question)

    def _write_question(self, line: bytes) -> None:
        if not self._is_over:  # else its stream is over, too
            self._write(line.rstrip())

    def beat(self) -> None:
        self._put(b": \n\n")

    # What becomes of its client (faces.http.connection.Open).

    @property
    def handle(self) -> McpExchange | None:
        """Cancelled when the client hangs up."""
        return None if self._is_over else self

    def cancel(self, stopped: Stopped) -> None:
        """Cancel the request, or let the session's client come back; idempotent."""
        if stopped is HUNG_UP and self.session is not None:
            self._connection = None
            self._streams.discard(self)
            self.resume()
        else:
            self.end(stopped)

    def end(self, stopped: Stopped) -> None:
        """Cancel it also in a session."""
        if self._serving is not None:
            self._serving.cancel(stopped)

    def cancel_for_client(self) -> None:
        """The client has cancelled the request, and gets no answer."""
        self._cancelled = True
        self.end(Stopped(Reason.CLIENT, "the client cancelled the request"))

    def resume(self) -> None:
        if self._serving is not None:
            self._serving.resume()

    def go_on(self, connection: HttpConnection, missed: bytes) -> None:
        """Continue the stream on another connection."""
        if self._connection is not None and not self._is_over:
            self._connection.end_body()  # it has hung up there, and that is not known yet
        connection.serving(self)
        connection.begin_body(200, STREAM, b": \n\n" + missed)
        if self._is_over:
            connection.end_body()
        else:
            self._connection = connection
            self._streams.add(self)

    # How it is written.

    def _end_without_answer(self) -> None:
        if self._connection is not None:
            self._begin_stream(self._connection)
            self._connection.end_body()

    def _write(self, data: bytes) -> None:
        named = None if self.session is None else self.session.keep(self, data)
        self._put(event(data, named))

    def _put(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            self._begun = True
            return
        self._begin_stream(connection)
        connection.put_body(data)
        if connection.outbox.congested:
            self._unread_bytes += len(data)

    def _begin_stream(self, connection: HttpConnection | McpBatch) -> None:
        if not self._begun:
            self._begun = True
            connection.begin_body(200, [*self.headers, *STREAM])


class McpBatch:
    """The messages of one POST, and the connection of each: its answers are events of one stream.

    Without an answer there is no stream but status 202. Its own handle.
    """

    def __init__(
        self,
        connection: HttpConnection,
        messages: list[bytes],
        post: Callable[..., None],
        deadlines: Deadlines,
    ) -> None:
        """`post` serves a message as the body of a request on the connection given."""
        self.outbox = connection.outbox
        self.account = connection.account
        self._connection = connection
        self._messages = deque(messages)
        self._post = post
        self._deadlines = deadlines
        self._unanswered = len(messages)
        self._exchanges: list[McpExchange] = []
        self._begun = False
        connection.serving(self)

    def _go_on(self) -> None:
        SERVING.begin(self._connection.party.label, "a batch")
        try:
            self.begin()
        except Exception:  # a fault of ours in one batch ends its connection, not the daemon
            log.exception("a batch could not be served")
            self._connection.abort()
        finally:
            SERVING.end()

    def begin(self) -> None:
        """Begin the messages, a turn at a time."""
        turn = Turn()
        turn.begin()
        while self._messages and not turn.over:
            message = self._messages.popleft()
            try:
                self._post(self, body=message)
            except Refusal as refusal:  # its session is over
                error = RpcError(INVALID_REQUEST, refusal.error.message)
                self.respond(refusal.status, [], lines.answer(None, error))
        if self._messages:
            self._deadlines.after(0, self._go_on)

    # The connection of each.

    def serving(self, exchange: McpExchange) -> None:
        self._exchanges.append(exchange)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Write an answer, if there is one."""
        del status  # that of the stream is 200
        if body:
            self.begin_body(200, headers)
            self.put_body(event(body))
        self.end_body()

    def begin_body(self, status: int, headers: Headers, body: bytes = b"") -> None:
        del headers
        if not self._begun:
            self._begun = True
            self._connection.begin_body(status, STREAM, body)

    def put_body(self, data: bytes) -> None:
        self._connection.put_body(data)

    def end_body(self) -> None:
        """Count an answered message; the last one ends the stream."""
        self._unanswered -= 1
        if self._unanswered:
            return
        if self._begun:
            self._connection.end_body()
        else:
            self._connection.respond(202, [], b"")

    # The client hangs up, or reads on.

    @property
    def handle(self) -> McpBatch:
        """The batch itself: a client that hangs up cancels it."""
        return self

    def cancel(self, stopped: Stopped) -> None:
        """Drop the messages that have not begun, and cancel the others; idempotent."""
        self._unanswered -= len(self._messages)
        self._messages.clear()
        for exchange in self._exchanges:
            exchange.cancel(stopped)

    def resume(self) -> None:
        for exchange in self._exchanges:
            exchange.resume()
