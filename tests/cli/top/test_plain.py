"""`stdiod top` for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok, serving
from tests.cli.top.test_terminal import Counting

FAST = ("--interval", "0.01")


def test_once_watches_for_an_interval_and_prints_a_table(run: Run, serve: Serve) -> None:
    serve(Counting("dice", "kv"))
    ended = run("top", "--once", *FAST)
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert lines[1] == "2 modules: 2 ready; 10.0 calls/s, 0 failures/s"
    assert lines[4].split()[:4] == ["dice", "ready", "5.00", "0"]
    assert "\x1b" not in ended.stdout


def test_once_as_json_is_one_line(run: Run, serve: Serve) -> None:
    serve(Counting())
    (line,) = run("top", "--once", "--json", *FAST).stdout.splitlines()
    document = json.loads(line)
    assert document["interval_s"] == 1.0
    (one,) = document["modules"]
    assert one["name"] == "dice"
    assert one["invocations_per_s"] == 5.0
    assert one["p50_ms"] == pytest.approx(0.064, rel=1 / 8)


def test_json_is_a_line_per_interval_and_waits_for_a_daemon_that_went_away(
    socket_path: Path,
) -> None:
    command = [sys.executable, "-m", "supervisor.cli", "top", "--json", *FAST]
    with (
        serving(socket_path, Counting()) as daemon,
        subprocess.Popen(
            [*command, "--socket", str(socket_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for _ in range(3):
                assert json.loads(process.stdout.readline())["invocations_per_s"] == 5.0
            daemon.close_after_reply = True
            assert b"the daemon closed the connection" in process.stderr.readline()
            daemon.close_after_reply = False
            while b"is back" not in process.stderr.readline():
                assert process.poll() is None
            assert json.loads(process.stdout.readline())["invocations_per_s"] == 5.0
        finally:
            process.kill()


@pytest.mark.parametrize("arguments", [["--once"], ["--json"], ["--once", "--json"]])
def test_without_a_daemon_it_is_3(run: Run, arguments: list[str]) -> None:
    ended = run("top", *arguments)
    assert ended.exit_code == 3
    assert "no daemon listens" in ended.stderr


def test_a_refusal_is_1(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("bad_request", "the args of status are not valid")])
    ended = run("top", "--once", *FAST)
    assert ended.exit_code == 1
    assert "the args of status are not valid" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--once prints a table, --json lines for programs"),
        (["--interval", "0"], "is not a number of seconds above 0"),
        (["--once", "--interval", "3601"], "--interval can be at most 3600 s"),
    ],
)
def test_what_cannot_be_is_a_usage_error(run: Run, arguments: list[str], words: str) -> None:
    ended = run("top", *arguments)
    assert ended.exit_code == 2
    assert words in ended.stderr
