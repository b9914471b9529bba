"""The gateway as an ASGI application: from a request to an op of the daemon, and back.

It routes by itself: a name in a path is one segment that is percent-decoded alone, and an unknown
path, method or field is refused in words that say what there is.

    head -> Host, Origin -> login -> route -> Content-Type -> args -> its endpoint, or its op
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected

from protocol.amcp import Vocabulary
from protocol.amcp_errors import ErrorCode
from protocol.frames import encode
from protocol.problem import did_you_mean, named
from protocol.trace_context import is_traceparent
from supervisor.edge.http import page
from supervisor.edge.http.answers import ask, refusal_of
from supervisor.edge.http.auth import Door, cors, is_preflight, is_visit, unauthorized
from supervisor.edge.http.daemon import (
    DAEMON,
    Daemon,
    DaemonAwayError,
    OpFailedError,
)
from supervisor.edge.http.exchange import ClientGoneError, Exchange
from supervisor.edge.http.messages import (
    HEAD_BYTES,
    JSON,
    NDJSON,
    OPENMETRICS,
    RETRY,
    SSE,
    Receive,
    Refusal,
    Scope,
    Send,
    WholeResponse,
    read_json,
    too_large,
)
from supervisor.edge.http.room import ROOM_BYTES
from supervisor.edge.http.routes import ROUTES, Route
from supervisor.edge.http.sse import send_stream
from supervisor.policy.http_exposure import Exposure

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_INTEGER = re.compile(r"-?\d{1,18}")
_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')
_ANY_TAG = re.compile(r'(?:W/)?"[^"]*"')
_SHOWN_CHARS = 80

log = logging.getLogger("stdiod.gateway")


class Application:
    """An ASGI application that is a client of the control socket, from `lifespan` on.

    `scope["state"]["peer"]` is the `Peer` of a client's connection.
    """

    def __init__(self, control: Path, exposure: Exposure) -> None:
        """`exposure` is the TCP address with the port that is listened on, if there is one."""
        self.daemon = Daemon(control)
        self._unix, self._tcp = Door(), Door.of(exposure)
        self._root = _tree(ROUTES)
        self._places = {route.path: _parameters(route.path) for route in ROUTES}
        """The parameters of each path, with the index of their segments."""
        self._inputs: Mapping[str, Any] = {}
        self._bodies: dict[Route, Mapping[str, Any]] = {}
        """The schemas of bodies, of the last `inputs`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        peer = scope["state"]["peer"]
        door = self._tcp if peer.of_socket is None else self._unix
        exchange = Exchange(scope, receive, send, peer=peer, door=door, daemon=self.daemon)
        peer.exchange = exchange
        try:
            try:
                await self._serve(exchange)
            except Refusal as error:
                await exchange.respond(*error.reply())
            except OpFailedError as error:
                is_wrong = error.is_wrong_login
                await exchange.respond(
                    *(unauthorized().reply() if is_wrong else refusal_of(error.failure))
                )
            except DaemonAwayError as error:
                await exchange.respond(*_away(error))
            except asyncio.CancelledError:
                if exchange.is_lost:
                    await exchange.respond(*_NO_ROOM.reply())
                # else the server ends, and has hung up
        except (ClientGoneError, ClientDisconnected):
            pass
        except Exception:  # a mistake of ours costs one request
            if exchange.is_begun:
                raise  # the server cuts the connection off
            log.exception("a request failed")
            refusal = Refusal(ErrorCode.INTERNAL_ERROR, "the gateway failed; its log has more")
            await exchange.respond(*refusal.reply())
        finally:
            peer.exchange = None
            peer.answered()

    async def _live(self, receive: Receive, send: Send) -> None:
        running = asyncio.create_task(self._hold_connection())
        page.load_files()
        await receive()
        await self.daemon.has_tried.wait()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        running.cancel()
        await asyncio.wait([running])
        await send({"type": "lifespan.shutdown.complete"})

    async def _hold_connection(self) -> None:
        try:
            await self.daemon.run()
        except Exception:  # whatever it is, nobody would be served from now on
            log.exception("the connection to the daemon failed; the gateway ends")
            sys.exit(1)  # the daemon starts another

    async def _serve(self, exchange: Exchange) -> None:
        """Answer a request; raises `Refusal`, `OpFailedError`, `DaemonAwayError`, ..."""
        exchange.read_head()
        door = exchange.door
        if door.origins:
            exchange.more_headers = cors(exchange, door.origins)
        door.check_host(exchange)
        there = self._find(exchange.segments)
        route = there.get("GET" if exchange.method == "HEAD" else exchange.method)
        is_open = route is not None and route.is_open
        if not (is_open and is_visit(exchange)):
            door.check_origin(exchange)
        # The answer to an allowed page's preflight is no secret, nor is our own page.
        if not (is_open or (exchange.more_headers and is_preflight(exchange))):
            exchange.login = await door.log_in(exchange)
        if exchange.path == "*" or (there and exchange.method == "OPTIONS"):
            await exchange.respond(204, [("Allow", _methods(there))] if there else [], b"")
            return
        if route is None:
            raise _no_route(exchange, there)
        exchange.route = route
        args = self._args(exchange, route, await self._body(exchange, route))
        if route.endpoint is not None:
            await route.endpoint(exchange, args)
        else:
            await self._ask(exchange, route, args)

    def _find(self, segments: tuple[str, ...]) -> Mapping[str, Route]:
        """Return the routes of a path by their methods."""
        place: _Places | None = self._root
        for segment in segments:
            if place is None:
                return {}
            place = place.get(segment) or (place.get(_ANY) if segment else None)
        found: Mapping[str, Route] = {} if place is None else place.get(_ROUTES, {})
        return found

    async def _body(self, exchange: Exchange, route: Route) -> bytes:
        if route.method not in ("GET", "DELETE"):
            said = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
            if said not in {"application/json", route.media}:
                words = f"the body of {route.method} is JSON: send Content-Type: {route.media}"
                raise Refusal(ErrorCode.BAD_REQUEST, words, status=415)
        if not route.is_open:
            return await exchange.read_body()
        if "transfer-encoding" in exchange.headers:
            raise too_large(HEAD_BYTES)
        return await exchange.read_body(HEAD_BYTES)

    # Args.

    def _args(self, exchange: Exchange, route: Route, body: bytes) -> dict[str, Any]:
        args: dict[str, Any] = {
            name: exchange.segments[index] for name, index in self._places[route.path]
        }
        inputs = self.daemon.inputs
        for name, value in exchange.query.items():
            if name not in route.query:
                hint = did_you_mean(name, route.query)
                known = hint or (f"; there are {', '.join(route.query)}" if route.query else "")
                words = f"{named(name, _SHOWN_CHARS)} is not a field of the query{known}"
                raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name[:_SHOWN_CHARS])
            args[name] = _typed(name, value, route.schema(name, inputs))
        seen = exchange.headers.get("last-event-id")
        if seen is not None and "since" in route.query:
            args["since"] = _typed("Last-Event-ID", seen, route.schema("since", inputs))
        if route.body_is is not None:
            args[route.body_is] = read_json(body)
            if "if-match" in exchange.headers:
                args |= _revision(exchange.headers["if-match"])
        elif route.is_raw:
            exchange.body = body
        else:
            args |= self._members(route, read_json(body) if body else {}, args)
            if route.read is not None:
                args = route.read(args)
        for name in route.own:
            if name in args:
                _check(name, args[name], route.own[name])
        return args

    def _members(
        self, route: Route, members: dict[str, Any], args: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self.daemon.inputs is not self._inputs:
            self._inputs = self.daemon.inputs
            self._bodies.clear()
        known = self._bodies.get(route)
        if known is None:
            known = self._bodies[route] = route.body(self._inputs)["properties"]
        for name in members:
            if name not in known or name in args:
                free = [one for one in known if one not in args]
                hint = did_you_mean(name, free)
                said = hint or (f"; there are {', '.join(free)}" if free else "; it takes none")
                words = f"{named(name, _SHOWN_CHARS)} is not a field of the body{said}"
                raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name[:_SHOWN_CHARS])
        return members

    # The op.

    async def _ask(self, exchange: Exchange, route: Route, args: dict[str, Any]) -> None:
        """Ask the daemon; `args` is emptied with that, since it may be long."""
        own = {name: args.pop(name) for name in route.own if name in args}
        media = (exchange.wants_stream if exchange.method != "HEAD" else None) or route.streams_as
        if "stream" in own:
            media = (media or NDJSON) if own["stream"] else None
        if media is None or route.streamed is None:
            for name, value in route.fixed.items():
                args.setdefault(name, value)
            done = await ask(exchange, *_asked(exchange, route, args))
            await _reply(exchange, route.tell(done))
        else:
            said = Vocabulary.DOCUMENTED if media == SSE else own.get("vocabulary")
            form = route.form(args.get("session_id"), said)
            args |= route.streamed
            asked = _asked(exchange, route, args)
            await send_stream(exchange, *asked, media=media, form=form)


