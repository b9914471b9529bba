"""Whatever the standard streams are, there is an answer or a sentence, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Serve
from tests.cli.fake_daemon import log, module, ok, status

RESPONSE = {"module": "dice", "op": "roll", "duration_ms": 12}


def shell(command: str, socket_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which `$stdiod` is the command."""
    return subprocess.run(
        ["bash", "-c", command.replace("stdiod", f"{sys.executable} -m supervisor.cli", 1)],
        env={"STDIOD_SOCKET": str(socket_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", ["--version", "status", "--help"])
def test_a_closed_stream_is_dev_null(
    serve: Serve, socket_path: Path, verb: str, closed: str
) -> None:
    serve(lambda frame: [ok(status(module()))])
    ended = shell(f"stdiod {verb} {closed}", socket_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize("verb", ["--version", "--help", "status", "status --json"])
def test_a_stdout_that_is_full_is_a_sentence_and_a_status_of_its_own(
    serve: Serve, socket_path: Path, verb: str
) -> None:
    serve(lambda frame: [ok(status(module()))])
    ended = shell(f"stdiod {verb} >/dev/full", socket_path)
    assert ended.stderr == "stdiod: stdout cannot be written: No space left on device\n"
    assert ended.returncode == 74


def test_a_reader_of_the_version_that_goes_away_is_told_as_everywhere(socket_path: Path) -> None:
    ended = shell("stdiod --version | :; exit ${PIPESTATUS[0]}", socket_path)
    assert ended.returncode in (0, 141)  # it may have written before the reader was gone
    assert ended.stderr == ""


@pytest.mark.parametrize("where", ["/dev/full", ">(exec true)"])
def test_a_stderr_that_fails_changes_nothing(serve: Serve, socket_path: Path, where: str) -> None:
    serve(lambda frame: [log("thinking"), ok({"total": 7}, summary="rolled", **RESPONSE)])
    ended = shell(f"stdiod invoke dice roll 2> {where}", socket_path)
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == {"total": 7}


def test_an_answer_that_is_no_stays_one_if_stderr_fails(serve: Serve, socket_path: Path) -> None:
    assert shell("stdiod status 2>/dev/full", socket_path).returncode == 3
    assert shell("stdiod status --jsn 2>/dev/full", socket_path).returncode == 2
    serve(lambda frame: [log("dice is ready", module="dice"), ok({"modules": {"dice": "ready"}})])
    ended = shell("stdiod wait dice 2>/dev/full", socket_path)
    assert (ended.returncode, ended.stdout) == (0, "1 module is ready\n")


def test_a_stdin_without_an_end_is_refused(socket_path: Path) -> None:
    ended = shell("stdiod invoke dice roll --args - </dev/zero", socket_path)
    assert ended.returncode == 2
    assert "stdin: is not a regular file, and has more than 16 MiB" in ended.stderr
