"""The exit status says which kind of thing happened, and stderr says it in words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.version import VERSION
from supervisor.cli import client
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok, ok, status

CLIENT_VERBS = [
    ("status",),
    ("wait", "dice"),
    ("invoke", "dice", "roll"),
    ("health", "dice"),
    ("describe", "dice"),
    ("start", "dice"),
    ("stop", "dice"),
    ("restart", "dice"),
    ("logs", "dice"),
    ("down",),
]


@pytest.mark.parametrize("verb", CLIENT_VERBS, ids=lambda verb: verb[0])
def test_without_a_daemon_the_status_is_3_and_the_message_names_the_socket_and_the_way_out(
    run: Run, socket_path: Path, verb: tuple[str, ...]
) -> None:
    ended = run(*verb)
    assert ended.exit_code == 3
    assert ended.stdout == ""
    assert f"no daemon listens on {socket_path}" in ended.stderr
    assert "up DIR` starts one" in ended.stderr


def test_a_socket_whose_daemon_is_gone_is_no_daemon(
    run: Run, serve: Serve, socket_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(socket_path))
    ended = run("status")
    assert ended.exit_code == 3
    assert "the one that did is gone" in ended.stderr


def test_a_file_that_is_no_socket_is_no_daemon(run: Run, socket_path: Path) -> None:
    socket_path.write_text("hello")
    ended = run("status")
    assert ended.exit_code == 3
    assert "which is not a socket" in ended.stderr


@pytest.mark.parametrize("verb", CLIENT_VERBS, ids=lambda verb: verb[0])
def test_a_daemon_that_dies_in_mid_request_is_no_daemon(
    run: Run, serve: Serve, verb: tuple[str, ...]
) -> None:
    serve(lambda frame: None)
    ended = run(*verb)
    assert ended.exit_code == 3
    assert "the daemon closed the connection before it answered" in ended.stderr


def test_something_that_speaks_another_language_is_no_daemon(run: Run, serve: Serve) -> None:
    serve(lambda frame: [b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    ended = run("status")
    assert ended.exit_code == 3
    assert "is not a stdiod daemon" in ended.stderr


@pytest.mark.parametrize("verb", CLIENT_VERBS[:-1], ids=lambda verb: verb[0])
def test_an_answer_that_is_not_ok_is_status_1(
    run: Run, serve: Serve, verb: tuple[str, ...]
) -> None:
    serve(lambda frame: [not_ok("bad_request", "no such thing", reason="unknown_module")])
    ended = run(*verb)
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert "no such thing" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("launch",),
        ("status", "--jsn"),
        ("wait",),
        ("wait", "dice", "--for", "godot"),
        ("wait", "dice", "--timeout", "0"),
        ("wait", "dice", "--timeout", "nan"),
        ("invoke", "dice"),
        ("invoke", "dice", "roll", "--timeout", "soon"),
        ("invoke", "dice", "roll", "--descriptor", "/no/such/file"),
        ("logs", "dice", "-n", "-1"),
        ("run",),
        ("run", "/no/such/directory"),
        ("up", "/no/such/directory"),
        ("validate", "/no/such/path"),
    ],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_meant_is_status_2(
    run: Run, arguments: tuple[str, ...]
) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert "Error: " in ended.stderr


def test_a_misspelt_verb_is_told_what_was_probably_meant(run: Run) -> None:
    assert "there is no verb 'invok'; did you mean 'invoke'?" in run("invok", "dice").stderr


@pytest.mark.parametrize("verb", ["run", "up"])
def test_an_address_that_is_none_or_not_safe_is_a_usage_error(
    run: Run, tmp_path: Path, verb: str
) -> None:
    for address, words in (("8080", "is none of off"), ("0.0.0.0:80", "--http-cert")):
        ended = run(verb, str(tmp_path), "--http", address)
        assert ended.exit_code == 2
        assert words in ended.stderr


def test_a_socket_path_that_no_socket_can_have_is_a_usage_error(run: Run) -> None:
    ended = run("status", "--socket", "/tmp/" + "x" * 103)
    assert ended.exit_code == 2
    assert "has 108 bytes, and a Unix socket's path may have 107" in ended.stderr


def test_the_socket_may_be_named_before_the_verb_and_after_it_and_the_nearer_one_counts(
    run: Run, serve: Serve, socket_path: Path
) -> None:
    serve(lambda frame: [ok(status())])
    there, nowhere = str(socket_path), str(socket_path.with_name("nowhere"))
    assert run("--socket", there, "status", env={"STDIOD_SOCKET": nowhere}).exit_code == 0
    assert run("status", "--socket", there, env={"STDIOD_SOCKET": nowhere}).exit_code == 0
    assert run("--socket", nowhere, "status", "--socket", there).exit_code == 0
    assert run("--socket", there, "status", "--socket", nowhere).exit_code == 3


def test_a_bug_is_a_sentence_and_no_traceback(run: Run, serve: Serve) -> None:
    serve(lambda frame: [ok({"daemon": {}})])
    ended = run("status")
    assert ended.exit_code == 70
    assert ended.stderr.startswith("stdiod: this is a bug in stdiod: KeyError")
    assert "Traceback" not in ended.output


def test_ctrl_c_is_status_130_and_closes_the_connection(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve(lambda frame: [{"type": "log", "level": "info", "message": "at work"}])
    monkeypatch.setattr("supervisor.cli.event_text.EventPrinter.show", _interrupt)
    assert run("invoke", "dice", "roll").exit_code == 130
    assert daemon.cancelled.wait(60)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_reader_that_goes_away_ends_the_command_quietly(
    serve: Serve, socket_path: Path, tmp_path: Path
) -> None:
    serve(lambda frame: [ok(status())])
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", "status", "--socket", str(socket_path)],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert ended.returncode == 141
    assert ended.stderr == b""


@pytest.mark.parametrize(("version", "told"), [("9.9.9", 1), (VERSION, 0), ("", 0)])
def test_a_daemon_of_another_version_is_named_once_and_asked_all_the_same(
    run: Run, serve: Serve, socket_path: Path, version: str, told: int
) -> None:
    client.tell_other_version.cache_clear()
    socket_path.with_name("s.lock").write_text(f"4711\n{version}\n")
    serve(lambda frame: [ok({"status": "ok"})])
    both = [run("health", "dice") for _ in range(2)]
    assert [one.exit_code for one in both] == [0, 0]
    assert "".join(one.stderr for one in both).count("the daemon is 9.9.9") == told


def test_nobody_waits_for_a_pipe_in_the_place_of_the_lock_file(
    run: Run, serve: Serve, socket_path: Path
) -> None:
    client.tell_other_version.cache_clear()
    os.mkfifo(socket_path.with_name("s.lock"))
    serve(lambda frame: [ok({"status": "ok"})])
    said = run("health", "dice")
    assert (said.exit_code, said.stderr) == (0, "")
