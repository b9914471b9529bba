"""The MCP server while its daemon goes, is away, and comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.mcp_server.daemon_link import DAEMON_WAIT_S
from protocol.mcp_server.methods import GREET_S
from tests.faces.mcp.clients import modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, request, tool

LIMITED = {
    "code": "unreachable",
    "message": "too many",
    "details": {"origin": "host", "reason": "rate_limited", "retry_in_s": 0.5},
}
ROLL = {"name": "dice__roll", "arguments": {}}


def daemon(*more: dict[str, Any], **options: Any) -> ScriptedDaemon:
    return ScriptedDaemon(offer("dice", tool("roll")), *more, **options)


def greeted(**capabilities: Any) -> Bridge:
    """Return a bridge whose client knows all lists."""
    bridge = Bridge(daemon())
    bridge.initialize(**capabilities)
    for what in ("tools", "prompts", "resources", "resources/templates"):
        bridge.result(f"{what}/list")
    return bridge


def test_a_client_is_greeted_and_pinged_without_a_daemon() -> None:
    bridge = Bridge()
    assert bridge.result("ping") == {}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    asked = bridge.ask("initialize", hello)
    bridge.pass_time(GREET_S)
    assert bridge.answer(asked)["result"]["capabilities"]["tools"] == {"listChanged": True}
    bridge.say("notifications/initialized")
    assert bridge.result("ping") == {}


def test_what_needs_a_daemon_waits_for_one_and_is_answered() -> None:
    bridge = greeted()
    bridge.lose()
    listed, called = bridge.ask("tools/list"), bridge.ask("tools/call", ROLL)
    bridge.pass_time(DAEMON_WAIT_S / 2)
    assert bridge.heard() == []
    bridge.connect(there := daemon())
    assert [one["name"] for one in bridge.answer(listed)["result"]["tools"]] == ["dice__roll"]
    there.done(there.call(), "4")
    bridge.turn()
    assert bridge.answer(called)["result"]["content"][0]["text"] == "4"
    assert bridge.heard() == []


def test_what_needs_a_daemon_fails_in_words_after_a_while() -> None:
    bridge = greeted()
    bridge.lose()
    listed, called = bridge.ask("tools/list"), bridge.ask("tools/call", ROLL)
    read = bridge.ask("resources/read", {"uri": "stdiod://assets/1"})
    bridge.pass_time(DAEMON_WAIT_S - 0.1)
    assert bridge.heard() == []
    bridge.pass_time(0.2)
    for asked in (listed, called, read):
        error = bridge.answer(asked)["error"]
        assert error["code"] == -32603
        assert "`stdiod up` starts it" in error["message"]
    bridge.connect(daemon())
    assert bridge.result("tools/list")["tools"]


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_client_that_got_no_list_is_told_when_there_is_one(is_newer: bool) -> None:
    bridge = Bridge()
    meta = {"_meta": modern()} if is_newer else {}
    if is_newer:
        bridge.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}, **meta})
    else:
        bridge.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        bridge.say("notifications/initialized")
    asked = bridge.ask("tools/list", meta)
    bridge.pass_time(2 * DAEMON_WAIT_S)
    assert "`stdiod up` starts it" in bridge.answer(asked)["error"]["message"]
    bridge.heard()
    bridge.connect(daemon())
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    (listed,) = bridge.result("tools/list", meta)["tools"]
    assert listed["name"] == "dice__roll"


def test_a_call_in_flight_fails_once_and_says_what_to_do() -> None:
    bridge = greeted()
    asked = bridge.ask("tools/call", ROLL)
    bridge.lose()
    result = bridge.answer(asked)["result"]
    assert result["isError"] is True
    assert "find out before you ask for it again" in result["content"][0]["text"]
    assert result["_meta"]["stdiod/error"]["details"]["reason"] == "daemon_restart"
    bridge.connect(there := daemon())
    assert not [one for one in there.asked if one["operation"] == "invoke"]
    assert bridge.heard() == []


def test_a_call_that_was_never_written_is_asked_again() -> None:
    bridge = greeted()
    first = bridge.daemon
    assert first is not None
    bridge.frames.asked("u", "tools/call", ROLL)
    bridge.server.receive_message(json.dumps(request("u", "tools/call", ROLL)).encode())
    bridge.lose()  # before the socket took a byte of it
    assert not [one for one in first.asked if one["operation"] == "invoke"]
    bridge.connect(there := daemon())
    there.done(there.call(), "4")
    bridge.turn()
    assert bridge.answer("u")["result"]["content"][0]["text"] == "4"


def test_a_list_in_flight_is_asked_for_again() -> None:
    bridge = greeted()
    assert bridge.daemon is not None
    bridge.daemon.is_silent = True
    asked = bridge.ask("tools/list")
    bridge.lose()
    assert bridge.heard() == []
    bridge.connect(daemon())
    assert bridge.answer(asked)["result"]["tools"]


def test_lists_that_are_the_same_again_are_not_told_of() -> None:
    bridge = greeted()
    bridge.lose()
    bridge.connect(daemon())
    assert bridge.heard() == []


def test_a_list_that_differs_is_told_of_once() -> None:
    bridge = greeted()
    bridge.lose()
    bridge.connect(daemon(offer("kv", tool("get"))))
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    bridge.lose()
    bridge.connect(daemon(offer("kv", tool("get"))))
    assert bridge.heard() == []


def test_modules_of_a_new_daemon_that_are_starting_are_waited_for() -> None:
    bridge = greeted()
    bridge.lose()
    there = daemon()
    there.is_silent = True
    bridge.connect(there)
    there.done(
        there.call("narrow"), {"name": "a", "face": "f", "modules": ["*"], "view": there.view}
    )
    bridge.turn()
    waits = [one["input"].get("wait") for one in there.open.values()]
    assert waits.count(True) == 1
    assert False not in waits


def test_a_version_is_that_of_one_daemon_only() -> None:
    bridge = greeted()
    bridge.lose()
    bridge.connect(ScriptedDaemon(offer("kv", tool("get"))))  # its version is the same by chance
    assert [one["name"] for one in bridge.result("tools/list")["tools"]] == ["kv__get"]


def test_resources_are_followed_again_and_may_have_changed() -> None:
    said = {"inputs": {"resources/read": {}}, "resources": [{"uri": "a://b", "name": "b"}]}
    bridge = Bridge(first := ScriptedDaemon(offer("notes", said=said)))
    bridge.initialize()
    asked = bridge.ask("resources/subscribe", {"uri": "a://b"})
    first.tell(first.call("resource.follow"), type="log", level="info", message="following")
    bridge.turn()
    assert bridge.answer(asked)["result"] == {}
    bridge.lose()
    bridge.connect(second := ScriptedDaemon(offer("notes", said=said)))
    assert bridge.heard() == []
    follow = second.call("resource.follow")
    second.tell(follow, type="log", level="info", message="following")
    bridge.turn()
    second.tell(follow, type="log", level="info", message="changed", fields={"uri": "a://b"})
    bridge.turn()
    told = [(one["method"], one["params"]) for one in bridge.heard()]
    assert told == [("notifications/resources/updated", {"uri": "a://b"})] * 2


def test_a_resource_whose_module_comes_later_is_followed_then() -> None:
    said = {"inputs": {"resources/read": {}}, "resources": [{"uri": "a://b", "name": "b"}]}
    bridge = Bridge(first := ScriptedDaemon(offer("notes", said=said)))
    bridge.initialize()
    bridge.ask("resources/subscribe", {"uri": "a://b"})
    first.tell(first.call("resource.follow"), type="log", level="info", message="following")
    bridge.turn()
    bridge.lose()
    bridge.connect(second := ScriptedDaemon())
    refusal = {"code": "bad_request", "message": "no notes", "details": {"origin": "host"}}
    second.done(second.call("resource.follow"), error=refusal)
    bridge.turn()
    second.offers, second.version = [offer("notes", said=said)], 2
    (changes,) = (one for one in second.open.values() if one["input"].get("follow"))
    second.tell(changes, type="log", level="info", message="changed", fields={"version": 2})
    bridge.turn()
    assert second.call("resource.follow")["input"] == {"module": "notes", "uri": "a://b"}


def test_a_change_that_comes_just_before_a_resource_is_no_longer_followed_counts() -> None:
    said = {"inputs": {"resources/read": {}}, "resources": [{"uri": "a://b", "name": "b"}]}
    bridge = Bridge(there := ScriptedDaemon(offer("notes", said=said)))
    bridge.initialize()
    bridge.result("resources/list")
    bridge.ask("resources/subscribe", {"uri": "a://b"})
    follow = there.call("resource.follow")
    there.tell(follow, type="log", level="info", message="following")
    bridge.turn()
    there.version = 2
    (changes,) = (one for one in there.open.values() if one["input"].get("follow"))
    there.tell(changes, type="log", level="info", message="changed", fields={"version": 2})
    removed = {"code": "bad_request", "message": "removed", "details": {"origin": "host"}}
    there.done(follow, error=removed)
    bridge.turn()
    assert there.call("resource.follow")["input"] == {"module": "notes", "uri": "a://b"}


def test_resources_are_followed_again_once_a_rate_is_waited_out() -> None:
    said = {"inputs": {"resources/read": {}}, "resources": [{"uri": "a://b", "name": "b"}]}
    bridge = Bridge(there := ScriptedDaemon(offer("notes", said=said)))
    bridge.initialize()
    bridge.ask("resources/subscribe", {"uri": "a://b"})
    there.tell(there.call("resource.follow"), type="log", level="info", message="following")
    bridge.turn()
    bridge.lose()
    bridge.connect(there := ScriptedDaemon(offer("notes", said=said)))
    there.done(there.call("resource.follow"), error=LIMITED)
    bridge.turn()
    assert "resource.follow" not in [one["operation"] for one in there.open.values()]
    bridge.pass_time(0.5)
    assert there.call("resource.follow")["input"] == {"module": "notes", "uri": "a://b"}


def test_a_question_is_withdrawn_when_the_daemon_goes() -> None:
    bridge = greeted(elicitation={})
    asked = bridge.ask("tools/call", ROLL)
    there = bridge.daemon
    assert there is not None
    call = there.call()
    form = {"type": "object", "properties": {}}
    question = {"call_id": "q1", "method": "user.ask", "params": {"message": "Sure?", "form": form}}
    there.tell(call, type="host_call", payload=question)
    bridge.turn()
    (put,) = bridge.heard()
    bridge.lose()
    assert bridge.answer(asked)["result"]["isError"] is True
    (withdrawn,) = bridge.heard()
    assert withdrawn["params"]["requestId"] == put["id"]
    bridge.write({"jsonrpc": "2.0", "id": put["id"], "result": {"action": "accept"}})
    bridge.connect(daemon())
    assert bridge.heard() == []


def test_a_client_that_cancels_while_the_daemon_is_away_is_not_asked_for() -> None:
    bridge = greeted()
    bridge.lose()
    asked = bridge.ask("tools/call", ROLL)
    bridge.say("notifications/cancelled", {"requestId": asked})
    bridge.connect(there := daemon())
    assert not [one for one in there.asked if one["operation"] == "invoke"]
    assert bridge.heard() == []


def test_a_view_that_is_not_there_fails_all_in_the_daemons_words() -> None:
    bridge = Bridge()
    there = daemon()
    there.is_silent = True
    bridge.connect(there)
    asked = bridge.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    refusal = {"code": "bad_request", "message": "there is no view", "details": {"origin": "host"}}
    there.done(there.call("narrow"), error=refusal)
    bridge.turn()
    assert bridge.answer(asked)["error"]["message"] == "there is no view"
    assert bridge.server.daemon.refusal is not None
    bridge.lose()
    bridge.connect(daemon())
    assert bridge.server.daemon.refusal is None


def test_nothing_is_asked_before_the_view_is_known() -> None:
    bridge = Bridge()
    asked = bridge.ask("tools/list", None)
    assert bridge.answer(asked)["error"]["code"] == -32600
    there = daemon()
    there.is_silent = True
    bridge.connect(there)
    bridge.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert [one["operation"] for one in there.asked] == ["narrow"]
    assert there.asked[0]["input"] == {"view": "default"}


@pytest.mark.parametrize("at", ["narrow", "offers"])
def test_a_client_is_greeted_once_a_rate_is_waited_out(at: str) -> None:
    bridge = Bridge()
    there = daemon()
    there.is_silent = True
    bridge.connect(there)
    asked = bridge.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    if at == "offers":
        there.is_silent = False
        there.serve(there.call("narrow"))
        there.is_silent = True
        bridge.turn()
    for frame in [one for one in there.open.values() if one["operation"] == at]:
        there.done(frame, error=LIMITED)
    bridge.turn()
    there.is_silent = False
    bridge.pass_time(0.5)
    assert bridge.answer(asked)["result"]["serverInfo"]["name"] == "stdiod"


def test_a_client_is_told_of_lists_that_differ_once_a_rate_is_waited_out() -> None:
    bridge = greeted()
    there = bridge.daemon
    assert there is not None
    there.is_silent, there.offers, there.version = True, [offer("kv", tool("get"))], 2
    (changes,) = (one for one in there.open.values() if one["input"].get("follow"))
    there.tell(changes, type="log", level="info", message="changed", fields={"version": 2})
    bridge.turn()
    (asked,) = (one for one in there.open.values() if one is not changes)
    there.done(asked, error=LIMITED)
    bridge.turn()
    there.is_silent = False
    assert bridge.heard() == []
    bridge.pass_time(0.5)
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]


def test_a_daemon_that_has_no_room_is_quoted() -> None:
    bridge = greeted()
    bridge.lose()
    asked = bridge.ask("tools/call", ROLL)
    bridge.daemon = full = daemon()
    bridge.server.connect(full.client)
    refusal = b'{"version":"0","type":"done","ok":false,"error":{"code":"x","message":"no room"}}\n'
    for event in full.client.receive_data(refusal):
        bridge.server.receive_event(event)
    bridge.lose()
    bridge.pass_time(DAEMON_WAIT_S)
    assert "(it said last: no room)" in bridge.answer(asked)["error"]["message"]


def test_a_daemon_that_goes_before_it_has_answered_is_followed_by_another() -> None:
    bridge = greeted()
    bridge.lose()
    for _ in range(3):
        silent = daemon()
        silent.is_silent = True
        bridge.connect(silent)
        bridge.lose()
    bridge.pass_time(2 * DAEMON_WAIT_S)
    bridge.connect(there := daemon(offer("kv", tool("get"))))
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    (_,) = (one for one in there.open.values() if one["input"].get("follow"))


def test_lists_are_followed_again_after_a_daemon_that_stops_has_ended_that() -> None:
    bridge = greeted()
    first = bridge.daemon
    assert first is not None
    (changes,) = (one for one in first.open.values() if one["input"].get("follow"))
    details = {"origin": "host", "reason": "stopping"}
    first.done(changes, error={"code": "unreachable", "message": "it stops", "details": details})
    bridge.turn()
    assert bridge.result("tools/list")["tools"]
    assert not [one for one in first.open.values() if one["input"].get("follow")]
    bridge.lose()
    bridge.connect(there := daemon(offer("kv", tool("get"))))
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    (_,) = (one for one in there.open.values() if one["input"].get("follow"))


def test_lists_are_followed_again_after_a_view_was_refused() -> None:
    bridge = greeted()
    bridge.lose()
    refusing = daemon()
    refusing.is_silent = True
    bridge.connect(refusing)
    refusal = {"code": "bad_request", "message": "there is no view", "details": {"origin": "host"}}
    refusing.done(refusing.call("narrow"), error=refusal)
    bridge.turn()
    assert bridge.error("tools/list")["message"] == "there is no view"
    bridge.lose()
    bridge.connect(there := daemon(offer("kv", tool("get"))))
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    (_,) = (one for one in there.open.values() if one["input"].get("follow"))


@pytest.mark.parametrize("result", [None, {}, {"view": 5}])
def test_what_waits_for_a_daemon_of_which_the_view_is_not_understood_fails(result: Any) -> None:
    bridge, daemon = Bridge(), ScriptedDaemon()
    asked = bridge.ask("tools/list", {"_meta": modern()})
    daemon.is_silent = True
    bridge.connect(daemon)
    daemon.done(daemon.call("narrow"), result)
    bridge.turn()
    assert '"narrow"' in bridge.answer(asked)["error"]["message"]
    assert '"narrow"' in bridge.error("tools/list", {"_meta": modern()})["message"]
