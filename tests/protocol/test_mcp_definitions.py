from __future__ import annotations

from typing import Any

import pytest

from protocol.mcp_server.table import PROMPTS, Tool, entries_of, matches, tools_of

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def tools(said: dict[str, Any], summary: str | None = None) -> dict[str, Any]:
    return {one.op: one.definition for one in tools_of(said, summary)}


def test_a_kept_definition_is_given_back_as_it_came() -> None:
    kept = {
        "name": "t",
        "description": "does it",
        "inputSchema": {"$defs": {}, **SCHEMA},
        "annotations": {"readOnlyHint": True},
        "outputSchema": {"type": "object"},
        "_meta": {"x": 1},
        "more": None,
    }
    found = list(tools_of({"tools": [kept], "inputs": {"t": SCHEMA}}, "a module"))
    assert found == [Tool("t", kept)]
    assert found[0].definition is kept


def test_an_op_without_a_definition_becomes_a_tool_by_its_schemas() -> None:
    said = {"inputs": {"roll": SCHEMA, "odd": True}, "outputs": {"roll": {"type": "object"}}}
    assert tools(said, "throws dice") == {
        "roll": {
            "description": "roll: throws dice",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "object"},
        },
        "odd": {"description": "odd: throws dice", "inputSchema": {"type": "object"}},
    }
    assert tools({"inputs": {"roll": {**SCHEMA, "description": "own"}}})["roll"]["description"] == (
        "own"
    )


def test_every_tool_has_a_description() -> None:
    said = {"tools": [{"name": "t", "inputSchema": SCHEMA}, {"name": "u", "inputSchema": {}}]}
    assert {one["description"] for one in tools(said).values()} == {"t", "u"}


def test_what_is_no_definition_is_left_out() -> None:
    assert tools({"tools": [5, {"name": 5}, {"name": ""}]}) == {}
    assert not list(entries_of({"prompts": "x"}, PROMPTS))


def test_requests_of_mcps_own_are_no_tools_where_there_is_more_than_tools() -> None:
    inputs: dict[str, Any] = {"prompts/get": {}, "t": {}}
    assert list(tools({"inputs": inputs, "prompts": []})) == ["t"]
    assert list(tools({"inputs": inputs})) == ["prompts/get", "t"]


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("test://{id}/data", "test://5/data", True),
        ("test://{id}/data", "test://5/other", False),
        ("file:///{+path}", "file:///a/b", True),
        ("x://a", "x://a", True),
        ("x://a", "x://ab", False),
        ("x://{a}-{b}", "x://1-2", True),
        ("x://{a}b", "x://b", True),
        ("ab{x}ba", "aba", False),
    ],
)
def test_a_template_matches_what_it_may_stand_for(template: str, uri: str, expected: bool) -> None:
    assert matches(template, uri) is expected