def _asked(
    exchange: Exchange, route: Route, args: dict[str, Any]
) -> tuple[str, str, dict[str, Any]]:
    """Return tool, operation and input of the request for the daemon."""
    if route.op == "metrics":
        wants = "openmetrics" if OPENMETRICS in exchange.accepted() else "prometheus"
        args["format"] = wants
    if not route.of_module:
        return DAEMON, route.op, args
    module = args.pop("module")
    trace = exchange.headers.get("traceparent")
    if route.op == "invoke" and trace is not None and is_traceparent(trace):
        args["traceparent"] = trace
    return module, route.op, args


async def _reply(exchange: Exchange, reply: WholeResponse) -> None:
    if ("ETag", exchange.headers.get("if-none-match")) in reply.headers:
        reply = WholeResponse(304, [one for one in reply.headers if one != JSON], b"")
    await exchange.respond(*reply)


_Places = dict[str | None, Any]
"""A node of the tree of paths: what is below it by segment, of which `_ANY` stands for any other,
and with the key `_ROUTES` its routes by method."""

_ANY, _ROUTES = "{}", None


def _tree(routes: Iterable[Route]) -> _Places:
    root: _Places = {}
    for route in routes:
        place = root
        for part in route.path.split("/")[1:]:
            place = place.setdefault(_ANY if part.startswith("{") else part, {})
        place.setdefault(_ROUTES, {})[route.method] = route
    return root


