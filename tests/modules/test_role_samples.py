"""The samples that have a role in the agent loop, driven alone, by a host made of answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.modules.samples import Json, Running

CALL = {"id": "t1", "type": "function", "function": {"name": "dice.roll", "arguments": "{}"}}
ASKED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "t1", "content": "7"}


class Crew:
    """A host whose provider wants one tool and then comments on it."""

    def __init__(self, tool: Json) -> None:
        self.tool = tool
        self.kept: list[Json] = []
        self.emitted: list[str] = []
        self.provider_fails: Json | None = None

    def __call__(self, method: str, params: Json) -> Json:
        match method, params.get("op"):
            case "event.emit", _:
                self.emitted.append(params["event"])
                return {}
            case _, "add_message":
                self.kept.append(params["args"]["message"])
                return {"ok": True, "result": {"count": len(self.kept)}}
            case _, "get_messages_for_request":
                return {"ok": True, "result": {"messages": self.kept}}
            case _, "complete":
                if self.provider_fails is not None:
                    return {"error": self.provider_fails}
                last = self.kept[-1]
                calls = [CALL] if last["role"] == "user" else []
                said = "" if calls else f"it said {last['content']}"
                return {"ok": True, "result": {"content": said, "tool_calls": calls}}
            case _:
                return self.tool


def execute(tmp_path: Path, crew: Crew, **args: object) -> tuple[list[Json], Json]:
    with Running("orchestrator", tmp_path) as orchestrator:
        orchestrator.host = crew
        given = {"op": "execute", "args": {"prompt": "roll", **args}, "session_id": "s"}
        orchestrator.write(
            json.dumps({"requestId": "r", "operation": "invoke", "input": given}).encode() + b"\n"
        )
        return orchestrator.answer("r")


def test_the_loop_goes_on_until_the_provider_wants_no_more_tools(tmp_path: Path) -> None:
    note = {"role": "system", "content": "be brief", "ephemeral": False}
    crew = Crew({"ok": True, "result": {"total": 7}, "injected": [note]})
    events, done = execute(tmp_path, crew)
    assert done["result"]["tools"] == [{"name": "dice.roll", "ok": True}]
    assert done["result"]["turns"] == 2
    assert crew.kept == [
        {"role": "user", "content": "roll"},
        ASKED,
        {"role": "tool", "tool_call_id": "t1", "content": '{"total": 7}'},
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": "it said be brief"},
    ]
    assert crew.emitted == ["provider:request", "provider:response"] * 2
    assert [one for one in events if one["type"] == "ui_event"] == []  # the host tells of calls
    assert events[-1]["patch"] == {"orchestrator": done["result"]}


@pytest.mark.parametrize(
    ("code", "ours"), [("denied", "forbidden"), ("io", "unreachable"), ("timeout", "timeout")]
)
def test_a_tool_that_is_refused_or_fails_is_told_to_the_provider(
    tmp_path: Path, code: str, ours: str
) -> None:
    crew = Crew({"error": {"code": code, "message": "no way", "details": {"code": ours}}})
    _, done = execute(tmp_path, crew)
    assert done["ok"]
    assert done["result"]["content"] == f"it said error {ours}: no way"
    assert done["result"]["tools"] == [{"name": "dice.roll", "ok": False, "code": ours}]


def test_a_tool_that_was_not_offered_is_not_called(tmp_path: Path) -> None:
    _, done = execute(tmp_path, Crew({}), tools=["notes"])
    assert done["result"]["content"] == "it said error forbidden: dice was not offered"


def test_a_provider_that_dies_ends_the_loop_with_its_error(tmp_path: Path) -> None:
    crew = Crew({})
    details = {"code": "unreachable", "reason": "signaled"}
    crew.provider_fails = {"code": "io", "message": "oracle was killed", "details": details}
    _, done = execute(tmp_path, crew)
    assert done["error"] == {"code": "unreachable", "message": "oracle was killed"}


def test_a_loop_without_end_is_ended(tmp_path: Path) -> None:
    _, done = execute(tmp_path, Crew({"ok": True, "result": 1}), max_turns=1)
    assert done["error"]["code"] == "max_turns"


def test_a_cancelled_loop_says_so(tmp_path: Path) -> None:
    with Running("orchestrator", tmp_path) as orchestrator:
        given = {"op": "execute", "args": {"prompt": "hi"}}
        for line in ({"operation": "invoke", "input": given}, {"operation": "cancel"}):
            orchestrator.write(json.dumps({"requestId": "r", **line}).encode() + b"\n")
        lines = iter(orchestrator.read, None)
        done = next(one for one in lines if one.get("type") == "done")
        assert done["error"]["code"] == "cancelled"


def test_the_oracle_tells_what_the_tools_answered(tmp_path: Path) -> None:
    with Running("oracle", tmp_path) as oracle:
        prompt = {"role": "user", "content": 'one moment\nuse dice.roll {"dice": "2d6"}'}
        wanted = oracle.invoke("complete", {"messages": [prompt]})["result"]
        [call] = wanted["tool_calls"]
        assert call["function"] == {"name": "dice.roll", "arguments": '{"dice": "2d6"}'}
        said = {"role": "assistant", "content": wanted["content"], "tool_calls": [call]}
        told = {"role": "tool", "tool_call_id": call["id"], "content": "7"}
        result = oracle.invoke("complete", {"messages": [prompt, said, told]})["result"]
        assert result["content"] == "dice.roll answered 7"
        assert result["tool_calls"] == []


def test_the_oracle_hangs_when_told_to_and_can_be_cancelled(tmp_path: Path) -> None:
    with Running("oracle", tmp_path) as oracle:
        args = {"messages": [{"role": "user", "content": "well\nhang\nnever"}]}
        for line in (
            {"operation": "invoke", "input": {"op": "complete", "args": args}},
            {"operation": "cancel"},
        ):
            oracle.write(json.dumps({"requestId": "r", **line}).encode() + b"\n")
            if line["operation"] == "invoke":
                assert oracle.read()["payload"] == {"content": "well"}
        assert oracle.answer("r")[1]["error"]["code"] == "cancelled"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Running]:
    with Running("memory", tmp_path) as running:
        yield running


def without_session(memory: Running, op: str, **args: object) -> Json:
    answer = memory.ask("invoke", {"op": op, "args": args})
    result: Json = answer["result"]
    return result


LONG: list[Json] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "x" * 400},
    ASKED,
    TOLD,
    {"role": "user", "content": "y" * 40},
]


def test_compaction_shows_the_newest_that_fit_and_changes_nothing_kept(memory: Running) -> None:
    emitted: list[str] = []

    def host(method: str, params: Json) -> Json:
        assert method == "event.emit"
        emitted.append(params["event"])
        return {}

    memory.host = host
    without_session(memory, "set_messages", messages=LONG)
    view = without_session(memory, "get_messages_for_request", token_budget=90)
    assert view == {"messages": [LONG[0], *LONG[2:]], "left_out": 1}
    assert without_session(memory, "get_messages")["messages"] == LONG
    assert emitted == ["context:pre_compact", "context:post_compact"]
    assert without_session(memory, "get_messages_for_request")["left_out"] == 0
    assert without_session(memory, "get_messages", conversation="other")["messages"] == []


@pytest.mark.parametrize("budget", range(1, 250, 20))
def test_a_view_never_parts_a_call_from_its_answer(memory: Running, budget: int) -> None:
    orphans = [{"role": "tool", "tool_call_id": "lost", "content": "?"}]
    without_session(memory, "set_messages", messages=[*orphans, *LONG, ASKED | {"content": "2"}])
    shown = without_session(memory, "get_messages_for_request", token_budget=budget)["messages"]
    asked = [call["id"] for one in shown for call in one.get("tool_calls", ())]
    told = [one["tool_call_id"] for one in shown if one["role"] == "tool"]
    assert told in ([], ["t1"])
    assert asked == told


def test_the_messages_of_a_session_are_its_state(memory: Running) -> None:
    state: Json = {"memory": {"messages": {"000002": TOLD, "000001": ASKED}}, "other": 1}
    memory.host = lambda method, _: {"state": state, "revision": 2} if method else {}
    assert memory.invoke("get_messages", {})["result"]["messages"] == [ASKED, TOLD]
    given = {"op": "add_message", "args": {"message": LONG[0]}, "session_id": "s"}
    memory.write(
        json.dumps({"requestId": "r", "operation": "invoke", "input": given}).encode() + b"\n"
    )
    events, done = memory.answer("r")
    assert [one["patch"] for one in events] == [{"memory": {"messages": {"000003": LONG[0]}}}]
    assert done["result"] == {"count": 3}


def test_a_session_that_cannot_be_read_is_said(memory: Running) -> None:
    memory.host = lambda *_: {"error": {"code": "denied", "message": "not allowed"}}
    error = memory.invoke("get_messages", {})["error"]
    assert error["code"] == "unreachable"
    assert "session.read: not allowed" in error["message"]


@pytest.mark.parametrize(
    ("given", "action"),
    [
        ({"line": "ls"}, "continue"),
        ({"line": "rm -rf /"}, "deny"),
        ({"deep": [{"sql": "DROP  TABLE users"}]}, "deny"),
        ({"/etc/shadow": 1}, "deny"),
        ({"line": "sudo ls"}, "ask_user"),
        ("push --force", "ask_user"),
        (None, "continue"),
        (17, "continue"),
    ],
)
def test_the_doorkeeper_judges_arguments(tmp_path: Path, given: object, action: str) -> None:
    data = {"tool_name": "shell", "op": "run", "tool_input": given}
    with Running("doorkeeper", tmp_path) as doorkeeper:
        result = doorkeeper.invoke("on_event", {"event": "tool:pre", "data": data})["result"]
        assert result["action"] == action
        after = doorkeeper.invoke("on_event", {"event": "tool:post", "data": data})["result"]
        assert after == {"action": "continue"}


def test_the_doorkeeper_takes_rules_of_the_operator(tmp_path: Path) -> None:
    data = {"tool_name": "t", "op": "o", "tool_input": "a teapot"}
    rules = {"DOORKEEPER_ASK": "teapot", "DOORKEEPER_WAIT_S": "0.5"}
    with Running("doorkeeper", tmp_path, **rules) as doorkeeper:
        result = doorkeeper.invoke("on_event", {"event": "tool:pre", "data": data})["result"]
        assert result["approval_timeout"] == 0.5
        assert "a teapot" in result["approval_prompt"]
