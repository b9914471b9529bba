"""`stdiod invoke` on a terminal asks the person there what its call waits for."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.bounds import until
from tests.field.test_operators import STDIOD, stdiod
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.test_host_calls import caller, policy

CALLS = '{"calls": [{"call_id": "c1", "method": "log", "params": {"message": "x"}}]}'
PROMPT = b"[y/N]"


def invoke(daemon: Daemon, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """Begin a call on a terminal; returns its process and the terminal."""
    ours, theirs = pty.openpty()
    command = [*STDIOD, "--socket", str(daemon.socket), "invoke", "a", "calls", "--args", CALLS]
    process = subprocess.Popen(
        [*command, *options], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, words: bytes) -> bytes:
    shown = b""
    while words not in shown:
        shown += os.read(terminal, 4096)
    return shown


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [("y", True), ("YES", True), ("allow always", True), ("", False), ("n", False), ("?", False)],
)
def test_what_is_typed_is_the_answer(
    start_daemon: StartDaemon, tmp_path: Path, typed: str, allowed: bool
) -> None:
    daemon = start_daemon(caller("a"), options=policy(tmp_path, 'mode = "prompt"\n'))
    process, terminal = invoke(daemon)
    assert b"May a use log?" in read_until(terminal, PROMPT)
    os.write(terminal, typed.encode() + b"\n")
    out, _ = process.communicate()
    os.close(terminal)
    assert process.returncode == 0
    assert (b'"is_error": false' in out) is allowed
    assert daemon.op("approvals")["approvals"] == []


def test_another_person_may_be_first(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon(caller("a"), options=policy(tmp_path, 'mode = "prompt"\n'))
    process, terminal = invoke(daemon)
    read_until(terminal, PROMPT)
    [question] = daemon.op("approvals")["approvals"]
    assert stdiod(daemon, "approve", question["id"]).returncode == 0
    out, _ = process.communicate()
    os.close(terminal)
    assert b'"is_error": false' in out


def test_programs_are_not_asked(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon(caller("a"), options=policy(tmp_path, 'mode = "prompt"\n'))
    process, terminal = invoke(daemon, "--json")
    [question] = until(lambda: daemon.op("approvals")["approvals"], "a question")
    stdiod(daemon, "approve", question["id"])
    out, _ = process.communicate()
    os.close(terminal)
    assert PROMPT not in out
