"""What the MCP server makes of messages that come by exchanges, as over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.mcp_server.server import KEPT_BYTES, KEPT_S, ClientMessage
from tests.faces.mcp.clients import modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, request, tool

ACCEPT = {"accept": "application/json, text/event-stream"}
SCHEMA = {"properties": {"city": {"type": "string", "x-mcp-header": "City"}}}


def headers_of(method: str, name: str | None = None, **more: str) -> dict[str, str]:
    named = {} if name is None else {"mcp-name": name}
    return {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method, **named, **more}


class Posting(Bridge):
    """A bridge whose client posts."""

    def __init__(self, **options: Any) -> None:
        dice = offer("dice", tool("roll"), tool("go", inputSchema={"type": "object", **SCHEMA}))
        self.there = ScriptedDaemon(dice)
        super().__init__(self.there, **options)

    def post(self, message: Any, headers: dict[str, str] | None = None) -> object:
        """Post a message of the newer era, or with the headers given; returns the exchange."""
        exchange = object()
        params = message.get("params", {}) if isinstance(message, dict) else {}
        if headers is None:
            headers = headers_of(message["method"], params.get("name", params.get("uri")))
        if isinstance(message, dict) and "id" in message and "method" in message:
            self.frames.asked(message["id"], message["method"], params)
        self.server.receive_message(json.dumps(message).encode(), exchange, headers)
        self.turn()
        return exchange

    def of(self, exchange: object) -> list[ClientMessage]:
        """Return the messages of an exchange so far."""
        found = [one for one in self.messages if one.exchange is exchange]
        self.messages = [one for one in self.messages if one.exchange is not exchange]
        return found


def call(rpc_id: Any = 1, **more: Any) -> dict[str, Any]:
    params = {"name": "dice__roll", "_meta": {**modern(), **more.pop("meta", {})}, **more}
    return request(rpc_id, "tools/call", params)


def test_each_post_has_one_last_message_with_a_status() -> None:
    bridge = Posting()
    (listed,) = bridge.of(bridge.post(request(1, "tools/list", {"_meta": modern()})))
    assert (listed.is_last, listed.status) == (True, 200)
    (unknown,) = bridge.of(bridge.post(request(1, "nope", {"_meta": modern()})))
    assert (unknown.is_last, unknown.status) == (True, 404)
    (wrong,) = bridge.of(bridge.post(request(1, "prompts/get", {"_meta": modern()})))
    assert (wrong.is_last, wrong.status) == (True, 400)
    (told,) = bridge.of(bridge.post({"jsonrpc": "2.0", "method": "notifications/x"}))
    assert told == ClientMessage(b"", told.exchange, is_last=True, status=202)
    exchange = bridge.post(5, ACCEPT)
    assert [one.status for one in bridge.of(exchange)] == [400]


def test_ids_of_two_posts_may_be_the_same() -> None:
    bridge = Posting()
    first, second = bridge.post(call(1)), bridge.post(call(1))
    calls = [one for one in bridge.there.open.values() if one["operation"] == "invoke"]
    for number, one in enumerate(calls):
        bridge.there.done(one, str(number))
    bridge.turn()
    for exchange, text in ((first, "0"), (second, "1")):
        (answer,) = bridge.of(exchange)
        assert json.loads(answer.data)["result"]["content"][0]["text"] == text


def test_headers_have_to_say_what_the_body_says() -> None:
    bridge = Posting()
    for bad in (headers_of("tools/list", "dice__roll"), headers_of("tools/call"), ACCEPT):
        (refused,) = bridge.of(bridge.post(call(), bad))
        assert (refused.status, json.loads(refused.data)["error"]["code"]) == (400, -32020)
    spoken = {**ACCEPT, "mcp-protocol-version": "1999-01-01"}
    (other,) = bridge.of(bridge.post(request(1, "tools/list"), spoken))
    assert (other.status, json.loads(other.data)["error"]["code"]) == (400, -32022)
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    (odd,) = bridge.of(bridge.post(note, headers_of("notifications/y")))
    assert odd.status == 400


def test_args_that_headers_repeat_have_to_match_them() -> None:
    bridge = Posting()
    asked = {"name": "dice__go", "arguments": {"city": "Rome"}, "_meta": modern()}
    (refused,) = bridge.of(bridge.post(request(1, "tools/call", asked)))
    assert json.loads(refused.data)["error"]["code"] == -32020
    good = headers_of("tools/call", "dice__go", **{"mcp-param-city": "Rome"})
    bridge.post(request(1, "tools/call", asked), good)
    assert bridge.there.call()["input"]["args"] == {"city": "Rome"}


def test_a_client_that_hangs_up_has_cancelled_that_exchange() -> None:
    bridge = Posting()
    left, stays = bridge.post(call(1)), bridge.post(call(2))
    bridge.server.client_left(left)
    bridge.turn()
    assert bridge.there.asked[-1]["operation"] == "cancel"
    bridge.there.done(bridge.there.call(), "4")
    bridge.turn()
    assert bridge.of(left) == []
    assert len(bridge.of(stays)) == 1


def test_progress_comes_by_a_stream_if_the_client_takes_one() -> None:
    bridge = Posting()
    progress = {"event": "progress", "payload": {"done": 1}}
    streaming = bridge.post(call(meta={"progressToken": "p"}))
    bridge.there.tell(bridge.there.call(), type="ui_event", **progress)
    bridge.there.done(bridge.there.call(), "4")
    bridge.turn()
    told, answer = bridge.of(streaming)
    assert (told.is_last, answer.is_last) == (False, True)
    plain = {**headers_of("tools/call", "dice__roll"), "accept": "application/json"}
    alone = bridge.post(call(meta={"progressToken": "p"}), plain)
    bridge.there.tell(bridge.there.call(), type="ui_event", **progress)
    bridge.there.done(bridge.there.call(), "4")
    bridge.turn()
    assert len(bridge.of(alone)) == 1


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_long_result_after_progress_is_linked_to_and_read_for_a_while(has_schema: bool) -> None:
    bridge = Posting(most_bytes=4096)
    if has_schema:
        rolled = tool("roll", outputSchema={"type": "object"})
        bridge.there.offers, bridge.there.version = [offer("dice", rolled)], 2
        bridge.post(request(1, "tools/list", {"_meta": modern()}))
    exchange = bridge.post(call(meta={"progressToken": "p"}))
    payload = {"done": 1}
    bridge.there.tell(bridge.there.call(), type="ui_event", event="progress", payload=payload)
    bridge.there.done(bridge.there.call(), {"x": "y" * 5000})
    bridge.turn()
    *_, answer = bridge.of(exchange)
    result = json.loads(answer.data)["result"]
    assert (result.get("isError") is True) == has_schema
    (link,) = (one for one in result["content"] if one["type"] == "resource_link")
    read = request(2, "resources/read", {"uri": link["uri"], "_meta": modern()})
    (found,) = bridge.of(bridge.post(read))
    kept = json.loads(json.loads(found.data)["result"]["contents"][0]["text"])
    assert kept["structuredContent"] == {"x": "y" * 5000}
    bridge.pass_time(KEPT_S)
    (gone,) = bridge.of(bridge.post(read))
    assert json.loads(gone.data)["error"]["code"] == -32602


def test_long_results_have_a_bound_together() -> None:
    bridge = Posting()
    first = bridge.server.keep_result(bytes(KEPT_BYTES // 2))
    second = bridge.server.keep_result(bytes(KEPT_BYTES // 2 + 1))
    assert bridge.server.kept_result(first) is None
    assert bridge.server.kept_result(second) is not None
    bridge.turn()
    bridge.pass_time(KEPT_S)
    assert bridge.server.held_bytes == 0


def test_a_session_of_the_older_era_is_asked_on_the_stream_of_its_request() -> None:
    bridge = Posting()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}}
    hello["clientInfo"] = {"name": "t", "version": "1"}
    (greeting,) = bridge.of(bridge.post(request(0, "initialize", hello), ACCEPT))
    assert greeting.status == 200
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert [one.status for one in bridge.of(bridge.post(told, ACCEPT))] == [202]
    old = request(1, "tools/call", {"name": "dice__roll"})
    asking = bridge.post(old, ACCEPT)
    payload = {"call_id": "q1", "method": "roots.list", "params": {}, "key": "k"}
    bridge.there.tell(bridge.there.call(), type="host_call", payload=payload)
    bridge.turn()
    (question,) = bridge.of(asking)
    answer = {"jsonrpc": "2.0", "id": json.loads(question.data)["id"], "result": {"roots": []}}
    assert [one.status for one in bridge.of(bridge.post(answer, ACCEPT))] == [202]
    assert bridge.there.asked[-1]["payload"]["output"] == {"roots": []}
    twice = bridge.of(bridge.post(old, ACCEPT))
    assert (twice[0].status, json.loads(twice[0].data)["id"]) == (200, 1)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    bridge.post(cancel, ACCEPT)
    assert bridge.of(asking) == [ClientMessage(b"", asking, is_last=True)]
    alone = bridge.post(old, {"accept": "application/json"})
    bridge.there.tell(bridge.there.call(), type="host_call", payload=payload)
    bridge.turn()
    assert bridge.there.asked[-1]["payload"]["is_error"] is True
    assert bridge.of(alone) == []


def test_the_answers_to_a_batch_are_of_one_exchange() -> None:
    bridge = Posting()
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {}}
    hello["clientInfo"] = {"name": "t", "version": "1"}
    bridge.post(request(0, "initialize", hello), ACCEPT)
    for one in (1, 2):
        bridge.frames.asked(one, "ping", None)
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    answers = bridge.of(bridge.post([request(1, "ping"), note, request(2, "ping")], ACCEPT))
    assert [one.is_last for one in answers] == [False, True]
    plain = {"accept": "application/json"}
    (refused,) = bridge.of(bridge.post([request(1, "ping")], plain))
    assert refused.status == 400
    (nothing,) = bridge.of(bridge.post([note, note], ACCEPT))
    assert (nothing.data, nothing.status, nothing.is_last) == (b"", 202, True)


def test_each_subscription_knows_the_lists_that_it_began_with() -> None:
    bridge = Posting()
    params = {"notifications": {"toolsListChanged": True}, "_meta": modern()}
    streams = [bridge.post(request(one, "subscriptions/listen", params)) for one in (1, 1)]
    for one in streams:
        assert len(bridge.of(one)) == 1
    (changes,) = (one for one in bridge.there.open.values() if one["input"].get("follow"))
    bridge.there.offers, bridge.there.version = [offer("kv", tool("get"))], 2
    bridge.there.tell(changes, type="log", level="info", message="", fields={})
    bridge.turn()
    for one in streams:
        assert b"list_changed" in bridge.of(one)[0].data
    bridge.server.client_left(streams[0])
    bridge.there.offers, bridge.there.version = [offer("dice", tool("roll"))], 3
    bridge.there.tell(changes, type="log", level="info", message="", fields={})
    bridge.turn()
    assert bridge.of(streams[0]) == []
    assert len(bridge.of(streams[1])) == 1


def test_what_is_to_be_written_to_others_stays_when_one_hangs_up() -> None:
    bridge = Posting()
    left, stays = object(), object()
    for exchange in (left, stays):
        line = json.dumps(request(1, "nope", {"_meta": modern()})).encode()
        bridge.server.receive_message(line, exchange, headers_of("nope"))
    bridge.server.client_left(left)
    assert [one.exchange for one in bridge.server.messages_to_send()] == [stays]
