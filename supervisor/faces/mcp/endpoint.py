"""MCP over HTTP: `POST|GET|DELETE /mcp`, and `/mcp/VIEW`.

    newer era   each POST stands alone; its headers have to fit its body
    older era   `initialize` makes a session, whose id comes with all that follows; GET is the
                stream of what it is told of, DELETE its end

An answer is one JSON document, unless something is told before it: then it is the last event of a
stream. So what is long and comes alone is never an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    RpcId,
    RpcMistake,
    RpcNotification,
    read_message,
)
from protocol.frames import DEPTH
from protocol.mcp_server import lines
from protocol.mcp_server.client import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    says_modern,
    unsupported,
)
from protocol.mcp_server.headers import SESSION, VERSION, header_problem
from protocol.problem import quoted
from protocol.weight import LONG_BYTES, collector_paused, is_deeper
from supervisor.faces.http.connection import JSON, HttpConnection
from supervisor.faces.http.head import SSE, Head, Headers, Refusal
from supervisor.faces.http.streams import Streams
from supervisor.faces.mcp.http_session import HttpSession, HttpSessions
from supervisor.faces.mcp.questions import ask_client
from supervisor.faces.mcp.server import McpServer
from supervisor.faces.mcp.session import Serving, Whose, serve_modern
from supervisor.kernel.daemon import Daemon
from supervisor.kernel.parties import Party
from supervisor.policy.mcp_views import find_view
from supervisor.runtime.held_bytes import FREE_BYTES
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion

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


class McpEndpoint:
    """The path `/mcp` of one daemon."""

    def __init__(self, daemon: Daemon, streams: Streams) -> None:
        self._daemon = daemon
        self._server = McpServer.of(daemon)
        self._streams = streams
        self._sessions = HttpSessions(streams)

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
        view = find_view(self._daemon.views, named, principal)
        if isinstance(view, str):
            raise Refusal(ErrorCode.NOT_FOUND, view)
        party = Party(view.narrowed(principal))
        party.account = connection.account
        return Whose(self._server, party, view)

    def _post(self, connection: HttpConnection, head: Head, whose: Whose, body: bytes) -> None:
        if len(body) > LONG_BYTES:
            with collector_paused():
                message = read_message(body)
        else:
            message = read_message(body)
        match message:
            case RpcCall():
                self._call(connection, head, whose, message, body)
            case RpcNotification():
                if head.headers.get(VERSION) != MODERN:
                    self._session(head, whose).session.notified(message.method)
                connection.respond(202, [], b"")
            case RpcAnswer():
                self._session(head, whose).answered(message)
                connection.respond(202, [], b"")
            case RpcMistake():
                answer = lines.answer(message.rpc_id, lines.mistake(message))
                connection.respond(400, [JSON], answer)

    def _call(
        self, connection: HttpConnection, head: Head, whose: Whose, call: RpcCall, body: bytes
    ) -> None:
        exchange = McpExchange(connection, head, self._streams, call.rpc_id)
        connection.serving(exchange)
        said = head.headers.get(VERSION)
        if body.count(b"{") + body.count(b"[") > DEPTH and is_deeper(call.params, DEPTH):
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
        exchange.begin()
        exchange.handle = serve_modern(whose, *asked, headers=head.headers)

    def _legacy(self, exchange: McpExchange, head: Head, whose: Whose, call: RpcCall) -> None:
        exchange.statuses = {}
        if call.method == INITIALIZE and SESSION not in head.headers:
            session = self._sessions.begin(whose)
            exchange.headers = [(SESSION, session.id)]
        else:
            session = self._session(head, whose)
        exchange.session = session
        asked = (call.rpc_id, call.method, call.params, exchange)
        exchange.begin()
        exchange.handle = session.session.serve(*asked)

    def _session(self, head: Head, whose: Whose) -> HttpSession:
        named = head.headers.get(SESSION)
        if named is None:
            words = f"the header {SESSION} is missing: {INITIALIZE} answers with it; a request of"
            raise Refusal(ErrorCode.BAD_REQUEST, f"{words} the newer era has {VERSION}: {MODERN}")
        session = self._sessions.find(named, whose)
        if session is None:
            words = f"there is no such session (any more): begin anew with {INITIALIZE}"
            raise Refusal(ErrorCode.NOT_FOUND, words)
        return session


class McpExchange:
    """A request over HTTP, and who is told of it (faces.mcp.call.Audience)."""

    def __init__(
        self, connection: HttpConnection, head: Head, streams: Streams, rpc_id: RpcId
    ) -> None:
        self.handle: Serving | None = None
        self.headers: Headers = []
        self.statuses: Mapping[int, int] = STATUS
        self.session: HttpSession | None = None
        """Of the older era, whose client can be asked something."""
        self._connection = connection
        self._streams = streams
        self._rpc_id = rpc_id
        self._may_stream = head.accepts(SSE)
        self._begun = False
        self._unread_bytes = 0

    def begin(self) -> None:
        """Have the client shown that it is not forgotten, however long it takes."""
        if self._may_stream:
            self._streams.add(self)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Write an event, unless the client takes none."""
        if self._may_stream:
            self._write(lines.message({"method": method, "params": params}))

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Write the answer: as the last event, or alone."""
        self.handle = None
        self._streams.discard(self)
        body = lines.answer(self._rpc_id, outcome)
        outbox = self._connection.outbox
        if len(body) > FREE_BYTES and not outbox.account.takes_answer(len(body)):
            words = f"an answer of {len(body)} bytes found no room to wait in"
            outcome = RpcError(INTERNAL_ERROR, words)
            body = lines.answer(self._rpc_id, outcome)
        if self._begun:
            self._write(body)
            self._connection.end_body()
        else:
            code = outcome.code if isinstance(outcome, RpcError) else 0
            status = self.statuses.get(code, 200)
            self._connection.respond(status, [*self.headers, JSON], body)

    def congested(self) -> Congestion:
        """Whether the client does not keep up."""
        outbox = self._connection.outbox
        if not outbox.congested:
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
        if self.handle is not None:  # else it is over, and its stream with it
            self._write(line.rstrip())

    def beat(self) -> None:
        """Show that the stream lives."""
        self._put(b": \n\n")

    def _write(self, data: bytes) -> None:
        self._put(b"event: message\ndata: %s\n\n" % data)

    def _put(self, data: bytes) -> None:
        connection = self._connection
        if not self._begun:
            self._begun = True
            stream = [("Content-Type", SSE), ("X-Accel-Buffering", "no")]
            connection.begin_body(200, [*self.headers, *stream])
        connection.put_body(data)
        if connection.outbox.congested:
            self._unread_bytes += len(data)
