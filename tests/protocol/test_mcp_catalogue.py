"""What a server of MCP offers: its lists within bounds, kept as they came."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from protocol.connection import (
    LOOK_AGAIN,
    Answered,
    Described,
    Logged,
    Ready,
    Request,
    StartFailed,
)
from protocol.dialects.mcp import lists
from protocol.replies import Operation
from tests.protocol.mcp_process import ALL, TOOL, Served, legacy, modern
from tests.protocol.wire import line


def description(served: Served) -> dict[str, Any]:
    return [one for one in served.events if isinstance(one, Ready | Described)][-1].description


def complaints(served: Served) -> list[str]:
    return [one.event.message for one in served.events if isinstance(one, Logged)]


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


def test_a_server_that_announces_no_lists_is_asked_for_its_tools_all_the_same() -> None:
    served = legacy(offers={"logging": {}})
    assert description(served)["tools"] == [TOOL]
    (log,) = [one.event.message for one in served.events if isinstance(one, Logged)]
    assert "announces no capabilities and has tools" in log


@pytest.mark.parametrize("answer", [{"error": {"code": -32601, "message": "no"}}, {"result": {}}])
def test_a_server_that_announces_nothing_and_has_no_tools_is_ready_without(
    answer: dict[str, Any],
) -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "error": {"code": 1, "message": ""}})
    served.hear({"id": served.last()["id"], "result": {"protocolVersion": "2025-11-25"}})
    served.hear({"id": listing(served)["id"], **answer})
    assert isinstance(served.events[-1], Ready)
    said = served.events[-1].description
    assert said["inputs"] == {}
    assert "unlisted" not in said["mcp"]
    assert "tools" not in said


def test_a_server_that_announces_nothing_and_does_not_answer_is_ready_without_tools() -> None:
    served = Served()
    served.hear({"id": served.start()["id"], "error": {"code": 1, "message": ""}})
    served.hear({"id": served.last()["id"], "result": {"protocolVersion": "2025-11-25"}})
    (wait,) = served.connection.waits
    served.take(served.connection.time_passed(wait))
    assert isinstance(served.events[-1], Ready)


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
        ("cursor", f"is the last of {lists.PAGES}"),
        ("same", "was there before"),
        ("number", "which is not a string"),
        ("entries", f"more entries than {lists.DEFINITIONS}"),
        ("bytes", f"longer than {lists.LIST_BYTES} bytes"),
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
    named = "io.modelcontextprotocol/subscriptionId"
    served.hear({"method": changed, "params": {"_meta": {named: "x"}}})
    assert served.unread() == []
    for meta in ({named: listen["id"]}, {}):
        served.hear({"method": changed, "params": {"_meta": meta}})
        served.hear({"id": listing(served)["id"], "result": {"tools": []}})


def test_a_server_of_the_newer_era_that_refuses_to_be_listened_to_is_heard_all_the_same() -> None:
    served = modern()
    (listen,) = [one for one in served.written if one["method"] == "subscriptions/listen"]
    served.hear({"id": listen["id"], "error": {"code": -32601, "message": "no such method"}})
    named = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    cases: tuple[dict[str, Any], ...] = ({}, {"_meta": {}}, {"_meta": named})
    for params in cases:
        served.hear({"method": "notifications/tools/list_changed", "params": params})
        served.hear({"id": listing(served)["id"], "result": {"tools": []}})


def looked_up(served: Served, number: int) -> bool:
    """Look for an op that is not known; tell whether that is answered at once."""
    request = Request(f"look-{number}", Operation.DESCRIBE, LOOK_AGAIN)
    return bool(served.take(served.connection.ask(request)))


def listed(ttl_ms: object) -> Served:
    """Return a server of the older era that says how long its list of tools lasts."""
    served = Served()
    served.hear({"id": served.start()["id"], "error": {"code": 1, "message": ""}})
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    served.hear({"id": served.last()["id"], "result": result})
    served.hear({"id": listing(served)["id"], "result": {"tools": [TOOL], "ttlMs": ttl_ms}})
    return served


def test_whoever_looks_for_more_tools_is_answered_after_one_new_list_a_second() -> None:
    served = legacy(offers={"tools": {}})
    assert not looked_up(served, 1)
    assert not looked_up(served, 2)
    served.hear({"id": listing(served)["id"], "result": {"tools": [{**TOOL, "name": "new"}]}})
    assert [one.request_id for one in served.events[-2:] if isinstance(one, Answered)] == [
        "look-1",
        "look-2",
    ]
    assert looked_up(served, 3)
    assert served.unread() == []
    served.wait_over()
    assert served.connection.waits == ()
    assert not looked_up(served, 4)
    assert listing(served)


@pytest.mark.parametrize(
    ("ttl_ms", "seconds"),
    [(5000, 5.0), (2.5, 0.0025), (10**30, 86_400.0), (0, 0), (-1, 0), ("9", 0), (True, 0)],
)
def test_a_list_is_not_asked_for_anew_within_its_time_to_live(ttl_ms: Any, seconds: float) -> None:
    served = listed(ttl_ms)
    assert [one.seconds for one in served.connection.waits] == ([seconds] if seconds else [])
    assert looked_up(served, 1) is bool(seconds)


def test_whoever_looks_for_a_tool_waits_for_the_list_that_was_just_announced() -> None:
    served = listed(60_000)
    served.hear({"method": "notifications/tools/list_changed"})
    assert not looked_up(served, 1)
    served.hear({"id": listing(served)["id"], "error": {"code": -32603, "message": "not now"}})
    assert isinstance(served.events[-1], Answered)


def test_a_list_that_fails_while_somebody_looks_for_a_tool_is_asked_for_once_more() -> None:
    served = listed(0)
    served.hear({"method": "notifications/tools/list_changed"})
    assert not looked_up(served, 1)
    for _ in range(2):
        assert not [one for one in served.events if isinstance(one, Answered)]
        served.hear({"id": listing(served)["id"], "error": {"code": -32603, "message": "not now"}})
    assert isinstance(served.events[-1], Answered)
    assert description(served)["tools"] == [TOOL]


@pytest.mark.parametrize("odd", [{"inputSchema": None}, {"title": None}, {"outputSchema": []}])
def test_a_long_list_of_odd_tools_is_taken_in_turns_and_the_list_is_whole(odd: Any) -> None:
    served = Served(line_bytes=4 << 20)
    served.hear({"id": served.start()["id"], "result": _tools_only()})
    asked = listing(served)
    tools = [{**TOOL, "name": f"t{number}", **odd} for number in range(2000)]
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": tools}}
    events = [*served.connection.receive_data(line(answer))]
    turns = 0
    while not any(isinstance(one, Ready) for one in events):
        (over,) = [one for one in served.connection.waits if not one.seconds]
        events += served.connection.time_passed(over)
        turns += 1
    assert turns == len(tools) // lists.TURN - 1
    (ready,) = [one for one in events if isinstance(one, Ready)]
    assert ready.description["tools"] == tools
    assert list(ready.description["inputs"].values()) == [{"type": "object"}] * len(tools)
    told = [one.event.message for one in events if isinstance(one, Logged)]
    assert told[-1] == f"and {len(tools) - len(told) + 1} more of the like"
