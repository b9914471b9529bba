"""Ctrl-C ends the command quietly, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Serve
from tests.cli.fake_daemon import Frame, module, ok, status

ENTRIES = {
    "module": "import runpy; runpy.run_module('supervisor.cli', run_name='__main__')",
    "script": "from supervisor.cli.main import main; main()",
}
# Interrupt the process itself as it begins to import a module: no clock decides what is tested.
INTERRUPTING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.modules.pop({moment!r}, None)
sys.argv = ["stdiod", "status"]
{entry}
"""
MOMENTS = ["signal", "click", "supervisor.cli.options", "supervisor.cli.verbs.daemon", "msgspec"]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_while_python_imports_is_quiet(entry: str, moment: str) -> None:
    program = INTERRUPTING.format(moment=moment, entry=ENTRIES[entry])
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    # A shell tells 130 for either: the process ended so, or the signal ended it.
    assert ended.returncode in (130, -signal.SIGINT)
    assert ended.stderr.strip() == ""
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("invoke dice roll", "dice.roll was cancelled"),
        ("invoke dice roll --stdin", "dice.roll was cancelled, line 1 of stdin"),
        ("prompt walk hello", "the prompt of walk was cancelled"),
    ],
)
def test_an_interrupt_while_a_verb_waits_is_130_and_cancels_and_says_what(
    serve: Serve, socket_path: Path, verb: str, words: str
) -> None:
    daemon = serve(lambda frame: [{"type": "log", "level": "info", "message": "at work"}])
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", *verb.split(), "--socket", socket_path],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("{}\n")
        process.stdin.flush()
        assert "at work" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == f"\nstdiod: {words}\n"
        assert process.wait(60) == 130
    assert daemon.cancelled.wait(60)


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("stop dice kv", "dice, kv: the stop continues in the daemon"),
        ("reload", "the reload continues in the daemon"),
        ("down", "the daemon is still ending"),
    ],
)
def test_an_interrupt_of_what_cannot_be_cancelled_says_that_it_goes_on(
    serve: Serve, socket_path: Path, verb: str, words: str
) -> None:
    asked = threading.Event()

    def script(frame: Frame) -> list[Frame | bytes]:
        if frame["input"]["op"] == "status":
            return [ok(status(module()))]
        if frame["input"]["args"].get("module") != "dice":
            asked.set()
        return []

    serve(script)
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", *verb.split(), "--socket", socket_path],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said.endswith(f"\nstdiod: {words}\n")
    assert process.returncode == 130
