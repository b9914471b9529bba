"""What a server of MCP offers: its lists within bounds, kept as they came."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from protocol.connection import Described, ModuleLog, Ready, StartFailed
from protocol.dialects.mcp import catalogue
from tests.protocol.mcp_server import ALL, TOOL, Served, legacy, modern


def description(served: Served) -> dict[str, Any]:
    return [one for one in served.events if isinstance(one, Ready | Described)][-1].description


def complaints(served: Served) -> list[str]:
    return [one.event.message for one in served.events if isinstance(one, ModuleLog)]


def listing(served: Served) -> dict[str, Any]:
    (asked,) = [one for one in served.unread() if one.get("method") == "tools/list"]
    return asked


def test_definitions_are_kept_whole_and_make_ops() -> None:
    tool = {
        "name": "a b/c",
        "title": "T",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://far.example/s"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "data:,"}],
        "_meta": {"org.example/x": [1, None]},
        "unheardOf": {"y": 1},
    }
    said = description(modern([tool, TOOL]))
    assert said["tools"] == [tool, TOOL]
    assert said["inputs"]["a b/c"] == tool["inputSchema"]
    assert said["outputs"] == {"a b/c": {"type": "object"}}
    assert {"resources/read", "resources/templates", "prompts/get"} <= said["inputs"].keys()


def test_what_a_server_does_not_offer_is_neither_asked_for_nor_an_op() -> None:
    served = legacy(offers={"tools": {}})
    asked = [one["method"] for one in served.written]
    assert [one for one in asked if one.endswith("/list")] == ["tools/list"]
    assert description(served)["inputs"].keys() == {"echo"}
    assert description(legacy(offers={}))["inputs"] == {}


@pytest.mark.parametrize(
    ("tool", "complaint"),
    [
        (3, "it is 3, it must be an object"),
        ({}, 'its "name" is null'),
        ({"name": ""}, 'its "name" is ""'),
        ({"name": 7, "inputSchema": {}}, 'its "name" is 7'),
        (TOOL, '"echo" stands there twice'),
        ({"name": "deep", "inputSchema": None}, "is nested more than"),
    ],
    ids=str,
)
def test_a_definition_that_makes_no_sense_is_left_out_with_a_word(
    tool: Any, complaint: str
) -> None:
    if isinstance(tool, dict) and tool.get("name") == "deep":
        schema: dict[str, Any] = {}
        for _ in range(200):
            schema = {"not": schema}
        tool = {**tool, "inputSchema": schema}
    served = modern([TOOL, tool])
    assert description(served)["tools"] == [TOOL]
    assert any(complaint in one for one in complaints(served)), complaints(served)


@pytest.mark.parametrize("schema", [None, True, "x", []], ids=str)
def test_a_schema_that_is_none_says_nothing_of_the_args(schema: Any) -> None:
    tool = {"name": "t", "inputSchema": schema}
    served = modern([tool, {"name": "u"}])
    assert description(served)["inputs"]["t"] == {"type": "object"}
    assert description(served)["inputs"]["u"] == {"type": "object"}
    assert description(served)["tools"][0] == tool


def test_names_are_as_they_are() -> None:
    names = ["a b", "a/b", "n" * 300, "\u00fc\n", "resources/read"]
    tools = [{**TOOL, "name": name} for name in names]
    served = modern(tools)
    assert set(names) <= description(served)["inputs"].keys()
    for name in names:
        asked = served.ask(name, name, x=1)
        assert asked["params"]["name"] == name
        assert asked["params"]["arguments"] == {"x": 1}


def test_all_pages_are_asked_for() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "result": _tools_only()})
    for at, cursor in [("a", "1"), ("b", "2"), ("c", None)]:
        page: dict[str, Any] = {"tools": [{**TOOL, "name": at}], "nextCursor": cursor}
        served.hear({"id": listing(served)["id"], "result": page})
    assert list(description(served)["inputs"]) == ["a", "b", "c"]
    cursors = [one["params"].get("cursor") for one in served.written if "cursor" in one["params"]]
    assert cursors == ["1", "2"]


def _tools_only() -> dict[str, Any]:
    return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


@pytest.mark.parametrize(
    ("endless", "complaint"),
    [
        ("cursor", f"is the last of {catalogue.PAGES}"),
        ("same", "was there before"),
        ("number", "which is not a string"),
        ("entries", f"more entries than {catalogue.DEFINITIONS}"),
        ("bytes", f"longer than {catalogue.LIST_BYTES} bytes"),
        ("none", 'has no "tools"'),
    ],
)
def test_a_list_without_end_ends_at_its_bound(endless: str, complaint: str) -> None:
    served = Served(line_bytes=8 << 20)
    served.hear({"id": served.start()["id"], "result": _tools_only()})
    numbers = itertools.count()
    while asked := [one for one in served.unread() if one["method"] == "tools/list"]:
        number = next(numbers)
        count = 600 if endless == "entries" else 1
        tools = [{**TOOL, "name": f"{number}.{one}"} for one in range(count)]
        if endless == "bytes":
            tools = [{**tools[0], "description": "x" * (1 << 20)}]
        cursor: object = {"same": "c", "number": 5}.get(endless, str(number))
        result: dict[str, Any] = {"tools": tools, "nextCursor": cursor}
        if endless == "none":
            del result["tools"]
        served.hear({"id": asked[0]["id"], "result": result})
    assert any(complaint in one for one in complaints(served)), complaints(served)
    assert isinstance(next(one for one in served.events if isinstance(one, Ready)), Ready)


def test_a_flood_of_complaints_is_bounded() -> None:
    served = modern([{}] * 1000)
    assert len(complaints(served)) == 21
    assert complaints(served)[-1] == "and 980 more of the like"


def test_a_start_does_without_all_lists_but_that_of_tools() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "result": {**_tools_only(), "capabilities": ALL}})
    for one in served.unread():
        if one["method"] == "tools/list":
            served.hear({"id": one["id"], "result": {"tools": [TOOL]}})
        elif one["method"] == "prompts/list":
            served.hear({"id": one["id"], "error": {"code": -32603, "message": "ouch"}})
    assert not [one for one in served.events if isinstance(one, Ready)]
    served.wait_over()
    assert "echo" in description(served)["inputs"]
    assert len(complaints(served)) == 3


@pytest.mark.parametrize("silent", [True, False])
def test_without_a_list_of_tools_a_start_fails(silent: bool) -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "result": _tools_only()})
    if silent:
        served.wait_over()
    else:
        served.hear({"id": listing(served)["id"], "error": {"code": -1, "message": "ouch"}})
    (failed,) = [one for one in served.events if isinstance(one, StartFailed)]
    assert "tools" in failed.message


def test_a_change_is_asked_for_once_however_often_it_is_told_meanwhile() -> None:
    served = legacy()
    changed = {"method": "notifications/tools/list_changed"}
    served.hear(*[changed] * 1000)
    served.hear({"id": listing(served)["id"], "result": {"tools": []}})
    tools = [{**TOOL, "name": "new"}]
    served.hear({"id": listing(served)["id"], "result": {"tools": tools}})
    assert served.unread() == []
    assert description(served)["tools"] == tools
    assert sum(isinstance(one, Described) for one in served.events) == 1


def test_a_change_during_the_start_is_asked_for_after_it() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "error": {"code": 1, "message": ""}})
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    changed = {"method": "notifications/tools/list_changed"}
    served.hear(changed, {"id": served.last()["id"], "result": result}, changed)
    served.hear({"id": listing(served)["id"], "result": {"tools": []}})
    assert isinstance(served.events[-1], Ready)
    served.hear({"id": listing(served)["id"], "result": {"tools": [TOOL]}})
    assert description(served)["tools"] == [TOOL]


def test_a_server_of_the_newer_era_tells_changes_to_who_listens() -> None:
    served = modern()
    (listen,) = [one for one in served.written if one["method"] == "subscriptions/listen"]
    assert listen["params"]["notifications"] == {"toolsListChanged": True}
    changed = "notifications/tools/list_changed"
    for meta in ({}, {"io.modelcontextprotocol/subscriptionId": "x"}):
        served.hear({"method": changed, "params": {"_meta": meta}})
        assert served.unread() == []
    meta = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    served.hear({"method": changed, "params": {"_meta": meta}})
    assert listing(served)
