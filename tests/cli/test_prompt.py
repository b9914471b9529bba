"""`stdiod prompt`, and the roles of a session: what is asked of the daemon, and what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok, ok


def ui(name: str, **payload: Any) -> dict[str, Any]:
    return {"version": "0", "type": "ui_event", "event": name, "payload": payload}


COURSE = [
    ui("prompt.started", message_id="m-1"),
    ui("agent.thinking", thought="hm\n", level="info"),
    ui("tool.call_start", tool_name="dice.roll"),
    ui("message.chunk", content="four"),
    ui("message.chunk", content=" and two"),
]
PAYLOADS = [one["payload"] for one in COURSE]
ANSWER = {"message_id": "m-1", "content": "four and two", "result": None}


def test_an_answer_goes_to_stdout_and_its_course_to_stderr(run: Run, serve: Serve) -> None:
    daemon = serve(lambda _: [*COURSE, ok(ANSWER)])
    given = ("--priority", "high", "--reject", "--timeout", "9")
    result = run("prompt", "walk", "roll twice", *given)
    assert (result.exit_code, result.stdout) == (0, "four and two\n")
    assert "hm" in result.stderr
    assert "dice.roll is called" in result.stderr
    assert "started" not in result.stderr
    [frame] = daemon.frames
    assert frame["input"]["op"] == "session.prompt"
    assert frame["input"]["args"] == {
        "session_id": "walk",
        "content": "roll twice",
        "priority": "high",
        "conflict_strategy": "reject",
        "timeout_s": 9,
    }


def test_an_answer_without_chunks_is_shown_at_the_end(run: Run, serve: Serve) -> None:
    serve(lambda _: [ok(ANSWER)])
    assert run("prompt", "walk", "roll").stdout == "four and two\n"


def test_as_json_each_event_is_a_line_and_the_response_the_last(run: Run, serve: Serve) -> None:
    serve(lambda _: [*COURSE, ok(ANSWER)])
    lines = [json.loads(one) for one in run("prompt", "s", "x", "--json").stdout.splitlines()]
    assert [one["payload"] for one in lines[:-1]] == PAYLOADS
    assert lines[-1]["result"] == ANSWER


def test_a_prompt_that_fails_ends_with_1(run: Run, serve: Serve) -> None:
    serve(lambda _: [not_ok("bad_request", "it is busy", reason="session_busy")])
    result = run("prompt", "s", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it is busy" in result.stderr


@pytest.mark.parametrize("verb", [("new",), ("fork", "walk")])
def test_roles_are_named_when_a_session_begins(
    run: Run, serve: Serve, verb: tuple[str, ...]
) -> None:
    daemon = serve(lambda _: [ok({"session_id": "s-1"})])
    given = ("--orchestrator", "o", "--provider", "p", "--tool", "a", "--tool", "b")
    assert run("session", *verb, *given).exit_code == 0
    assert run("session", *verb).exit_code == 0
    named, unnamed = (one["input"]["args"] for one in daemon.frames)
    assert named["roles"] == {"orchestrator": "o", "provider": "p", "tools": ["a", "b"]}
    assert "roles" not in unnamed


def test_the_prompts_of_a_session_are_cancelled(run: Run, serve: Serve) -> None:
    daemon = serve(lambda _: [ok({"session_id": "walk", "cancelled": 2})])
    assert run("session", "cancel", "walk").stdout == "2 prompts cancelled\n"
    assert run("session", "cancel", "walk", "--force").stdout == "2 requests cancelled\n"
    plain, forced = (one["input"]["args"] for one in daemon.frames)
    assert plain == {"session_id": "walk"}
    assert forced == {"session_id": "walk", "force": True}
