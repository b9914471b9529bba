"""The OpenAPI 3.1 document, of the table of routes and the schemas that the daemon tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from protocol.amcp_errors import ErrorCode
from protocol.openapi_schemas import HERE, Schema, components
from protocol.version import VERSION
from supervisor.edge.http.messages import (
    NDJSON,
    SSE,
)
from supervisor.edge.http.sse import StreamForm

if TYPE_CHECKING:
    from supervisor.edge.http.routes import Route

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
_ANSWERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The shorter ones are those of the daemon's own ops.
    "InvokeResponse": (("InvokeSuccess", "ModuleSuccess"), ("InvokeFailure", "ModuleFailure")),
    "Rpc": (("",), ("RouteError", "RpcError")),
}
"""Answers that the status distinguishes: the schemas of successes and of failures."""
_REFUSALS = {
    "400": "The request is not valid",
    "401": "There is no token, or not a valid one",
    "403": "The caller may not do that",
    "404": "Nothing has that name",
    "default": "It failed",
}


def document(routes: Iterable[Route], inputs: Mapping[str, Any]) -> Schema:
    """Return the document; `inputs` are the schemas of the ops' args."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, inputs)
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
                for name, words in _REFUSALS.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{"bearer": []}, {"basic": []}, {}],
    }


# Routes.


def _operation(route: Route, inputs: Mapping[str, Any]) -> Schema:
    words = [one.strip("{}") for one in route.path.split("/")[1:]]
    operation: Schema = {
        "summary": route.summary,
        "operationId": "-".join([route.method.lower(), *words]).replace(".", "-"),
        "parameters": [*_parameters(route, inputs)],
        "responses": _responses(route),
    }
    if route.is_open:
        operation["security"] = []
    if route.method in ("POST", "PATCH"):
        operation["requestBody"] = {
            "required": True,  # its type is, at least: pages of others cannot say that
            "content": {route.media: {"schema": route.body(inputs)}},
        }
    return operation


def _parameters(route: Route, inputs: Mapping[str, Any]) -> Iterable[Schema]:
    for name in route.parameters:
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name in route.query:
        yield {"name": name, "in": "query", "schema": route.schema(name, inputs)}
    if "since" in route.query:
        schema = {"type": "integer", "minimum": 0}
        yield {"name": "Last-Event-ID", "in": "header", "schema": schema}
    if route.body_is is not None:
        schema = {"type": "string", "pattern": r'^(W/)?"[^"]*"$'}
        yield {"name": "If-Match", "in": "header", "schema": schema}


def _responses(route: Route) -> Schema:
    successes, failures = _ANSWERS.get(route.answer, ((route.answer,), ()))
    failed = _json(*dict.fromkeys((*failures, "RouteError")))
    if route.path.startswith("/log"):
        failed["text/html"] = {"schema": {"type": "string"}}
    refused: Schema = {
        status: {"$ref": f"#/components/responses/{status}"}
        # By a 401 nobody has looked at what it asks.
        if failed == _json("RouteError") or (status == "401" and route.of_module)
        else {"description": words, "content": failed}
        for status, words in _REFUSALS.items()
    }
    if route.status == 101:  # noqa: PLR2004 - Switching Protocols
        refused["426"] = {"description": "It is not a WebSocket handshake", "content": failed}
        return {"101": {"description": "It goes on with WebSocket"}, **refused}
    streamed = route.streamed is not None or route.answer == "Rpc"
    media = [*route.content, *((SSE, NDJSON) if streamed else ())]
    content = {name: {"schema": {} if name == "*/*" else {"type": "string"}} for name in media}
    if not route.content and (route.answer or route.streams_as is None):
        content = {**_json(*successes), **content}
    found = {str(route.status): {"description": _done(route), "content": content}}
    if route.is_partial:
        found["206"] = {"description": "A part of it", "content": content}
    return {**found, **refused}


def _done(route: Route) -> str:
    if not route.item:
        return "It is done"
    last = f", the last one the {route.answer}" if route.form is StreamForm else ""
    return f"It is done; the items of a stream are of the schema {route.item}{last}"


def _json(*names: str) -> Schema:
    """Return JSON content of one of these schemas, or any object."""
    found: list[Schema] = [{"$ref": HERE + name} if name else {"type": "object"} for name in names]
    return {"application/json": {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}
