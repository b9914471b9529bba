"""Whatever a client writes, and a daemon says: each request has one answer, and none is a fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.mcp_server.daemon_link import DAEMON_WAIT_S
from protocol.mcp_server.methods import METHODS
from tests.faces.mcp.clients import META, modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, tool

NAMES: tuple[str, ...] = (
    "name",
    "uri",
    "arguments",
    "cursor",
    "level",
    "ref",
    "argument",
    "notifications",
)
NAMES += ("requestState", "inputResponses", "_meta", "protocolVersion", "capabilities", "requestId")
WORDS = ("dice__roll", "none__x", "greet", "a://b", "stdiod://assets/1", "stdiod://modules/notes/x")
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)
PARAMS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)
METHOD = st.sampled_from([*METHODS, "nope", "notifications/cancelled", "notifications/initialized"])
METAS = st.sampled_from([None, modern(), modern(elicitation={}), {f"{META}protocolVersion": 5}])
SAID: dict[str, Any] = {
    "inputs": {"prompts/get": {}, "resources/read": {}, "completion/complete": {}, "x": 5},
    "prompts": [{"name": "greet"}, 5],
    "resources": [{"uri": "a://b", "name": "b"}],
    "mcp": {},
}


@st.composite
def messages(draw: Any) -> dict[str, Any]:
    params, meta = draw(PARAMS), draw(METAS)
    if meta is not None:
        params["_meta"] = meta
    message = {"jsonrpc": "2.0", "method": draw(METHOD), "params": params}
    rpc_id = draw(st.none() | st.integers(0, 9) | st.sampled_from(["a", "stdiod-0"]))
    return message if rpc_id is None else {**message, "id": rpc_id}


EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["log", "ui_event", "asset", "error", "odd"])},
    optional={
        "event": st.sampled_from(["progress", "approval.request"]),
        "payload": st.fixed_dictionaries({}, optional={"done": JSON, "total": JSON}),
        "fields": JSON,
        "level": st.sampled_from(["info", "warn"]),
        "message": JSON,
    },
)


@given(st.lists(messages() | JSON, max_size=12), st.lists(EVENTS, max_size=3), JSON, st.booleans())
def test_odd_messages_are_answered_once_and_in_words(
    said: list[Any], events: list[dict[str, Any]], result: Any, greets: bool
) -> None:
    daemon = ScriptedDaemon(offer("dice", tool("roll")), offer("notes", said=SAID))
    bridge = Bridge(daemon)
    bridge.frames.check = lambda line: None  # type: ignore[method-assign]
    if greets:
        bridge.initialize()
    asked: list[Any] = []
    for one in said:
        bridge.server.receive_message(json.dumps(one).encode())
        bridge.turn()
        if isinstance(one, dict) and "method" in one and "id" in one:
            asked.append(one["id"])
        for call in [each for each in daemon.open.values() if each["operation"] == "invoke"]:
            for event in events:
                daemon.tell(call, **event)
            daemon.done(call, result)
        bridge.turn()
    bridge.lose()
    bridge.pass_time(2 * DAEMON_WAIT_S)
    heard = bridge.heard()
    answered = [one["id"] for one in heard if "id" in one and "method" not in one]
    for one in {json.dumps(each): each for each in answered}.values():
        assert answered.count(one) <= asked.count(one) + greets
    assert not [one for one in heard if "failed here" in one.get("error", {}).get("message", "")]
    assert bridge.server.all_answered
    bridge.connect(ScriptedDaemon())
    bridge.server.client_left()


def test_a_fault_beside_the_requests_ends_what_it_is_about_and_nothing_else() -> None:
    bridge = Bridge(
        daemon := ScriptedDaemon(offer("dice", tool("roll")), offer("notes", said=SAID))
    )
    bridge.initialize()
    asked = bridge.ask("resources/subscribe", {"uri": "a://b"})
    no_daemon_says_so = {"uri": 5}
    follow = daemon.call("resource.follow")
    bridge.may_fail = True
    daemon.tell(follow, type="log", level="info", message="odd", fields=no_daemon_says_so)
    bridge.turn()
    assert "failed here" in bridge.answer(asked)["error"]["message"]
    (fault,) = bridge.remarks
    assert "failed: TypeError" in fault
    called = bridge.ask("tools/call", {"name": "dice__roll"})
    daemon.done(daemon.call(), "4")
    bridge.turn()
    assert bridge.answer(called)["result"]["content"][0]["text"] == "4"


@pytest.mark.parametrize("odd", [{"error": {}}, {"error": None}, {"needed": 5}])
def test_an_answer_that_no_daemon_gives_fails_its_request_and_nothing_else(odd: Any) -> None:
    bridge = Bridge(daemon := ScriptedDaemon(offer("dice", tool("roll"))))
    bridge.initialize()
    asked = bridge.ask("tools/call", {"name": "dice__roll"})
    daemon.done(daemon.call(), "4", **odd)
    bridge.turn()
    result = bridge.answer(asked)["result"]
    assert result["isError"] is True
    assert "cannot be passed on" in result["content"][0]["text"]
    assert bridge.result("ping") == {}
