"""From a request to an op of the daemon, by the table of routes, and back to a response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from protocol.amcp import Vocabulary
from protocol.amcp_errors import ErrorCode
from protocol.frames import encode
from protocol.problem import did_you_mean, named
from supervisor.faces.http.body import read_body
from supervisor.faces.http.connection import JSON, RETRY, HttpConnection
from supervisor.faces.http.content import Content, range_args
from supervisor.faces.http.event_stream import Stream, Wanted
from supervisor.faces.http.exchange import Answer
from supervisor.faces.http.head import NDJSON, SSE, Head, Refusal
from supervisor.faces.http.openapi import body_of, document
from supervisor.faces.http.page_files import PageFiles
from supervisor.faces.http.page_login import PageLogin
from supervisor.faces.http.route import Route
from supervisor.faces.http.routes import LOGIN, ROUTES
from supervisor.faces.http.streams import Streams
from supervisor.faces.http.websocket_upgrade import Upgrade, read_handshake
from supervisor.kernel.parties import DAEMON

if TYPE_CHECKING:
    from supervisor.faces.mcp.endpoint import McpEndpoint

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_INTEGER = re.compile(r"-?\d{1,18}")
_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')
_ANY_TAG = re.compile(r'(?:W/)?"[^"]*"')
_SHOWN_CHARS = 80


class Api:
    """All routes, and the streams that are open."""

    def __init__(
        self, streams: Streams, mcp: McpEndpoint, page: PageFiles, login: PageLogin
    ) -> None:
        self._streams = streams
        self._mcp = mcp
        self._page = page
        self._login = login
        self._root: _Place = _Place()
        self._members_of: dict[str, Mapping[str, Any]] = {}
        """The schemas of a route's body, by method and path."""
        for route in ROUTES:
            self._root.add(route)
            self._members_of[route.method + route.path] = body_of(route).get("properties", {})

    def is_open(self, head: Head) -> bool:
        """Whether the route needs no token: the page's files are no secret, a code is one."""
        if head.method not in ("GET", "HEAD"):
            return head.method == "POST" and head.path == LOGIN
        place = self._root.find(head.segments)
        route = None if place is None else place.routes.get("GET")
        return route is not None and (route.is_page or route.is_login)

    @cached_property
    def _document(self) -> bytes:
        """Return the OpenAPI document; made at the first request."""
        return encode(document(ROUTES))

    def check(self, head: Head) -> Route | None:
        """Return the route; None for OPTIONS, which the table itself answers.

        Refuses by the head alone: an unknown path, method, or type of body.
        """
        route = self._route(head)
        if route is None or route.method in ("GET", "DELETE"):
            return route
        said = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if said not in {"application/json", route.media}:
            words = f"the body of {route.method} is JSON: send Content-Type: {route.media}"
            raise Refusal(ErrorCode.BAD_REQUEST, words, status=415)
        return route

    def serve(
        self, connection: HttpConnection, head: Head, route: Route | None, body: bytes
    ) -> None:
        """Answer a request that was checked, now or later; raises `Refusal`."""
        if route is None:
            allow = [] if head.path == "*" else [("Allow", ", ".join(self._methods(head)))]
            connection.respond(204, allow, b"")
        elif route.is_mcp:
            view = head.segments[1] if route.parameters else None
            self._mcp.serve(connection, head, view, body)
        elif route.is_page:
            connection.respond(*self._page.answer(head))
        elif route.is_login:
            args = self._args(route, head, body)
            if route.method == "GET":
                self._login.log_in(connection, head, args.get("code", ""))
            elif route.path == LOGIN:
                self._login.take_token(connection, head, args.get("token", ""))
            else:
                self._login.log_out(connection, head)
        elif not route.op:
            connection.respond(200, [JSON], self._document)
        else:
            self._ask(connection, route, head, body)

    def _ask(self, connection: HttpConnection, route: Route, head: Head, body: bytes) -> None:
        args = self._args(route, head, body)
        own = {name: args.pop(name) for name in route.own if name in args}
        media = (head.wants_stream if head.method != "HEAD" else None) or route.streams_as
        if "stream" in own:
            media = (media or NDJSON) if own["stream"] else None
        exchange: Answer | Stream | Content | Upgrade
        if route.is_socket:
            handshake = read_handshake(head, own.get("vocabulary"))
            self._check_room()
            exchange = Upgrade(connection, handshake, self._streams)
            if "session_id" not in args:
                exchange.switch()
                return
            args = exchange.bind(args["session_id"])
        elif route.is_content:
            args |= range_args(head)
            exchange = Content(connection, head)
        elif media is not None and route.streamed is not None:
            self._check_room()
            args |= route.streamed
            said = Vocabulary.DOCUMENTED if media == SSE else own.get("vocabulary")
            vocabulary = Vocabulary(said or Vocabulary.DEPLOYED)
            form = route.form(Wanted(route.tell, args.get("session_id"), vocabulary))
            exchange = Stream(connection, media, form, route.tell, self._streams)
        else:
            args = {**route.fixed, **args}
            if route.is_metrics:
                args["format"] = str(head.wants_metrics)
            exchange = Answer(connection, route.tell, route.gather)
        connection.serving(exchange)
        tool, operation, content = DAEMON, route.op, args
        if route.of_module:
            tool = args.pop("module")
            if route.op == "invoke":
                content = {**args, **head.traceparent}
        elif route.op not in ("health", "describe"):
            operation, content = "invoke", {"op": route.op, "args": args}
        exchange.handle = connection.begin(connection.party, tool, operation, content, exchange)

    def _check_room(self) -> None:
        if self._streams.is_full:
            words = "as many streams are open as there may be"
            raise Refusal(ErrorCode.RATE_LIMITED, words, status=503, headers=[RETRY])

    def _args(self, route: Route, head: Head, body: bytes) -> dict[str, Any]:
        args: dict[str, Any] = dict(self._named(route, head))
        for name, value in head.query.items():
            if name not in route.query:
                hint = did_you_mean(name, route.query)
                known = hint or (f"; there are {', '.join(route.query)}" if route.query else "")
                words = f"{named(name, _SHOWN_CHARS)} is not a field of the query{known}"
                raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name[:_SHOWN_CHARS])
            args[name] = _typed(name, value, route.schema(name))
        seen = head.headers.get("last-event-id")
        if seen is not None and "since" in route.query:
            args["since"] = _typed("Last-Event-ID", seen, route.schema("since"))
        if route.body_is is not None:
            args[route.body_is] = read_body(body)
            if "if-match" in head.headers:
                args |= _revision(head.headers["if-match"])
        else:
            args |= self._members(route, read_body(body) if body else {}, args)
            if route.read is not None:
                args = route.read(args)
        for name in route.own:
            if name in args:
                _check(name, args[name], route.own[name])
        return args

    def _members(
        self, route: Route, members: Mapping[str, Any], args: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        known = self._members_of[route.method + route.path]
        for name in members:
            if name not in known or name in args:
                free = [one for one in known if one not in args]
                hint = did_you_mean(name, free)
                said = hint or (f"; there are {', '.join(free)}" if free else "; it takes none")
                words = f"{named(name, _SHOWN_CHARS)} is not a field of the body{said}"
                raise Refusal(ErrorCode.VALIDATION_ERROR, words, field=name[:_SHOWN_CHARS])
        return members

    def _named(self, route: Route, head: Head) -> dict[str, str]:
        parts = route.path.split("/")[1:]
        pairs = zip(parts, head.segments, strict=True)
        return {part[1:-1]: segment for part, segment in pairs if part.startswith("{")}

    def _route(self, head: Head) -> Route | None:
        if head.path == "*":
            return None
        place = self._root.find(head.segments)
        if place is None or not place.routes:
            words = "there is nothing under this path"
            if head.method == "POST" and head.segments[-3:-2] == ("modules",):
                words += "; an op is called by POST /api/v1/modules/MODULE/invoke"
            raise Refusal(ErrorCode.NOT_FOUND, words)
        if head.method == "OPTIONS":
            return None
        method = "GET" if head.method == "HEAD" else head.method
        route = place.routes.get(method)
        if route is None:
            allowed = ", ".join(_with_head(place.routes))
            words = f"this path has no method {head.method:.20}; it has {allowed}"
            headers = [("Allow", allowed)]
            raise Refusal(ErrorCode.BAD_REQUEST, words, status=405, headers=headers)
        return route

    def _methods(self, head: Head) -> list[str]:
        place = self._root.find(head.segments)
        return [] if place is None else _with_head(place.routes)


class _Place:
    """A node of the tree of paths."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.below: dict[str, _Place] = {}
        self.any_below: _Place | None = None

    def add(self, route: Route) -> None:
        place = self
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                place.any_below = place.any_below or _Place()
                place = place.any_below
            else:
                place = place.below.setdefault(part, _Place())
        place.routes[route.method] = route

    def find(self, segments: tuple[str, ...]) -> _Place | None:
        place: _Place | None = self
        for segment in segments:
            if place is None:
                return None
            named = place.below.get(segment)
            place = named or (place.any_below if segment else None)
        return place


def _with_head(routes: Mapping[str, Route]) -> list[str]:
    return [*(["HEAD"] if "GET" in routes else []), *routes, "OPTIONS"]


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


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Check args that the face itself takes; raises `Refusal`."""
    words = "true or false"
    if schema.get("type") == "string":
        words, good = "a text", isinstance(value, str)
    elif "enum" in schema:
        words = f"one of {', '.join(schema['enum'])}"
        good = value in schema["enum"]
    else:
        good = isinstance(value, bool)
    if not good:
        shown = named(value if isinstance(value, str) else encode(value).decode(), _SHOWN_CHARS)
        raise Refusal(
            ErrorCode.VALIDATION_ERROR, f"{name} is {shown}, it must be {words}", field=name
        )


def _revision(said: str) -> dict[str, int]:
    if said.strip() == "*":
        return {}
    found = _TAG.fullmatch(said.strip())
    if found is None:
        words = 'If-Match takes the ETag of the state, such as "3"'
        # What is a tag, but none of ours, is of another state.
        status = 412 if _ANY_TAG.fullmatch(said.strip()) else 400
        raise Refusal(ErrorCode.VALIDATION_ERROR, words, status=status, field="If-Match")
    return {"if_revision": int(found[1])}
