"""Hold what is answered to the OpenAPI document: each body to the schema of its route and status.

The document allows fields that it does not name, since later versions may add some. Here they are
refused, so that whatever is answered today is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from supervisor.faces.http.head import NDJSON, SSE
from supervisor.faces.http.openapi import document
from supervisor.faces.http.openapi_schemas import CASES, HERE, WHOLE
from supervisor.faces.http.route import Route
from supervisor.faces.http.routes import ROUTES

DOCUMENT = document(ROUTES)
AT = "urn:openapi"

OPEN = {
    HERE + name
    for document, (whole, of_value) in CASES.items()
    for name in (whole, *of_value.values())
    if document != "response.v1"
} | {HERE + name for name in WHOLE.values()}
"""What a module may have put fields of its own in."""


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
    schemas = DOCUMENT["components"]["schemas"]
    return {
        name: {key: one for key, one in closed(schema).items() if key != "unevaluatedProperties"}
        for name, schema in schemas.items()
    }


@cache
def registry() -> Registry[Any]:
    whole = {**DOCUMENT, "components": {**DOCUMENT["components"], "schemas": definitions()}}
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
    operation = DOCUMENT["paths"][route.path][method.lower()]
    response = operation["responses"].get(str(status), operation["responses"]["default"])
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    if "*/*" in response["content"]:
        return
    media = media.partition(";")[0]
    assert media in response["content"], (method, path, status, media)
    if media == "application/json":
        _hold(json.loads(body), response["content"][media]["schema"], (method, path, status))
    elif media in (SSE, NDJSON) and route.item and not _is_deployed(media, route):
        schema = {"anyOf": [{"$ref": HERE + one} for one in (route.item, route.answer) if one]}
        for item in _items(media, body):
            _hold(item, schema, (method, path, "stream"))


def _is_deployed(media: str, route: Route) -> bool:
    """Tell whether a stream has the words of AMCP's deployed clients, of which nothing is said."""
    return media == NDJSON and route.item == "SessionEvent"


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
    found = [one for one in ROUTES if one.method == method and _fits(one.path, path)]
    return min(found, key=lambda one: one.path.count("{"), default=None)


def _fits(template: str, path: str) -> bool:
    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None
