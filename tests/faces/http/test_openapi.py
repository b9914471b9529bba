"""The OpenAPI document is as the page says, and what it says is what is served."""

from __future__ import annotations

import json
import re
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.docs.markdown import rows
from tests.faces.http import documented
from tests.faces.http.documented import HERE, NDJSON, OF_MODULES, SSE, routes
from tests.faces.http.test_routes import asking
from tests.faces.running import Running
from tests.schemas.local_registry import validator
from tests.schemas.test_schemas import BAD, GOOD

WHOLE = {
    "response.v1": "InvokeResponse",
    **{name: OF_MODULES[name][0] for name in ("invoke-reply.v1", "narratoria-event.v0")},
}
"""The documents of `schemas/` that are split into cases here, and the name of the whole one."""


def test_each_schema_in_it_is_one_and_each_operation_has_a_name_of_its_own() -> None:
    operations = [route.operation for route in routes()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) == len(rows("docs/http.md", "Route"))
    for operation in operations:
        for one in operation["parameters"]:
            Draft202012Validator.check_schema(one["schema"])
        for media in operation.get("requestBody", {"content": {}})["content"].values():
            Draft202012Validator.check_schema(media["schema"])


def test_each_answer_in_json_and_each_item_of_a_stream_has_a_schema() -> None:
    document = documented.document()
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    for route in routes():
        of_others = route.path.startswith("/mcp") or route.path == "/api/v1/openapi.json"
        responses = route.operation["responses"]
        content: dict[str, Any] = next(
            (one["content"] for key, one in responses.items() if key[0] == "2"), {}
        )
        answer = content.get("application/json", {"schema": {"$ref": HERE}})["schema"]
        assert of_others or "$ref" in answer.get("anyOf", [answer])[0], route
        assert of_others or {SSE in content, NDJSON in content} == {bool(route.items)}, route
        assert schemas.keys() >= {*route.items}, route
    for name in re.findall(r"#/components/([^\"]+)", json.dumps(document)):
        kind, _, one = name.partition("/")
        assert one in document["components"][kind]


@pytest.mark.parametrize(("name", "value"), [one for one in GOOD + BAD if one[0] in WHOLE])
def test_a_schema_of_cases_is_as_strict_as_its_conditions(name: str, value: Any) -> None:
    of_cases = documented.validator(json.dumps({"$ref": HERE + WHOLE[name]}))
    assert of_cases.is_valid(value) is validator(name).is_valid(value)


def test_the_page_has_a_row_for_each_route_and_no_other() -> None:
    table = [row[0].strip("`") for row in rows("docs/http.md", "Route")]
    assert table == [f"{route.method} {route.path}" for route in routes()]


def test_the_page_has_what_each_route_takes() -> None:
    told = {row[0].strip("`"): row[2] for row in rows("docs/http.md", "Route")}
    assert told == {f"{route.method} {route.path}": _takes(route.operation) for route in routes()}


def _takes(described: dict[str, Any]) -> str:
    """Return the names of query and body as the page spells them."""
    query = [one["name"] for one in described.get("parameters", []) if one["in"] == "query"]
    bodies = described.get("requestBody", {"content": {}})["content"].values()
    body: dict[str, Any] = next((one.get("schema", {}) for one in bodies), {})
    required = body.get("required", [])
    parts = {
        "query": [f"`{name}`" for name in query],
        "body": [
            f"`{name}` (required)" if name in required else f"`{name}`"
            for name in body.get("properties", {})
        ],
    }
    return "; ".join(f"{where} {', '.join(names)}" for where, names in parts.items() if names)


NAMES = st.sampled_from(["m", "nobody", "..", "%", "a/b", "\x00", "ü", "supervisor"])
_SCALAR = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(0, 9)
ANY = st.recursive(
    _SCALAR | st.text("az\x00é%", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    """Draw a request that has something to do with what the document describes."""
    route = draw(st.sampled_from(routes()))
    method, path, operation = route.method, route.path, route.operation
    for name in re.findall(r"\{(\w+)\}", path):
        value = draw(NAMES)
        path = path.replace(f"{{{name}}}", quoted(value))
    query = []
    for one in operation["parameters"]:
        if one["in"] == "query" and draw(st.booleans()):
            usual = {"integer": st.integers(-2, 3).map(str), "boolean": st.just("true")}
            value = draw(usual.get(one["schema"].get("type"), st.text("ab*[%", max_size=3)) | NAMES)
            query.append(f"{one['name']}={quoted(value)}")
    body = None
    if "requestBody" in operation:
        (media,) = operation["requestBody"]["content"].values()
        known = media["schema"].get("properties", {})
        body = draw(ANY | st.fixed_dictionaries({}, optional=dict.fromkeys(known, ANY)))
        if isinstance(body, dict) and "op" in known:
            body |= {"op": draw(st.sampled_from(["echo", "whoami", "status", "x"])), "timeout_s": 5}
    return method, path + ("?" + "&".join(query) if query else ""), body


def quoted(text: str) -> str:
    plain = set((string.ascii_letters + string.digits).encode())
    return "".join(chr(one) if one in plain else f"%{one:02X}" for one in text.encode())


async def test_what_it_describes_is_answered_and_never_by_a_mistake_of_ours() -> None:
    drawn: list[tuple[str, str, Any]] = []

    @given(st.lists(requests(), min_size=40, max_size=40))
    @settings(
        max_examples=4,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def draw(some: list[tuple[str, str, Any]]) -> None:
        drawn.extend(some)

    draw()
    async with asking() as client:
        for method, path, body in drawn:
            reply = await client.ask(method, path, body)
            assert reply.status != 405
            if reply.status >= 500:
                words = reply.json["error"]
                if "ok" in reply.json:  # the answer of an invocation, and no error of the route's
                    words = words["message"]
                else:
                    expected = ("INTERNAL_ERROR", "CONNECTION_FAILED", "TIMEOUT")
                    assert reply.json["code"] in expected, (method, path, body, reply.json)
                assert "failed in the daemon" not in words, (method, path, body)


async def test_each_route_is_routed(shared: Running) -> None:
    async with shared.unix() as client:
        for route in routes():
            options = await client.ask("OPTIONS", re.sub(r"\{\w+\}", "x", route.path))
            assert options.status == 204, route
            assert route.method in options.headers["allow"].split(", "), route
