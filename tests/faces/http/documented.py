"""Hold what is answered to the OpenAPI document: each body to the schema of its route and status.

The document is a daemon's, which is asked for it once. It allows fields that it does not name,
since later versions may add some. Here they are refused, so that whatever is answered today is in
it.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.system.daemon import Daemon
from tests.system.liveness import BOUND_S

AT = "urn:openapi"
HERE = "#/components/schemas/"
SSE, NDJSON = "text/event-stream", "application/x-ndjson"

OF_MODULES = {
    "invoke-reply.v1": ("ModuleReply", "ModuleSuccess", "ModuleFailure"),
    "narratoria-event.v0": (
        "WireEvent",
        "LogEvent",
        "StatePatchEvent",
        "AssetEvent",
        "UiEvent",
        "ErrorEvent",
        "DoneEvent",
    ),
    "error.v1": ("ErrorV1",),
    "health-reply.v1": ("Health",),
    "describe-reply.v1": ("Description",),
}
"""Schemas of what a module may have put fields of its own in: the whole one, then its cases."""

OPEN = {HERE + name for names in OF_MODULES.values() for name in names}


class Route(NamedTuple):
    """A method of a path, and the schemas of the items of its stream."""

    method: str
    path: str
    items: tuple[str, ...]

    @property
    def operation(self) -> dict[str, Any]:
        found: dict[str, Any] = document()["paths"][self.path][self.method.lower()]
        return found


@cache
def document() -> dict[str, Any]:
    """Return the document, as a daemon of its own tells it."""
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-") as name,
        Daemon(Path(name), options=("--http", "sock"), anew=True),  # no child stays with the test
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.settimeout(BOUND_S)
        client.connect(str(Path(name, "http.sock")))
        client.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with HTTPResponse(client) as response:
            response.begin()
            assert response.status == 200
            found: dict[str, Any] = json.load(response)
    return found


@cache
def routes() -> tuple[Route, ...]:
    return tuple(
        Route(method.upper(), path, _items_of(operation))
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    )


def _items_of(operation: dict[str, Any]) -> tuple[str, ...]:
    """Return the schemas of the items of a stream, which the description names."""
    for response in operation["responses"].values():
        said = re.findall(r"of the schema (\w+)(?:, the last one the (\w+))?", str(response))
        if said:
            return tuple(name for name in said[0] if name)
    return ()


def closed(value: Any, *, part: bool = False) -> Any:
    """Return a schema that refuses what it does not name; `part` is of an `allOf`."""
    if isinstance(value, list):
        return [closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {
        key: [closed(one, part=True) for one in inner] if key == "allOf" else closed(inner)
        for key, inner in value.items()
    }
    whole = "$ref" in value or "properties" in value or "allOf" in value
    if whole and not part and value.get("$ref") not in OPEN:
        found["unevaluatedProperties"] = False
    return found


def definitions() -> dict[str, Any]:
    """Return the schemas; that of a reference decides whether what it refers to is closed."""
    schemas = document()["components"]["schemas"]
    return {
        name: {key: one for key, one in closed(schema).items() if key != "unevaluatedProperties"}
        for name, schema in schemas.items()
    }


@cache
def registry() -> Registry[Any]:
    whole = {**document(), "components": {**document()["components"], "schemas": definitions()}}
    empty: Registry[Any] = Registry()
    known: Registry[Any] = empty.with_resource(AT, DRAFT202012.create_resource(whole))
    return known


@cache
def validator(text: str) -> Draft202012Validator:
    # References of the document are its own; those from here are to the document.
    schema = closed(json.loads(text))
    absolute = json.dumps(schema).replace('"#/', f'"{AT}#/')
    return Draft202012Validator(json.loads(absolute), registry=registry())


def check(method: str, path: str, status: int, media: str, body: bytes) -> None:
    """Fail with what is wrong, if an answer is other than the document says."""
    route = _route(method, path.partition("?")[0])
    if route is None or not body:
        return
    responses = route.operation["responses"]
    response = responses.get(str(status), responses["default"])
    if "$ref" in response:
        response = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    if "*/*" in response["content"]:
        return
    media = media.partition(";")[0]
    assert media in response["content"], (method, path, status, media)
    if media == "application/json":
        _hold(json.loads(body), response["content"][media]["schema"], (method, path, status))
    elif media in (SSE, NDJSON) and route.items and not _is_deployed(media, route):
        schema = {"anyOf": [{"$ref": HERE + one} for one in route.items]}
        for item in _items(media, body):
            _hold(item, schema, (method, path, "stream"))


def _is_deployed(media: str, route: Route) -> bool:
    """Tell whether a stream has the words of AMCP's deployed clients, of which nothing is said."""
    return media == NDJSON and route.items[0] == "SessionEvent"


def _hold(value: Any, schema: dict[str, Any], where: tuple[Any, ...]) -> None:
    for error in validator(json.dumps(schema)).iter_errors(value):
        raise AssertionError(f"{where}: {error.json_path}: {error.message[:500]}")


def _items(media: str, body: bytes) -> Iterator[Any]:
    prefix = b"data: " if media == SSE else b"{"
    for line in body.splitlines():
        if line.startswith(prefix):
            yield json.loads(line.removeprefix(b"data: "))


@cache
def _route(method: str, path: str) -> Route | None:
    found = [one for one in routes() if one.method == method and _fits(one.path, path)]
    return min(found, key=lambda one: one.path.count("{"), default=None)


def _fits(template: str, path: str) -> bool:
    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None
