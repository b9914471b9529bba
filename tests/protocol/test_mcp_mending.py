"""Definitions and results as strict clients take them: what is left out, mended, or left alone."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.dialects.mcp.calls import plain_base64
from protocol.dialects.mcp.lists import DEPTH
from protocol.frames import encode_line, one_line
from protocol.mcp_server.mending import (
    PROMPT,
    RESOURCE,
    TEMPLATE,
    TOOL,
    changes,
    definition_for,
    mended,
    output_fault,
    result_for,
    strict_definition,
    strict_result,
)

OLDER = "2025-11-25"
OBJECT: dict[str, Any] = {"type": "object"}
LINK = {"type": "resource_link", "uri": "a:b"}
TEXT = {"type": "text", "text": "t"}
WHOLE = {
    "name": "t",
    "title": "T",
    "description": "d",
    "icons": [{"src": "a", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
    "annotations": {"title": "x", "readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
    "inputSchema": {**OBJECT, "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "outputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", **OBJECT},
    "_meta": {"any": None},
    "unknown": None,
}


def test_what_fits_is_the_same_object() -> None:
    assert strict_definition(WHOLE, TOOL) is WHOLE
    assert definition_for(OLDER, WHOLE) is WHOLE
    for shape in (PROMPT, RESOURCE, TEMPLATE):
        one = {"name": "n", "title": "t", "_meta": {}}
        assert mended(one, shape) is one
    result = {
        "content": [
            TEXT,
            {"type": "image", "data": "QQ==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "a://b", "name": "n", "size": 5},
            {"type": "resource", "resource": {"uri": "a://b", "blob": "QQ=="}},
        ],
        "structuredContent": {"a": None},
        "isError": False,
    }
    assert strict_result("tools/call", result) is result


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("title", None, None),
        ("title", 5, None),
        ("description", [], None),
        ("icons", "a", None),
        ("icons", [{"src": "a", "theme": "pink"}, 5], [{"src": "a"}]),
        ("annotations", [], None),
        ("annotations", {"readOnlyHint": 1, "title": "x"}, {"title": "x"}),
        ("execution", {"taskSupport": "never"}, {}),
        ("_meta", "x", None),
        ("outputSchema", None, None),
        ("outputSchema", True, None),
        ("outputSchema", {**OBJECT, "properties": None}, None),
        ("inputSchema", None, OBJECT),
        ("inputSchema", {"type": ["object", "null"]}, OBJECT),
        ("inputSchema", {"anyOf": [{}]}, {"anyOf": [{}], **OBJECT}),
        ("inputSchema", {**OBJECT, "properties": []}, OBJECT),
        ("inputSchema", {**OBJECT, "required": None, "title": None}, OBJECT),
        ("inputSchema", {**OBJECT, "properties": {"a": 5}}, {**OBJECT, "properties": {"a": {}}}),
    ],
    ids=str,
)
def test_an_odd_field_costs_itself_and_is_told_of(field: str, value: Any, kept: Any) -> None:
    tool = {**WHOLE, field: value}
    found = strict_definition(tool, TOOL)
    assert found.get(field) == kept
    assert {**found, field: 0} == {**WHOLE, field: 0}
    assert any(field in one for one in changes(tool, found))


@pytest.mark.parametrize(
    "output", [{}, {"anyOf": [OBJECT]}, {"type": "array"}, {"type": ["object", "null"]}], ids=str
)
def test_output_that_is_no_object_is_for_the_newest_revision(output: dict[str, Any]) -> None:
    tool = {**WHOLE, "outputSchema": output}
    assert strict_definition(tool, TOOL) is tool
    found = definition_for(OLDER, tool)
    assert "outputSchema" not in found
    assert [*changes(tool, found)]


def test_a_boolean_for_a_property_is_for_the_newest_revision() -> None:
    schema = {**OBJECT, "properties": {"a": True, "b": False}}
    tool = {**WHOLE, "inputSchema": schema, "outputSchema": schema}
    assert strict_definition(tool, TOOL) is tool
    expected = {**OBJECT, "properties": {"a": {}, "b": {"not": {}}}}
    found = definition_for(OLDER, tool)
    assert found == {**tool, "inputSchema": expected, "outputSchema": expected}
    assert not [*changes(tool, found)]


def test_a_resource_without_a_name_has_that_of_its_uri() -> None:
    named = [mended({"uri": one}, RESOURCE)["name"] for one in ("a://b/c/", "d:")]
    assert named == ["c", "d:"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"items": {"$ref": "#"}}}},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"A": {"$anchor": "here"}}},
        {
            "$id": "http://x/y",
            "properties": {"a": {"$ref": "http://x/y#/$defs/A"}},
            "$defs": {"A": {}},
        },
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, True]},
        {"properties": {"a": {"default": None, "const": None, "enum": [None], "title": None}}},
        {"properties": {"type": {"type": ["string", "null"]}, "pattern": {"type": "string"}}},
        {"x-own": None, "format": "unheard"},
    ],
    ids=str,
)
def test_a_schema_that_clients_can_compile_has_no_fault(schema: dict[str, Any]) -> None:
    assert output_fault(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Gone"},
        {"$ref": "https://example.invalid/x"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"$schema": 7},
        {"$id": 5},
        {"type": "any"},
        {"type": None},
        {"enum": []},
        {"required": True},
        {"nullable": True},
        {"properties": {"a": None}},
        {"items": None},
        {"items": [{}]},
        {"anyOf": [None]},
        {"minimum": "1"},
        {"exclusiveMinimum": True},
        {"additionalProperties": {"pattern": 5}},
        {"patternProperties": {"(": {}}},
    ],
    ids=str,
)
def test_a_schema_that_clients_cannot_compile_has_one(schema: dict[str, Any]) -> None:
    assert output_fault({"properties": {"deep": schema}} if "$schema" not in schema else schema)


def held(contents: dict[str, Any]) -> dict[str, Any]:
    return {"type": "resource", "resource": contents}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def test_a_schema_may_nest_as_deep_as_definitions_may_and_ever_deeper_ends_nothing() -> None:
    assert output_fault(nested(DEPTH)) is None
    assert strict_definition({**WHOLE, "outputSchema": nested(5000)}, TOOL)["name"] == "t"


@pytest.mark.parametrize(
    ("pattern", "good"),
    [
        (r"^\d{4}-\d{2}$", True),
        (r"^(?!\.)[A-Za-z0-9_'+\-\.]*@([a-z\-]+\.)+[a-z]{2,}$", True),
        (r"(?<year>\d+)\k<year>", True),
        (r"^(\p{Extended_Pictographic}|\u{1F600}|[\u4e00-\u9fa5])+$", True),
        (r"(?<=a+)b|c*?", True),
        ("([", False),
        ("(?P<a>x)", False),
        ("(?i)a", False),
        (r"a\-b", False),
        (r"\Z", False),
        (r"[\w-.]", False),
        ("^{a}$", False),
        ("a++", False),
        ("*", False),
        ("a)", False),
        ("\\", False),
        ("[" * 20_000, False),
    ],
)
def test_patterns_are_those_of_javascript(pattern: str, good: bool) -> None:
    assert (output_fault({"pattern": pattern}) is None) is good


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({**TEXT, "_meta": None}, TEXT),
        ({**TEXT, "annotations": {"priority": 7}}, {**TEXT, "annotations": {}}),
        ({"type": "text", "text": 42}, {"type": "text", "text": "42"}),
        ({"type": "text"}, {"type": "text", "text": ""}),
        ("plain", {"type": "text", "text": "plain"}),
        ({"type": "chart", "n": 1}, {"type": "text", "text": '{"type":"chart","n":1}'}),
        ({"type": "image", "url": "x"}, {"type": "text", "text": '{"type":"image","url":"x"}'}),
        ({"type": "resource"}, {"type": "text", "text": '{"type":"resource"}'}),
        (held({"uri": "a:b", "text": 5}), held({"uri": "a:b", "text": "5"})),
        ({**LINK, "name": None}, {**LINK, "name": "a:b"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_block_is_one_that_clients_know(block: Any, expected: Any) -> None:
    result = {"content": [block, TEXT]}
    assert strict_result("tools/call", result) == {"content": [expected, TEXT]}
    message = {"role": "user", "content": block}
    prompt = strict_result("prompts/get", {"messages": [message]})
    assert prompt == {"messages": [{**message, "content": expected}]}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"contents": [{"text": "t"}]}, {"contents": [{"text": "t", "uri": "a://b"}]}),
        ({"contents": {"uri": "c:d", "text": None}}, {"contents": [{"uri": "c:d", "text": ""}]}),
        ({"contents": ["t"]}, {"contents": [{"uri": "a://b", "text": "t"}]}),
        ({"messages": "hi"}, {"messages": [{"role": "user", "content": {**TEXT, "text": "hi"}}]}),
        ({"messages": None}, {"messages": []}),
        ({"contents": None}, {"contents": []}),
        ({"content": None}, {"content": []}),
        ({"completion": {"values": None}}, {"completion": {"values": []}}),
        ({"completion": None}, {"completion": {"values": []}}),
        ({"completion": {"values": ["a"], "total": None}}, {"completion": {"values": ["a"]}}),
        ({"content": [], "_meta": {"progressToken": None}}, {"content": [], "_meta": {}}),
    ],
    ids=str,
)
def test_other_results_are_mended_alike(result: Any, expected: Any) -> None:
    methods = {
        "contents": "resources/read",
        "messages": "prompts/get",
        "completion": "completion/complete",
        "content": "tools/call",
    }
    assert strict_result(methods[next(iter(expected))], result, "a://b") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("QUI=", "QUI="),
        ("QUI", "QUI="),
        ("QU\r\nI=\n", "QUI="),
        ("Q U I", "QUI="),
        ("-_8", "+/8="),
        ("QUJD", "QUJD"),
        ("QUI==", "QUI="),
        ("", None),
        ("====", None),
        ("Q", None),
        ("QU=I", None),
        ("QUI=QUI=", None),
        ("QU!I", None),
        ("QUé=", None),
        ("data:,x", None),
    ],
)
def test_base64_is_made_plain_or_is_none(text: str, expected: str | None) -> None:
    assert plain_base64(text) == expected


def test_what_ends_a_line_elsewhere_is_escaped_in_a_line() -> None:
    assert encode_line("a\u2028\u2029\x85“”é") == r'"a\u2028\u2029\u0085“”é"'.encode() + b"\n"
    untouched = "“” é \u00c5 漢".encode()
    assert one_line(untouched) is untouched


@pytest.mark.parametrize(
    ("own", "asked", "shown"),
    [
        ("notes", "notes", "notes"),
        ("notes", "a://b/notes", "a://b/notes"),
        ("a://own", "notes", "a://own"),
        (None, "notes", "notes"),
    ],
)
def test_contents_have_an_absolute_uri_if_there_is_one(own: Any, asked: str, shown: str) -> None:
    for more in ({"text": "t"}, {"blob": "QQ=="}, {"text": "t", "_meta": None}):
        result = {"contents": [{"uri": own, **more}, {"uri": "x:y", "text": "t"}]}
        first, second = strict_result("resources/read", result, asked)["contents"]
        kept = {name: one for name, one in more.items() if one is not None}
        assert (first, second) == ({"uri": shown, **kept}, {"uri": "x:y", "text": "t"})


@pytest.mark.parametrize(
    ("revision", "kinds"),
    [
        ("2024-11-05", ["text", "text", "text"]),
        ("2025-03-26", ["text", "audio", "text"]),
        ("2025-06-18", ["text", "audio", "resource_link"]),
        ("2025-11-25", ["text", "audio", "resource_link"]),
        ("2026-07-28", ["text", "audio", "resource_link"]),
    ],
)
def test_content_that_a_revision_does_not_have_is_named(revision: str, kinds: list[str]) -> None:
    sound = {"type": "audio", "mimeType": "audio/wav", "data": ""}
    link = {**LINK, "name": "n"}
    blocks = [TEXT, sound, link]
    told = result_for(revision, {"content": blocks})["content"]
    assert [one["type"] for one in told] == kinds
    words = " ".join(one.get("text", "") for one in told)
    assert ("audio/wav" in words, "a:b" in words) == ("audio" not in kinds, link not in told)
    messages = [{"role": "user", "content": one} for one in blocks]
    got = result_for(revision, {"messages": messages})["messages"]
    assert [one["content"]["type"] for one in got] == kinds
    assert result_for(revision, {"messages": ["odd", 1]}) == {"messages": ["odd", 1]}


def test_structure_is_of_an_object_before_the_newest_revision() -> None:
    result: dict[str, Any] = {"content": [TEXT], "structuredContent": [1]}
    assert result_for("2026-07-28", result) is result
    assert result_for("2025-11-25", result) == {"content": [TEXT]}
    tool = {"name": "t", "outputSchema": {"type": "array"}}
    assert definition_for("2026-07-28", tool) is tool
    assert definition_for("2025-11-25", tool) == {"name": "t"}
    good = {"name": "t", "outputSchema": {"type": "object"}}
    assert definition_for("2025-11-25", good) is good
