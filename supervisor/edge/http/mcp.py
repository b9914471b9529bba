"""MCP over HTTP: `POST|GET|DELETE /mcp`, and `/mcp/VIEW`. What is said is `McpServer`'s to decide.

    newer era   each POST stands alone; hanging up cancels. One server for all POSTs of a caller
    older era   `initialize` makes a session, with a server of its own, whose id comes with all
                that follows; GET is the stream of its notifications, DELETE its end

An answer is one JSON document, unless a message comes before it: then it is the last event of a
stream. In the older era a client that hangs up has not cancelled its request (2025-11-25,
Streamable HTTP): it goes on, and its stream can be resumed.

    GET                      the stream of messages of no request, which is stream 0
    GET, Last-Event-ID: S-N  the events of stream S after event N, and the further ones

A bounded number of events is kept: of a stream that has lost some, the rest is sent; one that is
over and of which nothing is kept is refused. A session's id is a secret, valid for the principal
and the view that began it. Many clients never end a session: one ends when it is idle, and there is
a bound per principal and in all; one more ends the least recently used one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from protocol.amcp_errors import ErrorCode
from protocol.dialects.mcp.vocabulary import INITIALIZE, LEGACY, MODERN
from protocol.jsonrpc import (
    RpcCall,
    RpcError,
    RpcId,
    RpcMessage,
    RpcMistake,
    RpcNotification,
    answer_line,
    mistake,
    read_message,
)
from protocol.mcp_server.client import (
    SESSION,
    VERSION,
    McpRequestError,
    check_headers,
    client_of,
    is_array,
    is_modern,
    split_batch,
)
from protocol.mcp_server.request import TOLD
from protocol.weight import LONG_BYTES, collector_paused
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.mcp_servers import OK, Hosted, KeptSession, McpServers, McpStream
from supervisor.edge.http.messages import JSON, SSE, Headers, Refusal, WholeResponse
from supervisor.edge.http.sse import place_for_stream

_SERVERS = McpServers()


async def serve_mcp(exchange: Exchange, args: dict[str, Any]) -> None:
    """Answer a request; raises `Refusal`, `ClientGoneError` and as `Daemon.log_in`."""
    view = args.get("view")
    match exchange.method:
        case "POST":
            await _post(exchange, view)
        case "DELETE":
            (await _session(exchange, view)).close()
            await exchange.respond(204, [], b"")
        case "GET":
            session = await _session(exchange, view)
            stream, missed = session.missed(exchange.headers.get("last-event-id"))
            try:
                with place_for_stream(exchange):
                    await stream.go_on(exchange, missed)
            except BaseException:  # `Exchange.lose` cancels this task: a lost client has left, too
                session.client_left(stream)
                raise
        case _:
            words = "a stream without a body would not end"
            raise Refusal(ErrorCode.BAD_REQUEST, words, status=405)


async def _session(exchange: Exchange, view: str | None) -> KeptSession:
    """Return the session that a request names; raises `Refusal`."""
    try:
        return _SERVERS.find(exchange, view)
    except Refusal:
        if view is not None:  # if there is no such view, that is what is wrong
            await _SERVERS.of_caller(exchange, view)
        raise


async def _post(exchange: Exchange, view: str | None) -> None:
    body, exchange.body = exchange.body, b""
    headers = exchange.headers
    message: RpcMessage | None = None  # a batch
    if is_array(body) is None:
        with collector_paused() if len(body) > LONG_BYTES else contextlib.nullcontext():
            message = read_message(body)
    is_first = isinstance(message, RpcCall) and message.method == INITIALIZE
    is_first = is_first and SESSION not in headers
    reply = _of_no_server(headers, message, body, is_first=is_first)
    if reply is not None:
        await exchange.respond(*reply)
        return
    more: Headers = []
    hosted: Hosted
    if isinstance(message, RpcCall) and is_modern(message, headers):
        hosted = await _SERVERS.of_caller(exchange, view)
        stream = McpStream(hosted)
    else:
        begin = _SERVERS.begin if is_first else _session
        hosted = session = await begin(exchange, view)
        stream = session.post() if isinstance(message, RpcCall | None) else McpStream(session)
        more = [(SESSION, session.id)] if is_first else []
    is_told = is_batch = message is None
    if isinstance(message, RpcCall):
        is_told = message.method in TOLD and exchange.accepts(SSE)
    hosted.receive(body, stream, headers)
    del body, message  # they may be long, and so may the wait be
    exchange.passed_on()
    try:
        await stream.answer(exchange, more, is_told=is_told, is_batch=is_batch)
    except BaseException:  # `Exchange.lose` cancels this task: a lost client has left, too
        hosted.client_left(stream)
        raise


def _of_no_server(
    headers: Mapping[str, str], message: RpcMessage | None, body: bytes, *, is_first: bool
) -> WholeResponse | None:
    """Return the answer to what no server is needed for, or may be begun for."""
    said = headers.get(VERSION)
    is_known = said is None or said in LEGACY
    rpc_id, status = None, 400
    try:
        match message:
            case None if SESSION not in headers:
                split_batch(body, None)
            case RpcMistake():
                return _failed(400, message.rpc_id, mistake(message))
            case RpcNotification() if said == MODERN:
                check_headers(headers, message.method, message.params, MODERN)
                return WholeResponse(202, [], b"")
            case RpcCall() if not is_modern(message, headers) and (is_first or not is_known):
                rpc_id, status = message.rpc_id, OK if is_known else 400
                client_of(message, headers, None)
    except McpRequestError as refusal:
        return _failed(status, rpc_id, refusal.error)
    return None


def _failed(status: int, rpc_id: RpcId | None, error: RpcError) -> WholeResponse:
    return WholeResponse(status, [JSON], answer_line(rpc_id, error))
