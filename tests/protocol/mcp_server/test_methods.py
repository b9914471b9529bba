"""Each method of MCP, in the eras that have it, with a daemon that is there."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from protocol.framing import Overlong
from protocol.mcp_server.methods import PAGE_BYTES, SUBSCRIPTIONS
from protocol.mcp_server.offered import LOOKED_AT, STEPS
from protocol.mcp_server.server import OPEN_REQUESTS
from protocol.mcp_server.table import KnownLists
from tests.faces.mcp.clients import META, modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, request, tool

READABLE: dict[str, Any] = {
    "inputs": {"prompts/get": {}, "resources/read": {}, "completion/complete": {}},
    "prompts": [{"name": "greet"}],
    "resources": [{"uri": "a://b", "name": "b"}],
    "resource_templates": [{"uriTemplate": "a://{x}/y", "name": "y"}],
}
DEEP = b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"a":%s%s}}' % (b"[" * 200, b"]" * 200)
OWN = {"name": "own", "modules": ["notes"], "prefix": False}


def bridge_to(*offers: dict[str, Any], **options: Any) -> tuple[Bridge, ScriptedDaemon]:
    daemon = ScriptedDaemon(*offers, **options)
    bridge = Bridge(daemon)
    bridge.initialize()
    return bridge, daemon


def answered(bridge: Bridge, asked: Any, result: Any = None, **more: Any) -> Any:
    """Answer the open call, and return what the client gets."""
    assert bridge.daemon is not None
    bridge.daemon.done(bridge.daemon.call(), result, **more)
    bridge.turn()
    return bridge.answer(asked)


def test_from_the_handshake_to_a_call() -> None:
    bridge = Bridge(ScriptedDaemon(offer("dice", tool("roll"))))
    assert bridge.initialize()["protocolVersion"] == "2025-11-25"
    (listed,) = bridge.result("tools/list")["tools"]
    assert listed["name"] == "dice__roll"
    asked = bridge.ask("tools/call", {"name": "dice__roll", "arguments": {"sides": 6}})
    assert bridge.daemon is not None
    call = bridge.daemon.call()
    assert (call["tool"], call["input"]) == ("dice", {"op": "roll", "args": {"sides": 6}})
    bridge.daemon.done(call, {"total": 4})
    bridge.turn()
    assert bridge.answer(asked)["result"]["structuredContent"] == {"total": 4}


def test_the_client_of_the_older_era_says_hello_once_and_first() -> None:
    bridge = Bridge(ScriptedDaemon())
    early = bridge.error("tools/list")
    assert (early["code"], "initialize" in early["message"]) == (-32600, True)
    assert bridge.result("ping") == {}
    assert bridge.initialize("1999-01-01")["protocolVersion"] == "2025-11-25"
    again = bridge.error("initialize", {"protocolVersion": "2025-11-25"})
    assert again["code"] == -32600
    assert bridge.error("server/dance")["code"] == -32601


def test_a_hello_has_the_instructions_and_extensions_of_the_modules() -> None:
    said = {"instructions": "Be nice.", "mcp": {"capabilities": {"extensions": {"x/y": {}}}}}
    bridge = Bridge(ScriptedDaemon(offer("notes", said={"inputs": {}, **said})))
    hello = bridge.initialize()
    assert hello["instructions"] == "Be nice."
    assert hello["capabilities"]["extensions"] == {"x/y": {}}
    found = bridge.result("server/discover", {"_meta": modern()})
    assert (found["instructions"], found["supportedVersions"][0]) == ("Be nice.", "2026-07-28")
    assert found["_meta"][f"{META}serverInfo"]["name"] == "stdiod"


def test_a_request_of_the_newer_era_needs_no_hello() -> None:
    bridge = Bridge(ScriptedDaemon(offer("dice", tool("roll"))))
    listed = bridge.result("tools/list", {"_meta": modern()})
    said = (listed["resultType"], listed["cacheScope"], listed["ttlMs"])
    assert said == ("complete", "private", 0)
    for old in ("ping", "initialize", "logging/setLevel", "resources/subscribe"):
        assert bridge.error(old, {"_meta": modern()})["code"] == -32601
    assert bridge.error("tools/list", {"_meta": {f"{META}protocolVersion": "v9"}})["code"] == -32602


def test_all_lists_are_asked_for_when_they_have_changed() -> None:
    bridge, daemon = bridge_to(offer("notes", said=READABLE))
    assert [one["name"] for one in bridge.result("prompts/list")["prompts"]] == ["greet"]
    assert [one["uri"] for one in bridge.result("resources/list")["resources"]] == ["a://b"]
    templates = bridge.result("resources/templates/list")["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["a://{x}/y"]
    known = [one["input"].get("known") for one in daemon.asked if one["operation"] == "offers"]
    assert known[-3:] == [1, 1, 1]
    daemon.offers, daemon.version = [offer("dice", tool("roll"))], 2
    assert [one["name"] for one in bridge.result("tools/list")["tools"]] == ["dice__roll"]


def test_a_change_is_told_of_if_the_client_knows_the_list_and_it_differs() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    (changes,) = (one for one in daemon.open.values() if one["input"].get("follow"))

    def change(*offers: dict[str, Any]) -> list[str]:
        daemon.offers, daemon.version = list(offers), daemon.version + 1
        daemon.tell(changes, type="log", level="info", message="changed", fields={})
        bridge.turn()
        return [one["method"] for one in bridge.heard()]

    assert change(offer("dice", tool("roll"), tool("hold"))) == []  # it has not asked for any
    bridge.result("tools/list")
    assert change(offer("dice", tool("roll"), tool("hold"))) == []
    assert change(offer("dice", tool("roll"))) == ["notifications/tools/list_changed"]
    assert change(offer("dice", tool("roll"), serves=False)) == []
    assert change(offer("notes", said=READABLE)) == ["notifications/tools/list_changed"]


def test_a_subscription_is_acknowledged_and_told_of_what_it_wants() -> None:
    daemon = ScriptedDaemon(offer("notes", said={**READABLE, "inputs": {"resources/read": {}}}))
    bridge = Bridge(daemon)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a://b", "c://d"]}
    asked = bridge.ask("subscriptions/listen", {"notifications": wanted, "_meta": modern()})
    for one in [each for each in daemon.open.values() if each["operation"] == "resource.follow"]:
        if one["input"]["uri"] == "a://b":
            daemon.tell(one, type="log", level="info", message="following")
        else:
            daemon.done(one, error={"code": "bad_request", "message": "no", "details": {}})
    bridge.turn()
    (told,) = bridge.heard()
    assert told["method"] == "notifications/subscriptions/acknowledged"
    known = {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}
    assert told["params"]["notifications"] == known
    assert told["params"]["_meta"] == {f"{META}subscriptionId": asked}
    follow = daemon.call("resource.follow")
    daemon.tell(follow, type="log", level="info", message="", fields={"uri": "a://b"})
    daemon.offers, daemon.version = [offer("dice", tool("roll"))], 2
    (changes,) = (one for one in daemon.open.values() if one["input"].get("follow"))
    daemon.tell(changes, type="log", level="info", message="changed", fields={})
    bridge.turn()
    methods = [one["method"] for one in bridge.heard()]
    assert methods == ["notifications/resources/updated", "notifications/tools/list_changed"]
    bridge.say("notifications/cancelled", {"requestId": asked})
    assert not [one for one in daemon.open.values() if one["operation"] == "resource.follow"]
    assert bridge.heard() == []


@pytest.mark.parametrize(
    "notifications", [5, {"resourceSubscriptions": 5}, {"resourceSubscriptions": [""]}]
)
def test_a_subscription_names_what_it_wants(notifications: Any) -> None:
    bridge = Bridge(ScriptedDaemon())
    params = {"notifications": notifications, "_meta": modern()}
    assert bridge.error("subscriptions/listen", params)["code"] == -32602


def test_a_resource_is_followed_until_its_client_unsubscribes() -> None:
    bridge, daemon = bridge_to(offer("notes", said=READABLE))
    asked, twice = (bridge.ask("resources/subscribe", {"uri": "a://b"}) for _ in range(2))
    daemon.tell(daemon.call("resource.follow"), type="log", level="info", message="following")
    bridge.turn()
    assert bridge.answer(asked)["result"] == bridge.answer(twice)["result"] == {}
    assert bridge.result("resources/unsubscribe", {"uri": "a://b"}) == {}
    assert daemon.asked[-1]["operation"] == "cancel"
    refused = bridge.ask("resources/subscribe", {"uri": "a://b"})
    wrong = {"code": "bad_request", "message": "it cannot", "details": {}}
    daemon.done(daemon.call("resource.follow"), error=wrong)
    bridge.turn()
    error = bridge.answer(refused)["error"]
    assert (error["code"], error["data"]) == (-32602, {"uri": "a://b"})
    assert error["message"].endswith("cannot be followed: it cannot")
    unknown = bridge.error("resources/subscribe", {"uri": "stdiod://modules/none/c://d"})
    assert unknown["message"].endswith("cannot be followed: no module here has it")
    left = bridge.ask("resources/subscribe", {"uri": "a://b"})
    bridge.result("resources/unsubscribe", {"uri": "a://b"})
    assert "unsubscribed meanwhile" in bridge.answer(left)["error"]["message"]
    for uri in (5, "", "x" * 2049):
        assert bridge.error("resources/subscribe", {"uri": uri})["code"] == -32602


def test_progress_and_logs_come_before_the_answer() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    asked = bridge.ask("tools/call", {"name": "dice__roll", "_meta": {"progressToken": "p"}})
    call = daemon.call()
    for done in (1, 1, 0, 2):
        payload = {"done": done, "total": 3, "message": "on it"}
        daemon.tell(call, type="ui_event", event="progress", payload=payload)
    daemon.tell(call, type="log", level="debug", message="not wanted")
    daemon.tell(call, type="log", level="warn", message="hot", fields={"logger": "fire"})
    daemon.tell(call, type="state_patch", patch={"a": 1})
    bridge.turn()
    first, second, log = bridge.heard()
    assert first["params"] == {"progressToken": "p", "progress": 1, "total": 3, "message": "on it"}
    assert second["params"]["progress"] == 2
    assert log["params"] == {"level": "warning", "logger": "fire", "data": "hot"}
    assert answered(bridge, asked, "4")["result"]["content"] == [{"type": "text", "text": "4"}]
    assert bridge.result("logging/setLevel", {"level": "error"}) == {}
    bridge.ask("tools/call", {"name": "dice__roll"})
    daemon.tell(daemon.call(), type="log", level="warn", message="hot")
    bridge.turn()
    assert bridge.heard() == []
    assert bridge.error("logging/setLevel", {"level": "loud"})["code"] == -32602


def test_a_call_is_cancelled_and_not_answered() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    bridge.say("tools/call", {"name": "dice__roll"}, id=1000)
    bridge.write(request(1000, "ping"))
    (twice,) = bridge.heard()
    assert ("id" in twice, twice["error"]["code"]) == (False, -32600)
    for other in ("1000", 1, True, None, [1]):
        bridge.say("notifications/cancelled", {"requestId": other})
    assert daemon.call()["tool"] == "dice"
    bridge.say("notifications/cancelled", {"requestId": 1000})
    assert daemon.asked[-1]["operation"] == "cancel"
    assert bridge.heard() == []
    assert bridge.server.all_answered


@pytest.mark.fault(47)
def test_a_cancel_of_true_is_not_one_of_the_request_1() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    bridge.say("tools/call", {"name": "dice__roll"}, id=1)
    bridge.say("notifications/cancelled", {"requestId": True})
    assert daemon.call()
    bridge.say("notifications/cancelled", {"requestId": 1})
    assert not [one for one in daemon.open.values() if one["operation"] == "invoke"]


def test_a_hosted_servers_answer_is_given_back_whole() -> None:
    bridge, daemon = bridge_to(offer("notes", tool("read"), said=None))
    daemon.offers = [offer("dice", tool("roll", outputSchema={"type": "object"}))]
    daemon.version = 2
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    assert daemon.call()["mcp"] is True
    whole = {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}
    assert answered(bridge, asked, whole, whole=True)["result"] == whole
    plain = bridge.ask("tools/call", {"name": "dice__roll"})
    told = answered(bridge, plain, {"a": 1})["result"]
    assert told == {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}


def test_failures_are_for_the_model_and_a_servers_own_error_for_the_client() -> None:
    bridge, _ = bridge_to(offer("dice", tool("roll")))
    details = {"origin": "host", "reason": "exited", "exit_code": 3, "stderr_tail": ["out of luck"]}
    error = {"code": "unreachable", "message": "it died", "details": details}
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    died = answered(bridge, asked, error=error)["result"]
    assert died["content"][0]["text"] == "it died\nout of luck"
    assert died["_meta"]["stdiod/error"]["details"]["exit_code"] == 3
    reported = {"origin": "module", "reported": {"code": -32000, "data": 5}}
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    own = answered(bridge, asked, error={"code": "x", "message": "mine", "details": reported})
    assert own["error"] == {"code": -32000, "message": "mine", "data": 5}


def test_what_is_not_there_is_named_with_what_is_near() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")), offer("notes", said=READABLE))
    wrong = bridge.error("tools/call", {"name": "dice__rol"})
    assert wrong["code"] == -32602
    assert "did you mean 'dice__roll'?" in wrong["message"]
    for params, words in (
        ({}, '"name" is missing, it must be a string'),
        ({"name": 5}, '"name" is 5, it must be a string'),
        ({"name": "dice__roll", "arguments": []}, '"arguments" is'),
    ):
        error = bridge.error("tools/call", params)
        assert (error["code"], error["message"].startswith(words)) == (-32602, True)
    assert bridge.error("prompts/get", {"name": "great"})["code"] == -32602
    for ref in (5, {"type": "ref/prompt", "name": "none"}, {"type": "ref/resource", "uri": "n"}):
        assert bridge.error("completion/complete", {"ref": ref})["code"] == -32602
    ref = {"type": "ref/prompt", "name": "greet"}
    daemon.offers = [offer("notes", said={**READABLE, "inputs": {"prompts/get": {}}})]
    daemon.version = 2
    bridge.result("prompts/list")
    assert bridge.error("completion/complete", {"ref": ref})["code"] == -32601
    for cursor in ("x", 5, [1], {"a": 1}):
        assert bridge.error("tools/list", {"cursor": cursor})["code"] == -32602
    assert bridge.error("resources/read", {"uri": "stdiod://results/none"})["code"] == -32602


def test_a_module_that_is_down_is_called_by_the_name_that_its_op_would_have() -> None:
    down = offer("dice", said=None, problem="dice is down", serves=False)
    bridge, daemon = bridge_to(down, offer("up", said=None, problem="unknown"))
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    assert (daemon.call()["tool"], daemon.call()["input"]["op"]) == ("dice", "roll")
    assert answered(bridge, asked, "4")["result"]["content"][0]["text"] == "4"
    assert bridge.error("tools/call", {"name": "up__roll"})["code"] == -32602
    listed = bridge.error("tools/list")
    assert "there is nothing to list: dice is down" in listed["message"]


def test_servers_that_may_have_more_are_asked_for_a_tool_that_is_not_listed() -> None:
    hosted = offer("notes", said={"inputs": {}, "mcp": {}})
    bridge, daemon = bridge_to(hosted, offer("dice", tool("roll")))
    bridge.error("tools/call", {"name": "notes__new"})
    asked = [one["input"] for one in daemon.asked if one["operation"] == "offers"][-1]
    assert asked["look_again"] == ["notes"]
    assert len(asked["look_again"]) <= LOOKED_AT


def test_a_look_for_more_tools_that_is_cancelled_is_taken_up_by_the_next_call() -> None:
    bridge, daemon = bridge_to(offer("notes", said={"inputs": {}, "mcp": {}}))
    bridge.result("tools/list")
    daemon.is_silent = True
    first, second = (bridge.ask("tools/call", {"name": "notes__new"}) for _ in range(2))
    bridge.say("notifications/cancelled", {"requestId": first})
    daemon.offers, daemon.version = [offer("notes", tool("new"))], 2
    (look,) = (one for one in daemon.open.values() if "look_again" in one["input"])
    daemon.serve(look)
    bridge.turn()
    assert answered(bridge, second, "4")["result"]["content"][0]["text"] == "4"


def test_ops_that_the_view_does_not_cover_are_not_listed() -> None:
    inputs: dict[str, Any] = {"get": {}, "set": {}, "resources/read": {}}
    said = {"inputs": inputs, "resources": READABLE["resources"]}
    bridge, _ = bridge_to(offer("kv", said=said, ops=["get"]), offer("agent", kind="agent"))
    assert [one["name"] for one in bridge.result("tools/list")["tools"]] == ["kv__get"]
    assert bridge.result("resources/list")["resources"] == []


def test_prompts_resources_and_completion_are_passed_on() -> None:
    bridge, daemon = bridge_to(offer("notes", said=READABLE), view=OWN)
    text = {"role": "user", "content": {"type": "text", "text": "hi"}}
    asked = bridge.ask("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
    assert daemon.call()["input"]["args"] == {"name": "greet", "arguments": {"who": "Ada"}}
    assert answered(bridge, asked, {"messages": [text]})["result"] == {"messages": [text]}
    ref = {"type": "ref/resource", "uri": "a://{x}/y"}
    params = {"ref": ref, "argument": {"name": "x", "value": "p"}}
    asked = bridge.ask("completion/complete", params)
    assert daemon.call()["input"]["args"] == params
    values = {"completion": {"values": ["park"]}}
    assert answered(bridge, asked, values)["result"] == values
    asked = bridge.ask("resources/read", {"uri": "a://7/y"})
    assert daemon.call()["input"]["args"] == {"uri": "a://7/y"}
    read = {"contents": [{"uri": "a://7/y", "text": "7"}]}
    assert answered(bridge, asked, read)["result"] == read
    asked = bridge.ask("resources/read", {"uri": "a://b"})
    missing = answered(bridge, asked, {"contents": []})["error"]
    assert (missing["code"], missing["data"]) == (-32602, {"uri": "a://b"})
    asked = bridge.ask("prompts/get", {"name": "greet"})
    assert answered(bridge, asked, 5)["error"]["code"] == -32603


def test_files_are_in_the_answer_or_linked_and_can_be_read() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("draw")))
    asked = bridge.ask("tools/call", {"name": "dice__draw"})
    call = daemon.call()
    for named in ("inside", "beside"):
        known = {"assetId": named, "kind": "image", "mediaType": "image/png", "path": "/x"}
        daemon.tell(call, type="asset", **known, registered={"id": f"a-{named}", "bytes": 3})
    block = {"type": "image", "mimeType": "image/png", "assetId": "inside"}
    daemon.done(call, {"content": [block]})
    bridge.turn()
    read = daemon.call("asset.content")
    assert read["input"] == {"asset": "a-inside"}
    told: dict[str, Any] = {"asset": "a-inside", "media_type": "image/png", "size": 3}
    daemon.tell(read, type="log", level="info", message="", fields=told)
    for data in (b"pn", b"g"):
        encoded = {"offset": 0, "data": base64.b64encode(data).decode()}
        daemon.tell(read, type="log", level="info", message="", fields=encoded)
    daemon.done(read, {})
    bridge.turn()
    image, link = bridge.answer(asked)["result"]["content"]
    assert image["data"] == base64.b64encode(b"png").decode()
    assert link["uri"] == "stdiod://assets/a-beside"
    asked = bridge.ask("resources/read", {"uri": link["uri"]})
    too_long = {"asset": "a-beside", "media_type": "image/png", "size": 17 << 20}
    daemon.tell(daemon.call("asset.content"), type="log", level="info", message="", fields=too_long)
    bridge.turn()
    assert "an answer takes 16777216" in bridge.answer(asked)["error"]["message"]


def test_a_subscription_that_is_cancelled_before_it_has_begun_is_given_up() -> None:
    said = {"inputs": {"resources/read": {}}, "resources": READABLE["resources"]}
    bridge, daemon = bridge_to(offer("notes", said=said))
    asked = bridge.ask("resources/subscribe", {"uri": "a://b"})
    assert daemon.call("resource.follow")
    bridge.say("notifications/cancelled", {"requestId": asked})
    assert not [one for one in daemon.open.values() if one["operation"] == "resource.follow"]
    bridge.ask("resources/subscribe", {"uri": "a://b"})
    assert daemon.call("resource.follow")


def test_a_call_that_is_cancelled_in_its_own_batch_leaves_nothing() -> None:
    bridge = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))))
    bridge.initialize("2025-03-26")
    cancel = {"method": "notifications/cancelled", "params": {"requestId": "c"}}
    call = request("c", "tools/call", {"name": "dice__roll"})
    bridge.write([call, {"jsonrpc": "2.0", **cancel}])
    assert bridge.server.all_answered
    assert not [one for one in daemon.open.values() if one["operation"] == "invoke"]
    bridge.say("ping", id="c")
    assert bridge.answer("c")["result"] == {}


def test_a_batch_is_for_the_revision_that_has_them() -> None:
    bridge = Bridge(ScriptedDaemon(offer("dice", tool("roll"))))
    bridge.initialize("2025-03-26")
    for one in (1000, 1001):
        bridge.frames.asked(one, "ping", None)
    bridge.write([request(1000, "ping"), request(1001, "ping")])
    assert [one["id"] for one in bridge.heard()] == [1000, 1001]
    other = Bridge(ScriptedDaemon())
    other.initialize()
    other.write([request(1, "ping")])
    assert other.heard()[0]["error"]["code"] == -32600


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[]", -32600),
        (b'{"id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (DEEP, -32600),
    ],
)
def test_what_is_no_message_is_answered_and_the_next_one_served(line: bytes, code: int) -> None:
    bridge = Bridge(ScriptedDaemon())
    bridge.initialize()
    bridge.server.receive_message(line)
    bridge.turn()
    assert bridge.heard()[0]["error"]["code"] == code
    assert bridge.result("ping") == {}


def test_open_requests_have_a_bound() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    for number in range(OPEN_REQUESTS):
        message = (
            b'{"jsonrpc":"2.0","id":"r%d","method":"tools/call","params":{"name":"dice__roll"}}'
        )
        bridge.server.receive_message(message % number)
    bridge.turn()
    assert len(daemon.open) >= OPEN_REQUESTS
    error = bridge.error("ping")
    assert error["message"].endswith("requests are open, wait for some")


def test_a_list_of_many_tools_is_laid_out_in_turns() -> None:
    tools = [tool(f"t{number}") for number in range(STEPS)]
    bridge, daemon = bridge_to()
    daemon.offers, daemon.version = [offer("many", *tools)], 2
    bridge.frames.asked("l", "tools/list", None)
    bridge.server.receive_message(b'{"jsonrpc":"2.0","id":"l","method":"tools/list"}')
    daemon.read()
    for event in daemon.client.receive_data(daemon.say()):
        bridge.server.receive_event(event)
    assert bridge.server.messages_to_send() == []
    assert bridge.server.deadline == float("-inf")
    bridge.turn()
    assert len(bridge.answer("l")["result"]["tools"]) == STEPS


def test_notifications_of_an_extension_of_the_only_module_are_passed_on() -> None:
    bridge, daemon = bridge_to(offer("notes", said={"inputs": {}, "mcp": {}}))
    (changes,) = (one for one in daemon.open.values() if one["input"].get("follow"))
    for module in ("notes", "other"):
        fields = {"module": module, "method": "notifications/x/y", "params": {"a": 1}}
        daemon.tell(changes, type="log", level="info", message="", fields=fields)
    bridge.frames.check = lambda line: None  # type: ignore[method-assign]
    bridge.turn()
    (told,) = bridge.heard()
    assert (told["method"], told["params"]) == ("notifications/x/y", {"a": 1})


@pytest.mark.fault(42)
def test_a_tool_that_comes_later_takes_no_name_and_says_so() -> None:
    bridge, daemon = bridge_to(offer("b", tool("read")), view={**OWN, "modules": ["*"]})
    assert [one["name"] for one in bridge.result("tools/list")["tools"]] == ["read"]
    daemon.offers, daemon.version = [offer("a", tool("read")), offer("b", tool("read"))], 2
    other, own = bridge.result("tools/list")["tools"]
    assert own == {"name": "read", "inputSchema": {"type": "object"}, "description": "read"}
    assert other["description"] == "read (The read of the module a; another one has that name.)"
    daemon.offers, daemon.version = [offer("a", tool("read"))], 3  # not even while it is away
    assert bridge.result("tools/list")["tools"] == [other]
    bridge.ask("tools/call", {"name": "read"})
    assert daemon.call()["tool"] == "b"


def test_servers_of_one_caller_share_what_is_known_of_the_lists() -> None:
    lists = KnownLists()
    first = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))), lists=lists)
    first.initialize()
    first.result("tools/list")
    other = ScriptedDaemon(offer("kv", tool("get")))
    other.run = daemon.run  # another connection to the same one
    second = Bridge(other, lists=lists)
    second.initialize()
    assert [one["name"] for one in second.result("tools/list")["tools"]] == ["dice__roll"]
    asked = [one["input"].get("known") for one in other.asked if one["operation"] == "offers"]
    assert asked.count(1) >= 2
    other.version = 2
    assert [one["name"] for one in second.result("tools/list")["tools"]] == ["kv__get"]
    assert first.result("prompts/list") == {"prompts": []}


def test_lists_are_of_one_caller() -> None:
    lists = KnownLists()
    first = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))), lists=lists)
    first.initialize()
    other = ScriptedDaemon(offer("kv", tool("get")), view=OWN)
    other.run = daemon.run
    second = Bridge(other, lists=lists)
    second.initialize()
    assert [one["name"] for one in second.result("tools/list")["tools"]] == ["get"]


@pytest.mark.fault(29)
def test_who_wants_the_lists_while_they_are_fetched_waits_for_these() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    bridge.result("tools/list")
    daemon.is_silent = True
    asked = [bridge.ask("tools/list") for _ in range(20)]
    (fetch,) = (one for one in daemon.open.values() if not one["input"].get("follow"))
    daemon.serve(fetch)
    bridge.turn()
    assert all(bridge.answer(one)["result"]["tools"] for one in asked)


def test_a_long_list_comes_in_pages() -> None:
    entry = {"description": "x" * (PAGE_BYTES // 2)}
    tools = [tool(f"t{number}", **entry) for number in range(3)]
    tools += [tool("long", description="x" * (2 * PAGE_BYTES)), tool("last")]
    bridge, _ = bridge_to(offer("m", *tools))
    pages: list[list[str]] = []
    params: dict[str, Any] = {}
    while not pages or params:
        page = bridge.result("tools/list", params)
        pages.append([one["name"] for one in page["tools"]])
        params = {"cursor": page["nextCursor"]} if "nextCursor" in page else {}
    assert pages == [["m__t0"], ["m__t1"], ["m__t2"], ["m__long"], ["m__last"]]


def test_modules_that_could_not_be_started_are_named_beside_the_tools() -> None:
    broken = offer("b", said=None, problem="b failed: no config", is_missing=True)
    bridge, _ = bridge_to(offer("dice", tool("roll")), broken)
    asked = bridge.ask("tools/list")
    (told,) = [one for one in bridge.heard() if one.get("id") != asked]
    assert told["params"]["data"] == "not listed: b failed: no config"
    bridge.result("logging/setLevel", {"level": "error"})
    bridge.result("tools/list")
    assert bridge.heard() == []


@pytest.mark.parametrize("meta", [{}, modern()])
def test_an_error_has_no_structured_content_in_the_older_era(meta: dict[str, Any]) -> None:
    bridge, _ = bridge_to(offer("dice", tool("roll", outputSchema={"type": "object"})))
    said = {"content": [], "structuredContent": {"a": 1}, "isError": True}
    details = {"origin": "module", "reason": "reported", "reported": said}
    asked = bridge.ask("tools/call", {"name": "dice__roll", "_meta": meta})
    error = {"code": "internal", "message": "no", "details": details}
    result = answered(bridge, asked, error=error)["result"]
    assert result["isError"] is True
    assert ("structuredContent" in result) == bool(meta)


def test_a_file_that_cannot_be_embedded_is_left_out_with_the_reason() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("draw")))
    asked = bridge.ask("tools/call", {"name": "dice__draw"})
    call = daemon.call()
    for named, size in (("large", 17 << 20), ("gone", 3)):
        known = {"assetId": named, "kind": "image", "mediaType": "image/png", "path": "/x"}
        daemon.tell(call, type="asset", **known, registered={"id": named, "bytes": size})
    names = ("none", "large", "gone")
    blocks = [{"type": "image", "mimeType": "image/png", "assetId": one} for one in names]
    daemon.done(call, {"content": blocks})
    bridge.turn()
    wrong = {"code": "bad_request", "message": "it has changed", "details": {}}
    daemon.done(daemon.call("asset.content"), error=wrong)
    bridge.turn()
    content = bridge.answer(asked)["result"]["content"]
    assert [one["data"] for one in content] == ["", "", ""]
    words = [one["_meta"]["stdiod/error"]["message"] for one in content]
    assert words[0] == "the file was not taken in"
    assert words[1].startswith("the files of an answer take at most")
    assert words[2] == "it has changed"


def test_a_line_that_is_too_long_is_answered() -> None:
    bridge = Bridge(ScriptedDaemon())
    bridge.server.receive_overlong(Overlong(100, b'{"jsonrpc":'))
    bridge.turn()
    error = bridge.heard()[0]["error"]
    assert (error["code"], "longer than 100 bytes" in error["message"]) == (-32700, True)


def test_two_modules_with_one_uri_are_both_there() -> None:
    twice = [offer(name, said=READABLE) for name in ("a", "b")]
    bridge, daemon = bridge_to(*twice, view={**OWN, "modules": ["*"]})
    listed = [one["uri"] for one in bridge.result("resources/list")["resources"]]
    assert listed == ["a://b", "stdiod://modules/b/a://b"]
    assert bridge.remarks[0].endswith("b: a://b, a://{x}/y (2)")
    asked = bridge.ask("resources/read", {"uri": listed[1]})
    assert (daemon.call()["tool"], daemon.call()["input"]["args"]) == ("b", {"uri": "a://b"})
    read = answered(bridge, asked, {"contents": [{"uri": "a://b", "text": "x"}]})["result"]
    assert read["contents"][0]["uri"] == listed[1]
    ref = {"type": "ref/resource", "uri": "stdiod://modules/b/a://{x}/y"}
    bridge.ask("completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}})
    assert daemon.call()["tool"] == "b"


def test_the_next_module_is_asked_for_a_resource_that_the_first_does_not_have() -> None:
    listing = {**READABLE, "resources": [], "resource_templates": [{"uriTemplate": "{+x}"}]}
    bridge, daemon = bridge_to(
        offer("a", said=listing),
        offer("b", said={**listing, "resource_templates": [{"uriTemplate": "z{+x}"}]}),
        view={**OWN, "modules": ["*"]},
    )
    asked = bridge.ask("resources/read", {"uri": "zz"})
    first = daemon.call()
    refusal = {"code": "x", "message": "not mine", "details": {"origin": "module"}}
    daemon.done(first, error=refusal)
    bridge.turn()
    assert daemon.call()["tool"] != first["tool"]
    error = answered(bridge, asked, error=refusal)["error"]
    assert error["message"].endswith(": not mine")


def test_what_cannot_be_read_of_the_daemon_is_one_request_s_failure() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    asked = bridge.ask("tools/call", {"name": "dice__roll", "_meta": {"progressToken": 1}})
    number = daemon.call()["requestId"].encode()
    event = b'{"requestId":"%s","type":"ui_event","event":"progress","payload":{"done":1e999}}\n'
    done = b'{"version":"0","requestId":"%s","type":"done","ok":true,"result":1e999}\n'
    for line in (event, done):
        for one in daemon.client.receive_data(line % number):
            bridge.server.receive_event(one)
    bridge.turn()
    assert bridge.answer(asked)["result"]["isError"] is True
    assert bridge.heard() == []
    assert bridge.result("ping") == {}


def test_changes_are_followed_again_by_one_who_was_too_slow() -> None:
    bridge, daemon = bridge_to(offer("dice", tool("roll")))
    bridge.result("tools/list")
    (changes,) = (one for one in daemon.open.values() if one["input"].get("follow"))
    daemon.offers, daemon.version = [offer("kv", tool("get"))], 2
    slow = {"code": "unreachable", "message": "slow", "details": {"reason": "slow_reader"}}
    daemon.done(changes, error=slow)
    bridge.turn()
    assert [one["method"] for one in bridge.heard()] == ["notifications/tools/list_changed"]
    (_,) = (one for one in daemon.open.values() if one["input"].get("follow"))


def test_one_who_may_not_follow_asks_each_time() -> None:
    daemon = ScriptedDaemon(offer("dice", tool("roll")))
    bridge = Bridge(daemon)
    bridge.initialize()
    (changes,) = (one for one in daemon.open.values() if one["input"].get("follow"))
    refusal = {"code": "forbidden", "message": "no", "details": {"reason": "scope"}}
    daemon.done(changes, error=refusal)
    bridge.turn()
    count = len(daemon.asked)
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    assert any(one["operation"] == "offers" for one in daemon.asked[count:])
    assert answered(bridge, asked, "4")["result"]


def test_an_error_of_the_only_server_that_was_asked_is_the_answer() -> None:
    bridge, _ = bridge_to(offer("notes", said=READABLE), view=OWN)
    own = {"code": -32002, "data": {"uri": "z"}}
    details = {"origin": "module", "reported": own}
    asked = bridge.ask("resources/read", {"uri": "a://b"})
    error = answered(bridge, asked, error={"code": "x", "message": "gone", "details": details})
    assert error["error"] == {"code": -32002, "message": "gone", "data": {"uri": "z"}}


@pytest.mark.fault(42)
def test_a_resource_stays_with_the_module_that_had_it() -> None:
    bridge, daemon = bridge_to(offer("b", said=READABLE), view={**OWN, "modules": ["*"]})
    bridge.result("resources/list")
    daemon.offers, daemon.version = [offer(name, said=READABLE) for name in ("a", "b")], 2
    listed = [one["uri"] for one in bridge.result("resources/list")["resources"]]
    assert sorted(listed) == ["a://b", "stdiod://modules/a/a://b"]
    bridge.ask("resources/read", {"uri": "a://b"})
    assert daemon.call()["tool"] == "b"


def test_a_name_that_is_not_listed_is_of_the_module_with_the_longest_name() -> None:
    down = [offer(name, said=None, problem="down", serves=False) for name in ("a", "a__b")]
    bridge, daemon = bridge_to(*down)
    bridge.ask("tools/call", {"name": "a__b__c"})
    assert (daemon.call()["tool"], daemon.call()["input"]["op"]) == ("a__b", "c")


def test_resources_that_are_followed_have_a_bound() -> None:
    bridge, _ = bridge_to(offer("notes", said=READABLE))
    uris = [f"a://{number}" for number in range(SUBSCRIPTIONS + 1)]
    wanted = {"notifications": {"resourceSubscriptions": uris}, "_meta": modern()}
    assert bridge.error("subscriptions/listen", wanted)["code"] == -32602
    for uri in uris[:-1]:
        bridge.ask("resources/subscribe", {"uri": uri})
    assert bridge.heard() == []
    assert "at most" in bridge.error("resources/subscribe", {"uri": uris[-1]})["message"]
