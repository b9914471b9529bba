"""`stdiod plan run`: what is asked of the daemon, in which order, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, Reply, log, not_ok, ok

PLAN = {"goal": "light the hall", "inputs": {"room": "hall"}, "more": [1]}


def asked(frame: Frame) -> str:
    op: str = frame["input"]["op"]
    return op if frame["tool"] == "supervisor" else f"{frame['tool']}.{op}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    return str(path)


def script(*last: Reply) -> Any:
    def answer(frame: Frame) -> list[Reply]:
        if frame["tool"] != "supervisor":
            return [log("at work"), *last]
        return [ok({"session_id": "s-1"})]

    return answer


def test_a_plan_has_a_session_that_ends_with_it(run: Run, serve: Serve, file: str) -> None:
    daemon = serve(script(ok({"lit": True})))
    result = run("plan", "run", file, "--with", "conductor")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"lit": True}
    assert "at work" in result.stderr
    assert [asked(one) for one in daemon.frames] == [
        "session.new",
        "conductor.execute",
        "session.end",
    ]
    new, invoked, end = (one["input"] for one in daemon.frames)
    assert new["args"] == {"plan": PLAN}
    assert invoked["args"] == {"plan": PLAN, "prompt": "light the hall"}
    assert invoked["session_id"] == end["args"]["session_id"] == "s-1"


def test_a_session_that_was_there_goes_on(run: Run, serve: Serve, file: str) -> None:
    daemon = serve(script(ok(1)))
    given = ("--session", "mine", "--op", "go", "--timeout", "9", "--json")
    result = run("plan", "run", file, "--with", "conductor", *given)
    assert result.exit_code == 0
    event, response = map(json.loads, result.stdout.splitlines())
    assert (event["message"], response["result"]) == ("at work", 1)
    [frame] = daemon.frames
    assert asked(frame) == "conductor.go"
    assert (frame["input"]["session_id"], frame["input"]["timeout_s"]) == ("mine", 9)


def test_the_session_ends_when_the_plan_fails_too(run: Run, serve: Serve, file: str) -> None:
    daemon = serve(script(not_ok("timeout", "too slow")))
    result = run("plan", "run", file, "--with", "conductor")
    assert (result.exit_code, "too slow" in result.stderr) == (1, True)
    assert asked(daemon.frames[-1]) == "session.end"


def test_a_session_that_cannot_begin_is_told(run: Run, serve: Serve, file: str) -> None:
    serve(lambda _: [not_ok("internal", "the disk is full", reason="storage")])
    result = run("plan", "run", file, "--with", "conductor")
    assert (result.exit_code, "the disk is full" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('{"goal": 1}', 1, ["/goal: ", "/inputs: is missing"]),
        ("{", 2, ["plan.json"]),
    ],
)
def test_what_is_no_plan_is_told_with_pointers(
    text: str, status: int, words: list[str], run: Run, file: str
) -> None:
    Path(file).write_text(text)
    result = run("plan", "run", file, "--with", "conductor")
    assert result.exit_code == status
    for one in words:
        assert one in result.stderr


def test_without_a_daemon_it_is_three(run: Run, file: str) -> None:
    assert run("plan", "run", file, "--with", "conductor").exit_code == 3


def test_a_plan_can_come_from_stdin(run: Run, serve: Serve) -> None:
    serve(script(ok(1)))
    assert run("plan", "run", "-", "--with", "c", input=json.dumps(PLAN)).exit_code == 0
