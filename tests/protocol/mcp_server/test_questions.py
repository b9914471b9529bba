"""A client is asked in the course of its request: in the older era, and with input required."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.mcp_server.request import COLLECT_S
from protocol.mcp_server.server import PARKED, PARKED_S
from tests.faces.mcp.clients import modern
from tests.protocol.mcp_server.back_to_back import Bridge, ScriptedDaemon, offer, tool

ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
ROOTS = {"roots": [{"uri": "file:///x"}]}
CALL = {"name": "dice__roll"}


class Asking(Bridge):
    """A bridge to a daemon that asks back."""

    def __init__(self) -> None:
        self.there = ScriptedDaemon(offer("dice", tool("roll"), tool("draw")))
        super().__init__(self.there)

    def call(self, can: Any = None, **more: Any) -> int:
        """Begin a call in the newer era."""
        meta = modern(**(ALL if can is None else can))
        return self.ask("tools/call", {**CALL, "_meta": meta, **more})

    def put(self, call_id: str, method: str, key: str = "k", **params: Any) -> None:
        """Ask the client, for the open call."""
        payload = {"call_id": call_id, "method": method, "params": params, "key": key}
        self.there.tell(self.there.call(), type="host_call", payload=payload)
        self.turn()

    def ask_name(self, call_id: str = "q1") -> None:
        self.put(call_id, "user.ask", "name", message="Who?", form=FORM)

    def results(self) -> list[Any]:
        """Return what the daemon was answered."""
        return [one["payload"] for one in self.there.asked if one.get("type") == "host_result"]

    def state(self, asked: int) -> str:
        """Return the state of a request that ends in questions."""
        self.pass_time(COLLECT_S)
        result = self.answer(asked)["result"]
        assert result["resultType"] == "input_required"
        state: str = result["requestState"]
        return state


def test_a_client_of_the_older_era_is_asked_by_requests() -> None:
    bridge = Asking()
    bridge.initialize(**ALL)
    asked = bridge.ask("tools/call", CALL)
    assert bridge.there.call()["asks"] == ["roots.list", "model.sample", "user.ask"]
    bridge.ask_name("q1")
    bridge.put("q2", "roots.list")
    bridge.put("q3", "model.sample", messages=[], maxTokens=9)
    questions = bridge.heard()
    assert questions[0]["params"] == {"mode": "form", "message": "Who?", "requestedSchema": FORM}
    answers: list[dict[str, Any]] = [
        {"result": ACCEPTED},
        {"result": ROOTS},
        {"error": {"code": -1, "message": "no model"}},
    ]
    for question, answer in zip(questions, answers, strict=True):
        bridge.write({"jsonrpc": "2.0", "id": question["id"], **answer})
        bridge.write({"jsonrpc": "2.0", "id": question["id"], **answer})  # once is enough
    first, second, third = bridge.results()
    assert (first["call_id"], first["output"]) == ("q1", ACCEPTED)
    assert second["output"] == ROOTS
    assert (third["is_error"], third["error"]["details"]["code"]) == (True, "-1")
    bridge.there.done(bridge.there.call(), "done")
    bridge.turn()
    assert bridge.answer(asked)["result"]["content"][0]["text"] == "done"
    assert bridge.heard() == []


def test_a_question_that_needs_no_answer_any_more_is_withdrawn() -> None:
    bridge = Asking()
    bridge.initialize(**ALL)
    for end in ("host_cancel", "done", "cancel"):
        asked = bridge.ask("tools/call", CALL)
        bridge.ask_name()
        (question,) = bridge.heard()
        call = bridge.there.call()
        if end == "host_cancel":
            bridge.there.tell(call, type="host_cancel", payload={"call_id": "q1"})
        elif end == "done":
            bridge.there.done(call, "x")
        else:
            bridge.say("notifications/cancelled", {"requestId": asked})
        bridge.turn()
        withdrawn = bridge.heard()[0]
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        bridge.write({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPTED})
        if end == "host_cancel":
            bridge.there.done(call, "x")
            bridge.turn()
            bridge.heard()
    assert bridge.results() == []


def test_a_client_is_asked_only_for_what_it_can() -> None:
    bridge = Asking()
    bridge.initialize(roots={})
    bridge.ask("tools/call", CALL)
    assert bridge.there.call()["asks"] == ["roots.list"]


@pytest.mark.parametrize("token", [None, "p"])
def test_a_client_that_cannot_ask_is_told_how_to_answer(token: Any) -> None:
    bridge = Asking()
    bridge.initialize()
    bridge.ask("tools/call", CALL if token is None else {**CALL, "_meta": {"progressToken": token}})
    question = {"id": "a7", "prompt": "May it?", "options": ["allow", "deny"]}
    more = {"event": "approval.request", "payload": question, "approval": "a7"}
    bridge.there.tell(bridge.there.call(), type="ui_event", **more)
    bridge.turn()
    (told,) = bridge.heard()
    words = told["params"]["data" if token is None else "message"]
    assert words.startswith("May it? (this client can't ask: type `stdiod approve a7`")


def test_questions_of_the_same_name_are_all_put_and_answered() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.put("q1", "roots.list", "k")
    bridge.put("q2", "roots.list", "k")
    bridge.pass_time(COLLECT_S)
    result = bridge.answer(asked)["result"]
    answers = dict.fromkeys(result["inputRequests"], ROOTS)
    bridge.call(requestState=result["requestState"], inputResponses=answers)
    assert sorted(one["call_id"] for one in bridge.results()) == ["q1", "q2"]


def test_a_question_ends_a_request_of_the_newer_era_until_it_is_answered() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.ask_name("q1")
    bridge.put("q2", "roots.list", "where")
    assert bridge.heard() == []
    bridge.pass_time(COLLECT_S)
    first = bridge.answer(asked)["result"]
    assert first["inputRequests"] == {
        "name": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM},
        },
        "where": {"method": "roots/list", "params": {}},
    }
    given = {"name": ACCEPTED, "where": {}}  # which answers nothing
    again = bridge.call(requestState=first["requestState"], inputResponses=given)
    assert [one["call_id"] for one in bridge.results()] == ["q1"]
    state = bridge.state(again)
    done = bridge.call(requestState=state, inputResponses={"where": ROOTS})
    assert bridge.results()[1]["output"] == ROOTS
    bridge.there.done(bridge.there.call(), "Ada")
    bridge.turn()
    result = bridge.answer(done)["result"]
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "Ada")
    assert len([one for one in bridge.there.asked if one.get("operation") == "invoke"]) == 1


def test_a_request_that_ends_while_its_client_is_away_is_answered_then() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.ask_name()
    state = bridge.state(asked)
    bridge.there.done(bridge.there.call(), "late")
    bridge.turn()
    assert bridge.heard() == []
    done = bridge.call(requestState=state)
    assert bridge.answer(done)["result"]["content"][0]["text"] == "late"


def test_answers_may_come_before_the_questions() -> None:
    bridge = Asking()
    bridge.call(inputResponses={"name": ACCEPTED, "other": ACCEPTED})
    bridge.ask_name()
    assert [one["output"] for one in bridge.results()] == [ACCEPTED]
    bridge.pass_time(COLLECT_S)
    assert bridge.heard() == []
    wrong = bridge.answer(bridge.call(inputResponses=5))
    assert wrong["error"]["code"] == -32602
    unknown = {"_meta": modern(**ALL), "inputResponses": {}}
    assert bridge.error("nope", unknown)["code"] == -32601


def test_a_state_is_good_once_for_the_same_request() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.ask_name()
    state = bridge.state(asked)
    for bad in (f"{state}x", "x", 5, state[:-1], "é"):
        assert bridge.answer(bridge.call(requestState=bad))["error"]["code"] == -32602
    other = {"name": "dice__draw", "_meta": modern(**ALL), "requestState": state}
    assert bridge.error("tools/call", other)["code"] == -32602
    different = bridge.call(requestState=state, arguments={"z": 1})
    assert bridge.answer(different)["error"]["code"] == -32602
    more = {"requestState": state, "inputResponses": {"name": ACCEPTED}}
    bridge.call(**more)
    assert bridge.answer(bridge.call(**more))["error"]["code"] == -32602


@pytest.mark.parametrize("long", ["x", "x" * 1000])
def test_a_client_comes_back_with_the_same_arguments_in_any_order(long: str) -> None:
    bridge = Asking()
    asked = bridge.call(arguments={"a": long, "b": {"c": 1, "d": 2}})
    bridge.ask_name()
    state = bridge.state(asked)
    for other in ({}, {"a": f"{long}y", "b": {"c": 1, "d": 2}}):
        refused = bridge.call(requestState=state, arguments=other)
        assert bridge.answer(refused)["error"]["code"] == -32602
    same = {"b": {"d": 2, "c": 1}, "a": long}
    again = bridge.call(requestState=state, arguments=same, inputResponses={"name": ACCEPTED})
    bridge.there.done(bridge.there.call(), "Ada")
    bridge.turn()
    assert bridge.answer(again)["result"]["content"][0]["text"] == "Ada"


def test_a_request_whose_client_does_not_come_back_is_given_up() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.ask_name()
    state = bridge.state(asked)
    bridge.pass_time(PARKED_S)
    assert bridge.there.asked[-1]["operation"] == "cancel"
    assert bridge.answer(bridge.call(requestState=state))["error"]["code"] == -32602


def test_parked_requests_have_a_bound_and_the_oldest_goes_first() -> None:
    bridge = Asking()
    states = []
    for _ in range(PARKED + 1):
        asked = bridge.call()
        call = [one for one in bridge.there.open.values() if one["operation"] == "invoke"][-1]
        payload = {"call_id": "q", "method": "roots.list", "params": {}, "key": "k"}
        bridge.there.tell(call, type="host_call", payload=payload)
        bridge.turn()
        states.append(bridge.state(asked))
    assert bridge.there.asked[-1]["operation"] == "cancel"
    assert bridge.answer(bridge.call(requestState=states[0]))["error"]["code"] == -32602
    bridge.heard()
    bridge.call(requestState=states[-1], inputResponses={"k": ROOTS})
    assert bridge.results()[-1]["output"] == ROOTS


def test_a_request_is_told_which_capability_it_would_have_needed() -> None:
    bridge = Asking()
    asked = bridge.call({})
    failed = {"code": "bad_request", "message": "no model", "details": {"origin": "host"}}
    bridge.there.done(bridge.there.call(), error=failed, needed=["model.sample"])
    bridge.turn()
    error = bridge.answer(asked)["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_a_client_that_left_has_cancelled_all_of_it() -> None:
    bridge = Asking()
    asked = bridge.call()
    bridge.ask_name()
    bridge.state(asked)
    bridge.call()
    bridge.server.client_left()
    bridge.turn()
    assert [one["operation"] for one in bridge.there.open.values()] == []
    assert bridge.heard() == []
