"""`stdiod dev`: what passes is shown, a change starts the module anew, and nothing is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from supervisor.cli.developing import OpCompleter, look
from supervisor.runtime.files.directory import read_descriptor
from tests.cli.conftest import Run
from tests.factories import GENEROUS_S

COLUMNS = 40
BOUND_S = 60
STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


def begun(run: Run, folder: Path) -> Path:
    assert run("new", "greeter", "--lang", "python", "--into", str(folder)).exit_code == 0
    return folder / "greeter"


def test_without_a_terminal_each_line_is_a_call(run: Run, tmp_path: Path) -> None:
    folder = begun(run, tmp_path)
    typed = 'greet name=Ada\n\ngreet {"name":"Bo"}\ngreet nam\ngreet nam=x\ngreet {"name"\n/ops\n'
    ended = run("dev", str(folder), input=typed)
    assert ended.exit_code == 0, ended.stderr
    lines = [line.partition(" ")[2] for line in ended.stdout.splitlines()]
    said = re.sub(r"\b(r\d+)-[0-9a-f]{6}\b", r"\1", "\n".join(lines))
    for words in (
        '> {"requestId":"r2","tool":"greeter","operation":"health","input":{}}',
        '< {"requestId": "r2", "status": "ok"}',
        '{"greeting":"hello Ada"}',
        '{"greeting":"hello Bo"}',
        '"nam" is neither key=value nor key:=json',
        "the args of greeter.greet are not valid: /name: is missing",
        "cannot be read: ",
        '= greet {"type":"object"',
    ):
        assert words in said, said
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [<>!=] ", one) for one in ended.stdout.splitlines())


def test_words_that_newcomers_guess_lead_to_those_that_there_are(run: Run, tmp_path: Path) -> None:
    folder = begun(run, tmp_path)
    for typed in ("help", "?", "quit", "restart", "/help"):
        said = run("dev", str(folder), input=f"{typed}\n").stdout
        assert "/ops lists them, /restart starts the module anew" in said
        assert "has no op" not in said
    said = run("dev", str(folder), input="/quit\ngreet name=Ada\n").stdout
    assert "hello Ada" not in said


def test_a_descriptor_that_is_bad_is_told(run: Run, tmp_path: Path) -> None:
    folder = begun(run, tmp_path)
    (folder / "module.json").write_text("{")
    ended = run("dev", str(folder), input="greet name=Ada\n")
    assert ended.exit_code == 0
    assert "module.json: " in ended.stdout
    assert "the module does not run; correct the descriptor first" in ended.stdout


class Terminal:
    """A terminal of 40 columns, without colours and UTF-8, and the command in it."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self._main, self._other = pty.openpty()
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._before = termios.tcgetattr(self._other)
        odd = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "NO_COLOR": "1"}
        quiet = {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "TMPDIR": str(temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.cli", "dev", str(folder)],
            stdin=self._other,
            stdout=self._other,
            stderr=self._other,
            env={**os.environ, **odd, **quiet},
        )
        self._shown = ""

    def until(self, words: str) -> str:
        """Read until that is shown; returns all that was shown since the last time."""
        deadline = time.monotonic() + BOUND_S
        while words not in self._shown:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._main], [], [], max(left, 0))
            assert ready, f"{words!r} was not shown in {BOUND_S} s; {self._shown}"
            self._shown += STEERING.sub("", os.read(self._main, 65536).decode())
        shown, _, self._shown = self._shown.partition(words)
        return shown

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def end(self) -> None:
        """Wait until it has ended, with status 0, and has left the terminal as it was."""
        assert self.process.wait(GENEROUS_S) == 0
        assert termios.tcgetattr(self._other) == self._before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)
        os.close(self._other)


@pytest.mark.parametrize("last", ["\x04", "\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_on_a_terminal_it_completes_remembers_and_leaves_nothing(
    run: Run, tmp_path: Path, last: str
) -> None:
    folder, temporary = begun(run, tmp_path), tmp_path / "tmp"
    temporary.mkdir()
    terminal = Terminal(folder, temporary)
    try:
        # What is typed between two prompts may be nobody's.
        terminal.until("-> ready")
        terminal.until("greeter>")
        pid = psutil.Process(terminal.process.pid).children(recursive=True)
        assert pid, "the module runs"
        terminal.type("gr\t")
        terminal.until("eet")
        terminal.type(" na\t")
        terminal.until("me=")
        terminal.type("Ada\r")
        terminal.until('{"greeting":"hello Ada"}')
        terminal.until("greeter>")
        source = folder / "main.py"
        text = source.read_text().replace("hello", "bye")
        source.write_text(text + 'sys.stderr.buffer.write("grün\\n".encode())\n')
        terminal.until("main.py has changed")
        terminal.until("-> ready")
        terminal.until("greeter>")
        terminal.type("\x1b[A\r")  # the line before
        terminal.until('{"greeting":"bye Ada"}')
        terminal.until("greeter>")
        terminal.type(last)
        terminal.until("-> down")
        terminal.end()
    finally:
        terminal.close()
    assert list(temporary.iterdir()) == []
    assert not [one for one in pid if one.is_running()]


def completed(typed: str) -> list[str]:
    inputs = {
        "roll": {"properties": {"dice": {"type": "string"}, "how": {"enum": ["up", "down", 3]}}},
        "reset": {},
    }
    found = OpCompleter(lambda: inputs).get_completions(Document(typed), CompleteEvent())
    return [one.text for one in found]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["roll", "reset", "/help", "/ops", "/quit", "/restart"]),
        ("ro", ["roll"]),
        ("/r", ["/restart"]),
        ("/q", ["/quit"]),
        ("roll ", ["dice=", "how="]),
        ("roll dice=d6 h", ["how="]),
        ("roll how=", ["how=up", "how=down"]),
        ("roll how=d", ["how=down"]),
        ("reset ", []),
        ("nothing ", []),
    ],
)
def test_ops_args_and_their_values_are_completed(typed: str, offered: list[str]) -> None:
    assert completed(typed) == offered


def test_sources_are_watched_and_what_is_built_from_them_is_not(run: Run, tmp_path: Path) -> None:
    ended = run("new", "built", "--lang", "c", "--into", str(tmp_path))
    assert ended.exit_code == 0
    folder = tmp_path / "built"
    (folder / "main").write_text("built")
    (folder / "more.c").write_text("")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "odd.c").write_text("")
    path = folder / "module.json"
    seen = look(path, read_descriptor(path))
    assert {Path(one).name for one in seen} == {"module.json", "main.c", "more.c"}
