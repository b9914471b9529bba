"""The OpenAPI 3.1 document of the routes, made of their table and the schemas of the ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from protocol.amcp_errors import ErrorCode
from protocol.version import VERSION
from supervisor.faces.http.head import NDJSON, SSE
from supervisor.kernel.operations import INPUTS

if TYPE_CHECKING:
    from supervisor.faces.http.routes import Route

_ERROR = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string", "description": "what is wrong, for people"},
        "code": {"enum": [str(one) for one in ErrorCode]},
        "details": {"type": "object"},
    },
}
_RPC_ERROR = {
    "type": "object",
    "required": ["jsonrpc", "error"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
        },
    },
}
"""What MCP answers to what is no message of its."""
_OBJECT = {"type": "object"}
_REFUSALS = {
    "400": "The request is not valid",
    "401": "There is no token, or not a valid one",
    "403": "The caller may not do that",
    "404": "Nothing has that name",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document."""
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
            "schemas": {"Error": _ERROR, "RpcError": _RPC_ERROR},
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
    if route.is_page or (route.is_login and route.method == "GET"):
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
    """Return the schema of a route's body."""
    if route.body_is is not None:
        return route.schema(route.body_is)
    if route.is_mcp:
        return _OBJECT
    if not route.takes_body:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = INPUTS[route.op]
    apart = {*route.parameters, *route.fixed, *route.query}
    properties = {**schema["properties"], **route.renamed, **route.own}
    return {
        "type": "object",
        "properties": {name: one for name, one in properties.items() if name not in apart},
        "required": [name for name in schema["required"] if name not in apart],
        "additionalProperties": False,
    }


def _responses(route: Route) -> dict[str, Any]:
    media = {"application/json": {"schema": _OBJECT}}
    if route.streamed is not None or route.is_mcp:
        media |= {name: {"schema": {"type": "string"}} for name in (SSE, NDJSON)}
    if route.is_content or route.is_page or route.is_login:
        media = {"*/*": {"schema": {}}}
    failure: dict[str, Any] = {"$ref": "#/components/schemas/Error"}
    if route.is_mcp:
        failure = {"anyOf": [failure, {"$ref": "#/components/schemas/RpcError"}]}
    error = {"application/json": {"schema": failure}}
    if route.is_login:
        error["text/html"] = {"schema": {"type": "string"}}
    if route.is_socket:
        words = {"426": "It is not a WebSocket handshake", **_REFUSALS, "default": "It failed"}
        failed = {status: {"description": one, "content": error} for status, one in words.items()}
        return {"101": {"description": "It goes on with WebSocket"}, **failed}
    found = {str(route.status): {"description": "It is done", "content": media}}
    if route.is_content:
        found["206"] = {"description": "A part of it", "content": media}
    answered = media if route.of_module else error
    found |= {
        status: {"description": words, "content": answered if status in ("400", "404") else error}
        for status, words in _REFUSALS.items()
    }
    return {**found, "default": {"description": "It failed", "content": answered}}