def _parameters(path: str) -> list[tuple[str, int]]:
    parts = path.split("/")[1:]
    return [(part[1:-1], index) for index, part in enumerate(parts) if part.startswith("{")]


def _no_route(exchange: Exchange, there: Mapping[str, Route]) -> Refusal:
    if there:
        allowed = _methods(there)
        words = f"this path has no method {exchange.method:.20}; it has {allowed}"
        headers = [("Allow", allowed)]
        return Refusal(ErrorCode.BAD_REQUEST, words, status=405, headers=headers)
    words = "there is nothing under this path"
    if exchange.method == "POST" and exchange.segments[-3:-2] == ("modules",):
        words += "; an op is called by POST /api/v1/modules/MODULE/invoke"
    return Refusal(ErrorCode.NOT_FOUND, words)


def _methods(there: Mapping[str, Route]) -> str:
    return ", ".join([*(["HEAD"] if "GET" in there else []), *there, "OPTIONS"])


def _typed(name: str, value: str, schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "integer" if _INTEGER.fullmatch(value) and _is_enough(int(value), schema):
            return int(value)
        case "boolean" if value in _BOOLEANS:
            return _BOOLEANS[value]
        case "integer" | "boolean" as kind:
            words = f"{name} is {named(value, _SHOWN_CHARS)}, it must be "
            least = f" of {schema['minimum']} or more" if "minimum" in schema else ""
            words += f"an integer{least}" if kind == "integer" else "true or false"
            raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name)
        case _:
            return value


def _is_enough(value: int, schema: Mapping[str, Any]) -> bool:
    return "minimum" not in schema or value >= schema["minimum"]


_KINDS = {
    "string": ("a text", str),
    "boolean": ("true or false", bool),
    "object": ("an object", dict),
}


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Check an arg that the gateway itself takes; raises `Refusal`."""
    if "enum" in schema:
        words, good = f"one of {', '.join(schema['enum'])}", value in schema["enum"]
    elif schema["type"] in _KINDS:
        words, kind = _KINDS[schema["type"]]
        good = isinstance(value, kind)
    else:
        return  # the daemon checks it
    if not good:
        shown = named(value if isinstance(value, str) else encode(value).decode(), _SHOWN_CHARS)
        words = f"{name} is {shown}, it must be {words}"
        raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name)


def _revision(said: str) -> dict[str, int]:
    if said.strip() == "*":
        return {}
    found = _TAG.fullmatch(said.strip())
    if found is None:
        words = 'If-Match takes the ETag of the state, such as "3"'
        # A tag that the daemon never gave names another revision of the state.
        status = 412 if _ANY_TAG.fullmatch(said.strip()) else 400
        raise Refusal(ErrorCode.VALIDATION_ERROR, words, status=status, field="If-Match")
    return {"if_revision": int(found[1])}


_NO_ROOM = Refusal(
    ErrorCode.RATE_LIMITED,
    f"what waits here for all clients has {ROOM_BYTES} bytes, and that of this client is most of"
    " it; send the request again",
    status=503,
    headers=[RETRY],
)


def _away(error: DaemonAwayError) -> WholeResponse:
    """Tell that the daemon is away: 503 to try again, or 502 if it may have done something."""
    status, again = (502, []) if error.was_asked else (503, [RETRY])
    refusal = Refusal(ErrorCode.CONNECTION_FAILED, str(error), status=status, headers=again)
    return refusal.reply()
