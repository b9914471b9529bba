"""Ctrl-C ends the command quietly, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Serve

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
sys.argv = ["stdiod", "status"]
{entry}
"""
MOMENTS = ["click", "supervisor.cli.options", "supervisor.cli.verbs.status", "msgspec"]


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


def test_an_interrupt_while_a_verb_waits_is_130_and_closes_the_connection(
    serve: Serve, socket_path: Path
) -> None:
    daemon = serve(lambda frame: [{"type": "log", "level": "info", "message": "at work"}])
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", "invoke", "dice", "roll", "--socket", socket_path],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "at work" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "\n"
        assert process.wait(10) == 130
    assert daemon.cancelled.wait(10)
