"""The verbs that do one thing and say one sentence."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from protocol.errors import Failure, Reason
from supervisor.cli.failure_text import failure_text
from supervisor.cli.quantities import duration, size
from supervisor.cli.results import print_json
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import log, module, not_ok, ok

DESCRIPTION = {
    "name": "dice",
    "version": "1.0.0",
    "kind": "tool",
    "capabilities": ["fs.read"],
    "inputs": {
        "roll": {
            "description": "Rolls.",
            "properties": {"sides": {"type": "integer", "description": "6 if absent"}},
            "required": ["sides"],
        },
        "reset": {"additionalProperties": False},
    },
    "outputs": {},
}


def test_health_is_a_sentence(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok({"status": "ok"})])
    assert run("health", "dice").stdout == "dice is well\n"
    assert daemon.frames[0]["operation"] == "health"
    assert daemon.frames[0]["tool"] == "dice"


def test_describe_shows_each_op_with_what_it_takes(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(DESCRIPTION)])
    assert run("describe", "dice").stdout.splitlines() == [
        "dice 1.0.0, tool",
        "capabilities fs.read",
        "",
        "roll",
        "  Rolls.",
        "  sides  integer required  6 if absent",
        "",
        "reset",
        "  takes no args",
    ]


def test_describe_of_an_mcp_server_shows_its_tools_first_in_their_own_words(
    run: Run, serve: Serve
) -> None:
    serve(lambda frame: [ok(OF_SERVER)])
    assert run("describe", "files").stdout.splitlines() == [
        "files, tool",
        "",
        "list",
        "  Lists it.",
        "  takes no args",
        "",
        "odd",
        "  any args",
        "",
        "read",
        "  Reads it.",
        "  path  string required",
        "",
        "resources/list",
        "  cursor  string",
    ]


OF_SERVER: dict[str, Any] = {
    "name": "files",
    "kind": "tool",
    "inputs": {
        "resources/list": {"properties": {"cursor": {"type": "string"}}},
        "list": {"type": "object", "properties": {}},
        "odd": {"type": "object", "additionalProperties": True},
        "read": {"properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
    "mcp": {"era": "older"},
    "tools": [
        {"name": "list", "description": "Lists it."},
        {"name": "odd"},
        {"name": "read", "description": "Reads it.\n"},
    ],
}


def test_what_a_hook_denied_is_told_once_and_by_whom(run: Run, serve: Serve) -> None:
    words = "gate gate denied kv.put: not on a Sunday"
    more: dict[str, Any] = {"hook": "gate", "hook_reason": "not on a Sunday", "session_id": "walk"}
    serve(lambda frame: [not_ok("forbidden", words, reason="hook", **more)])
    lines = [line.split(maxsplit=1) for line in run("start", "kv").stderr.splitlines()[1:]]
    assert [line[0] for line in lines] == ["why", "hook", "session", "try"]
    assert lines[-1][1] == "The message names the hook, and says its reason if it gave one."


@pytest.mark.parametrize("verb", ["health", "describe", "start", "stop", "restart"])
def test_json_is_the_result_and_nothing_else(run: Run, serve: Serve, verb: str) -> None:
    serve(lambda frame: [ok({"any": "thing"})])
    ended = run(verb, "dice", "--json")
    assert json.loads(ended.stdout) == {"any": "thing"}
    assert ended.stderr == ""


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_start_and_restart_say_that_it_is_ready(run: Run, serve: Serve, verb: str) -> None:
    daemon = serve(lambda frame: [ok(module())])
    assert run(verb, "dice").stdout == "dice is ready (pid 4711)\n"
    assert daemon.frames[0]["input"] == {"op": verb, "args": {"module": "dice"}}


def test_stop_says_that_it_is_down(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok(module(state="down", instances=[]))])
    assert run("stop", "dice").stdout == "dice is down\n"


def settled(name: str, state: str, number: int) -> dict[str, Any]:
    return log(f"{name} is {state}", module=name, state=state, number=number, of=2)


def test_wait_shows_each_module_as_it_gets_there(run: Run, serve: Serve) -> None:
    verdicts = {"modules": {"dice": "ready", "kv": "ready"}}
    daemon = serve(
        lambda frame: [settled("kv", "ready", 1), settled("dice", "ready", 2), ok(verdicts)]
    )
    ended = run("wait", "dice", "kv", "dice")
    assert ended.stdout == "2 modules are ready\n"
    assert ended.stderr == "kv is ready\ndice is ready\n"
    assert daemon.frames[0]["input"]["args"] == {"modules": ["dice", "kv"], "for": "ready"}


def test_wait_goes_on_waiting_for_a_module_that_is_being_prepared(run: Run, serve: Serve) -> None:
    serve(lambda frame: [log("dice is preparing", "debug", module="dice")])
    ended = run("wait", "dice", "--timeout", "0.1")
    assert ended.exit_code == 1
    assert ended.stderr.endswith("dice is preparing\nstdiod: not ready after 0.1 s: dice\n")


def test_restart_can_have_it_prepared_anew(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [ok(module())])
    assert run("restart", "dice", "--prepare").exit_code == 0
    assert run("restart", "dice").exit_code == 0
    assert [one["input"]["args"] for one in daemon.frames] == [
        {"module": "dice", "prepare": True},
        {"module": "dice"},
    ]


def test_wait_with_json_prints_the_verdicts_alone(run: Run, serve: Serve) -> None:
    verdicts = {"modules": {"dice": "down"}}
    serve(lambda frame: [settled("dice", "down", 1), ok(verdicts)])
    ended = run("wait", "dice", "--for", "down", "--json")
    assert json.loads(ended.stdout) == verdicts
    assert ended.stderr == ""


def test_wait_gives_up_after_its_timeout_and_names_what_is_missing(run: Run, serve: Serve) -> None:
    serve(lambda frame: [settled("kv", "ready", 1)])
    ended = run("wait", "dice", "kv", "--timeout", "0.1")
    assert ended.exit_code == 1
    assert ended.stderr.endswith("stdiod: not ready after 0.1 s: dice\n")


def test_wait_with_json_gives_up_in_json(run: Run, serve: Serve) -> None:
    serve(lambda frame: [settled("kv", "ready", 1)])
    ended = run("wait", "dice", "kv", "--timeout", "0.1", "--json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["error"] == {
        "code": "timeout",
        "message": "not ready after 0.1 s: dice",
        "details": {"reason": "deadline", "modules": ["dice"]},
    }


def test_wait_names_the_module_that_cannot_get_there(run: Run, serve: Serve) -> None:
    failed = log("kv is failed", "warn", module="kv", state="failed", number=1, of=2)
    serve(lambda frame: [failed, not_ok("unreachable", "it is broken", reason="failed")])
    ended = run("wait", "dice", "kv")
    assert ended.exit_code == 1
    assert "kv: it is broken\n" in ended.stderr
    assert "`stdiod start kv`" in ended.stderr


LINES = [
    log("one", ts=1_700_000_000.25, instance="dice#1", stream="stderr"),
    log("two\x1b[2J", ts=1_700_000_001.0, instance="dice#1", stream="host"),
]


def test_logs_are_lines_of_time_instance_stream_and_text(run: Run, serve: Serve) -> None:
    daemon = serve(lambda frame: [*LINES, ok({"module": "dice"})])
    assert run("logs", "dice", "-n", "7").stdout.splitlines() == [
        "2023-11-14T22:13:20.250Z dice#1 stderr one",
        "2023-11-14T22:13:21.000Z dice#1 host two\\x1b[2J",
    ]
    assert daemon.frames[0]["input"]["args"] == {"module": "dice", "lines": 7, "follow": False}


def test_logs_with_json_are_objects_with_the_text_as_it_is(run: Run, serve: Serve) -> None:
    serve(lambda frame: [*LINES, ok({"module": "dice"})])
    assert json.loads(run("logs", "dice", "--json").stdout.splitlines()[1]) == {
        "ts": 1_700_000_001.0,
        "instance": "dice#1",
        "stream": "host",
        "text": "two\x1b[2J",
    }


def test_a_word_of_the_daemon_among_the_logs_goes_to_stderr(run: Run, serve: Serve) -> None:
    serve(lambda frame: [log("3 lines were left out", level="warn"), ok({"module": "dice"})])
    ended = run("logs", "dice", "-f")
    assert ended.stdout == ""
    assert ended.stderr == "stdiod: 3 lines were left out\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0ms"),
        (0.994, "994ms"),
        (0.9996, "1.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (3599.6, "1h00m"),
        (7500, "2h05m"),
        (273_600, "3d04h"),
    ],
)
def test_durations_are_written_in_two_units_at_the_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (9 << 20, "9.0 MiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes_are_written_in_binary_units(size_bytes: int, words: str) -> None:
    assert size(size_bytes) == words


@pytest.mark.parametrize(
    ("name", "typed"), [("dice", "dice"), ("a b", "'a b'"), ("$x", "'$x'"), ("-x", "-- -x")]
)
def test_a_command_to_copy_has_the_name_as_a_shell_takes_it(name: str, typed: str) -> None:
    error = {"code": "unreachable", "message": "", "details": {"reason": "not_ready"}}
    assert f"`stdiod status {typed}` says why." in failure_text(error, module=name)


def test_a_signal_that_the_daemon_sent_is_said_to_be_its_own() -> None:
    details = {"reason": "start_deadline", "signal": 15, "stopped_by_host": True}
    error = {"code": "timeout", "message": "dice is not ready", "details": details}
    page = click.unstyle(failure_text(error, module="dice", op="roll"))
    assert "process   killed by SIGTERM (signal 15, sent by stdiod)" in page
    del details["stopped_by_host"]
    page = click.unstyle(failure_text(error, module="dice", op="roll"))
    assert "process   killed by SIGTERM (signal 15)" in page


CLAIMS = {
    "reason": "memory_limit",
    "instance": "dice#1",
    "pid": 1,
    "limit": {"limit": "memory_bytes", "allowed": 1, "used": 2},
    "stderr_tail": ["\x1b[2J\x9b31m\u202egnp"],
}


def test_what_a_module_claims_is_shown_as_its_word_and_leads_to_no_advice() -> None:
    failure = Failure.reported("oom", "no memory\x1b[31m", CLAIMS)
    error = {"code": failure.code, "message": failure.message, "details": failure.details}
    page = click.unstyle(failure_text(error, module="dice", op="roll"))
    lines = page.splitlines()
    assert lines[:2] == [
        "dice.roll failed: no memory\\x1b[31m",
        "  why       reported by dice (oom)",
    ]
    (reported,) = lines[2:]
    assert reported.startswith('  reported  {"reason":"memory_limit","instance":"dice#1","pid":1')
    assert page.replace("\n", "").isprintable()


def test_what_a_module_told_before_its_bad_end_stands_beside_the_hosts_evidence() -> None:
    told = {"code": "disk_full", "message": "no room"}
    failure = Failure.because(Reason.EXITED, "dice#1 exited", exit_code=3, reported=told)
    error = {"code": failure.code, "message": failure.message, "details": failure.details}
    page = click.unstyle(failure_text(error, module="dice", op="roll"))
    assert "  why       its process exited (unreachable, exited)\n" in page
    assert '  reported  {"code":"disk_full","message":"no room"}\n' in page


@pytest.mark.parametrize("terminal", [True, False])
def test_json_for_a_terminal_has_what_could_steer_it_as_escapes(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("supervisor.cli.results.is_terminal", lambda _: terminal)
    print_json(CLAIMS)
    printed = capsysbinary.readouterr().out
    assert json.loads(printed) == CLAIMS
    assert ("\u202e".encode() in printed) is not terminal
    assert ("\x9b".encode() in printed) is not terminal
