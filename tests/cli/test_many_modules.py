"""Verbs about several modules, or all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, log, module, not_ok, ok, status

STOPPED = module("kv", state="down", wanted="down", instances=[])
Replies = list[Frame | bytes] | None


def fleet(frame: Frame) -> Replies:
    """Answer for two modules, of which `bad` is none."""
    asked = frame["input"]
    if asked["op"] == "status":
        return [ok(status(module(), STOPPED))]
    name = asked["args"]["module"]
    if name == "bad":
        return [not_ok("bad_request", "there is no module 'bad'", reason="unknown_module")]
    return [ok(module(name))]


def asked(frames: list[Frame]) -> list[tuple[str, Any]]:
    return [(one["input"]["op"], one["input"]["args"].get("module")) for one in frames]


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_each_module_is_told_over_one_connection_once(run: Run, serve: Serve, verb: str) -> None:
    daemon = serve(fleet)
    ended = run(verb, "dice", "kv", "dice")
    assert ended.stdout == "dice is ready (pid 4711)\nkv is ready (pid 4711)\n"
    assert asked(daemon.frames) == [(verb, "dice"), (verb, "kv")]
    assert [one["requestId"] for one in daemon.frames] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("verb", "names"), [("start", ["dice", "kv"]), ("stop", ["dice", "kv"]), ("restart", ["dice"])]
)
def test_all_is_all_and_for_restart_all_that_are_to_be_up(
    run: Run, serve: Serve, verb: str, names: list[str]
) -> None:
    daemon = serve(fleet)
    assert run(verb, "--all").exit_code == 0
    assert asked(daemon.frames[1:]) == [(verb, name) for name in names]


def test_one_that_fails_is_told_and_the_others_are_done(run: Run, serve: Serve) -> None:
    serve(fleet)
    ended = run("stop", "bad", "kv")
    assert ended.exit_code == 1
    assert ended.stdout == "kv is ready (pid 4711)\n"
    assert ended.stderr.startswith("bad: there is no module 'bad'\n")


def test_with_json_each_answer_is_a_line(run: Run, serve: Serve) -> None:
    serve(fleet)
    ended = run("start", "bad", "kv", "--json")
    failed, started = map(json.loads, ended.stdout.splitlines())
    assert ended.exit_code == 1
    assert (failed["module"], failed["ok"], failed["error"]["code"]) == (
        "bad",
        False,
        "bad_request",
    )
    assert started == module("kv")


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "logs", "wait", "health", "describe"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "name a MODULE, or several, or give --all"), (("dice", "--all"), "not both")],
)
def test_whom_it_is_about_has_to_be_said(
    run: Run, serve: Serve, verb: str, arguments: tuple[str, ...], words: str
) -> None:
    serve(fleet)
    ended = run(verb, *arguments)
    assert ended.exit_code == 2
    assert words in ended.stderr


def test_wait_for_all_names_them(run: Run, serve: Serve) -> None:
    daemon = serve(
        lambda frame: (
            fleet(frame)
            if frame["input"]["op"] == "status"
            else [ok({"modules": {"dice": "ready", "kv": "ready"}})]
        )
    )
    assert run("wait", "--all").stdout == "2 modules are ready\n"
    assert daemon.frames[1]["input"]["args"]["modules"] == ["dice", "kv"]


def answers_itself(frame: Frame) -> Replies:
    if frame["tool"] == "supervisor":
        return fleet(frame)
    if frame["tool"] == "bad":
        return [not_ok("timeout", "bad gave no answer")]
    described = {"name": frame["tool"], "kind": "tool", "inputs": {}}
    return [ok(described if frame["operation"] == "describe" else {"status": "ok"})]


def test_several_are_asked_side_by_side_and_answer_in_the_order_of_their_names(
    run: Run, serve: Serve
) -> None:
    daemon = serve(answers_itself)
    ended = run("health", "kv", "bad", "dice")
    assert ended.exit_code == 1
    assert ended.stdout == "kv is well\ndice is well\n"
    assert ended.stderr.startswith("bad: bad gave no answer\n")
    assert [one["requestId"] for one in daemon.frames] == ["c1", "c2", "c3"]
    ended = run("describe", "kv", "dice")
    assert ended.exit_code == 0
    assert [one for one in ended.stdout.splitlines() if one.endswith(", tool")] == [
        "kv, tool",
        "dice, tool",
    ]


def test_all_that_are_to_be_up_are_asked_and_with_json_each_answer_has_its_name(
    run: Run, serve: Serve
) -> None:
    serve(answers_itself)
    ended = run("health", "--all", "--json")
    assert [json.loads(one) for one in ended.stdout.splitlines()] == [
        {"module": "dice", "ok": True, "result": {"status": "ok"}}
    ]


def line(name: str, ts: float, text: str) -> Frame:
    return log(text, ts=ts, instance=f"{name}#1", stream="stderr")


LAST = {"dice": [line("dice", 1.0, "a"), line("dice", 3.0, "c")], "kv": [line("kv", 2.0, "b")]}
COMING = {"dice": [line("dice", 3.0, "c"), line("dice", 4.0, "d")], "kv": []}


def logs(frame: Frame) -> Replies:
    args = frame["input"]["args"]
    if args.get("follow"):
        assert args["lines"] == 0
        return [*COMING[args["module"]]]
    return [*LAST[args["module"]], ok({})]


def test_the_last_lines_of_several_are_shown_by_time(run: Run, serve: Serve) -> None:
    serve(logs)
    lines = run("logs", "dice", "kv").stdout.splitlines()
    assert [one.split()[1:] for one in lines] == [
        ["dice#1", "stderr", "a"],
        ["kv#1", "stderr", "b"],
        ["dice#1", "stderr", "c"],
    ]


def test_what_came_while_the_last_lines_were_read_is_shown_once(run: Run, serve: Serve) -> None:
    daemon = serve(logs)
    daemon.close_after = 4
    ended = run("logs", "dice", "kv", "-f", "--json")
    assert [json.loads(one)["text"] for one in ended.stdout.splitlines()] == ["a", "b", "c", "d"]
    assert ended.exit_code == 3  # the daemon went away


@pytest.mark.parametrize(
    ("colours", "code"), [(True, "\x1b[36mdice#1\x1b[0m"), (False, " dice#1 ")]
)
def test_each_module_has_its_colour_unless_nobody_wants_one(
    run: Run, serve: Serve, colours: bool, code: str
) -> None:
    serve(logs)
    environment = {} if colours else {"NO_COLOR": "1"}
    ended = run("logs", "dice", "kv", color=True, env=environment)
    assert code in ended.stdout
    assert ("\x1b[33mkv#1\x1b[0m" in ended.stdout) is colours
