"""What is left of clients that come and go: nothing that only the garbage collector finds."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator

import pytest

from protocol.mcp_server.daemon_link import DAEMON_WAIT_S
from protocol.mcp_server.request import COLLECT_S, ClientRequest
from protocol.mcp_server.server import PARKED_S
from tests.deep_size import deep_size
from tests.faces.mcp.clients import modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, tool

CALL = {"name": "dice__roll"}
READABLE = {"inputs": {"resources/read": {}}, "resources": [{"uri": "a://b", "name": "b"}]}


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_requests() -> int:
    """Return how many requests of clients are in memory."""
    return sum(isinstance(one, ClientRequest) for one in gc.get_objects())


def bridge_with_all() -> Bridge:
    """Return a bridge with something of everything open."""
    bridge = Bridge(
        daemon := ScriptedDaemon(offer("dice", tool("roll")), offer("notes", said=READABLE))
    )
    bridge.initialize(elicitation={})
    for method in ("tools/list", "resources/list"):
        bridge.result(method)
    bridge.ask("resources/subscribe", {"uri": "a://b"})
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}
    bridge.ask("subscriptions/listen", {"notifications": wanted, "_meta": modern()})
    for follow in [one for one in daemon.open.values() if one["operation"] == "resource.follow"]:
        daemon.tell(follow, type="log", level="info", message="following")
    for meta in ({}, modern(elicitation={})):
        bridge.ask("tools/call", {**CALL, "_meta": meta})
    form = {"type": "object", "properties": {}}
    for call in [one for one in daemon.open.values() if one["operation"] == "invoke"]:
        params = {"message": "Sure?", "form": form}
        payload = {"call_id": "q", "method": "user.ask", "params": params, "key": "k"}
        daemon.tell(call, type="host_call", payload=payload)
    bridge.turn()
    bridge.pass_time(1)
    bridge.server.keep_result(b"x")
    return bridge


@pytest.mark.fault(41)
@pytest.mark.parametrize("is_away", [False, True])
def test_a_server_whose_client_left_is_freed_at_once(is_away: bool) -> None:
    bridge = bridge_with_all()
    if is_away:
        bridge.lose()
        bridge.ask("tools/call", CALL)
        bridge.ask("tools/list")
    bridge.server.client_left()
    server = weakref.ref(bridge.server)
    del bridge
    assert server() is None


@pytest.mark.fault(41)
def test_a_request_that_is_over_is_freed_at_once() -> None:
    bridge = bridge_with_all()
    before = open_requests()
    for meta in ({}, modern()):
        cancelled, done = (bridge.ask("tools/call", {**CALL, "_meta": meta}) for _ in range(2))
        assert open_requests() == before + 2
        bridge.say("notifications/cancelled", {"requestId": cancelled})
        assert bridge.daemon is not None
        *_, call = (one for one in bridge.daemon.open.values() if one["operation"] == "invoke")
        bridge.daemon.done(call, "4")
        bridge.turn()
        assert bridge.answer(done)["result"]
        assert open_requests() == before


@pytest.mark.fault(38)
def test_calls_that_come_and_go_while_the_daemon_is_away_leave_nothing() -> None:
    bridge = bridge_with_all()
    bridge.lose()

    def call_and_cancel(times: int) -> int:
        for _ in range(times):
            asked = bridge.ask("tools/call", CALL)
            bridge.say("notifications/cancelled", {"requestId": asked})
        bridge.heard()
        return deep_size(bridge.server)

    before = call_and_cancel(500)
    assert call_and_cancel(1000) < 1.5 * before
    bridge.pass_time(DAEMON_WAIT_S)


@pytest.mark.fault(38)
def test_args_of_a_call_are_not_held_once_the_daemon_has_them() -> None:
    bridge = bridge_with_all()
    before = deep_size(bridge.server)
    meta = modern(elicitation={})
    for one in ({}, meta):
        bridge.ask("tools/call", {**CALL, "arguments": {"a": ["x" * 1_000_000]}, "_meta": one})
    bridge.turn()
    assert deep_size(bridge.server) < before + 100_000


@pytest.mark.fault(38)
def test_requests_that_were_parked_and_come_back_for_leave_nothing() -> None:
    bridge = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))))
    params = {**CALL, "_meta": modern(roots={})}

    def ask_and_come_back(times: int) -> int:
        for _ in range(times):
            asked = bridge.ask("tools/call", params)
            payload = {"call_id": "q", "method": "roots.list", "params": {}, "key": "k"}
            daemon.tell(daemon.call(), type="host_call", payload=payload)
            bridge.turn()
            bridge.pass_time(COLLECT_S)
            state = bridge.answer(asked)["result"]["requestState"]
            answers = {"inputResponses": {"k": {"roots": []}}, "requestState": state}
            again = bridge.ask("tools/call", {**params, **answers})
            daemon.done(daemon.call(), "4")
            bridge.turn()
            assert bridge.answer(again)["result"]
        return deep_size(bridge.server)

    before = ask_and_come_back(300)
    assert ask_and_come_back(600) < 1.5 * before


@pytest.mark.fault(38)
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_parked_answer_is_counted_until_its_client_has_it_or_it_is_given_up(
    comes_back: bool,
) -> None:
    bridge = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))))
    params = {**CALL, "_meta": modern(roots={})}
    asked = bridge.ask("tools/call", params)
    payload = {"call_id": "q", "method": "roots.list", "params": {}, "key": "k"}
    daemon.tell(daemon.call(), type="host_call", payload=payload)
    bridge.turn()
    bridge.pass_time(COLLECT_S)
    state = bridge.answer(asked)["result"]["requestState"]
    assert 0 < bridge.server.held_bytes < 1000
    daemon.done(daemon.call(), "y" * 5000)
    bridge.turn()
    assert bridge.server.held_bytes > 5000
    if comes_back:
        assert bridge.result("tools/call", {**params, "requestState": state})
    else:
        bridge.pass_time(PARKED_S)
    assert bridge.server.held_bytes == 0


def test_a_call_that_was_taken_and_not_written_is_asked_again_with_its_args() -> None:
    bridge = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))))
    bridge.initialize()
    bridge.result("tools/list")
    call = {"jsonrpc": "2.0", "id": 90, "method": "tools/call"}
    line = json.dumps({**call, "params": {**CALL, "arguments": {"x": 1}}}).encode()
    bridge.server.receive_message(line)
    taken = daemon.client.data_to_send()
    assert bridge.server.messages_to_send() == []
    daemon.client.unsent(len(taken))
    bridge.lose()
    bridge.connect(again := ScriptedDaemon(offer("dice", tool("roll"))))
    assert again.call()["input"]["args"] == {"x": 1}
