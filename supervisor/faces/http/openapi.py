"""The OpenAPI 3.1 document of the routes, made of their table and the schemas of the ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from protocol.amcp_errors import ErrorCode
from protocol.version import VERSION
from supervisor.faces.http.event_stream import Lines
from supervisor.faces.http.head import NDJSON, OPENMETRICS, SSE
from supervisor.faces.http.openapi_schemas import HERE, components
from supervisor.kernel.operations import INPUTS

if TYPE_CHECKING:
    from supervisor.faces.http.route import Route

_ERROR = {
    "description": "An error of the route itself.",
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string", "description": "what is wrong, for people"},
        "code": {"enum": [str(one) for one in ErrorCode]},
        "details": {"type": "object"},
    },
}
_RPC_ERROR = {
    "description": "An error of the route itself.",
    "type": "object",
    "required": ["jsonrpc", "error"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
        },
    },
}
_OBJECT = {"type": "object"}
_BY_STATUS = {
    "InvokeResponse": (("InvokeSuccess", "ModuleSuccess"), ("InvokeFailure", "ModuleFailure")),
}
"""Answers that the status distinguishes; the shorter ones are those of the daemon's own ops."""
_REFUSALS = {
    "400": "The request is not valid",
    "401": "There is no token, or not a valid one",
    "403": "The caller may not do that",
    "404": "Nothing has that name",
}
_FAILED = {"default": "It failed"}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stdiod",
            "version": VERSION,
            "description": "Every GET may be a HEAD, and every path has OPTIONS.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components(), "RouteError": _ERROR, "RpcError": _RPC_ERROR},
            "responses": {
                name: {"description": words, "content": _json("RouteError")}
                for name, words in (_REFUSALS | _FAILED).items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{"bearer": []}, {"basic": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _name(route),
        "parameters": [*_parameters(route)],
        "responses": _responses(route),
    }
    if route.is_page or route.path == "/login":
        operation["security"] = []
    if route.method in ("POST", "PATCH"):
        operation["requestBody"] = {
            "required": True,  # its type is, at least: pages of others cannot say that
            "content": {route.media: {"schema": body_of(route)}},
        }
    return operation


def _name(route: Route) -> str:
    words = [one.strip("{}") for one in route.path.split("/")[1:]]
    return "-".join([route.method.lower(), *words]).replace(".", "-")


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in route.parameters:
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name in route.query:
        yield {"name": name, "in": "query", "schema": route.schema(name)}
    if "since" in route.query:
        schema = {"type": "integer", "minimum": 0}
        yield {"name": "Last-Event-ID", "in": "header", "schema": schema}
    if route.body_is is not None:
        schema = {"type": "string", "pattern": r'^(W/)?"[^"]*"$'}
        yield {"name": "If-Match", "in": "header", "schema": schema}


def body_of(route: Route) -> Mapping[str, Any]:
    if route.body_is is not None:
        return route.schema(route.body_is)
    if route.is_mcp:
        return _OBJECT
    if not route.takes_body:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = INPUTS.get(route.op, {"properties": {}, "required": []})
    apart = {*route.parameters, *route.fixed, *route.query}
    properties = {**schema["properties"], **route.renamed, **route.own}
    return {
        "type": "object",
        "properties": {name: one for name, one in properties.items() if name not in apart},
        "required": [name for name in schema["required"] if name not in apart],
        "additionalProperties": False,
    }


def _responses(route: Route) -> dict[str, Any]:
    names = _failures(route)
    failed = _json(*names)
    if route.is_login:
        failed["text/html"] = {"schema": {"type": "string"}}
    refused: dict[str, Any] = {
        status: {"$ref": f"#/components/responses/{status}"}
        # By a 401 nobody has looked at what it asks.
        if failed == _json("RouteError") or (status == "401" and route.of_module)
        else {"description": words, "content": failed}
        for status, words in (_REFUSALS | _FAILED).items()
    }
    if route.is_socket:
        refused["426"] = {"description": "It is not a WebSocket handshake", "content": failed}
        return {"101": {"description": "It goes on with WebSocket"}, **refused}
    found = {str(route.status): {"description": _done(route), "content": _content(route)}}
    if route.is_content:
        found["206"] = {"description": "A part of it", "content": _content(route)}
    return {**found, **refused}


def _done(route: Route) -> str:
    if not route.item:
        return "It is done"
    last = f", the last one the {route.answer}" if route.form is Lines else ""
    return f"It is done; the items of a stream are of the schema {route.item}{last}"


def _content(route: Route) -> dict[str, Any]:
    """Return the content of a success, by its type."""
    if route.is_content or route.is_page or route.is_login:
        return {"*/*": {"schema": {}}}
    if route.is_metrics:
        return {name: {"schema": {"type": "string"}} for name in ("text/plain", OPENMETRICS)}
    successes, _ = _BY_STATUS.get(route.answer, ((route.answer,), ()))
    content = _json(*successes) if route.answer or route.streams_as is None else {}
    if route.streamed is not None or route.is_mcp:
        content |= {name: {"schema": {"type": "string"}} for name in (SSE, NDJSON)}
    return content


def _failures(route: Route) -> tuple[str, ...]:
    if route.is_mcp:
        return "RouteError", "RpcError"
    _, failures = _BY_STATUS.get(route.answer, ((), ()))
    return (*failures, "RouteError")


def _json(*names: str) -> dict[str, Any]:
    """Return JSON content of one of these schemas, or any object."""
    found = [{"$ref": HERE + name} if name else _OBJECT for name in names]
    return {"application/json": {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}
