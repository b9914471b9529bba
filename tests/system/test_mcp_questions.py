"""What a server of MCP asks a person, answered by the commands that a person has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, descriptor
from tests.system.test_host_calls import policy

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests/kernel/mcp_server.py"


def stdiod(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside the daemon."""
    command = [sys.executable, "-P", "-m", "supervisor.cli", *words]
    return subprocess.run(
        [*command, "--socket", str(daemon.socket)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_person_sees_a_question_is_told_of_a_wrong_answer_and_gives_a_right_one(
    start_daemon: StartDaemon, era: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-I", "-S", str(SERVER), era]
    document: dict[str, Any] = descriptor(
        "server", command, protocol="mcp", supervision={"timeouts": PATIENT}
    )
    document["capabilities"] = ["user.ask", "roots.list"]
    daemon = start_daemon(document, options=policy(tmp_path))
    asked = daemon.client.send("server", "invoke", {"op": "ask", "args": {}})
    [question] = until(lambda: daemon.op("approvals")["approvals"], "a question")
    listed = stdiod(daemon, "approvals")
    assert "Who?" in listed.stdout
    assert question["id"] in listed.stdout
    wrong = stdiod(daemon, "approve", question["id"], "--set", "nmae=Ada")
    assert wrong.returncode == 1
    assert "nmae" in wrong.stderr
    assert stdiod(daemon, "approve", question["id"], "--set", "age=old").returncode == 1
    right = stdiod(daemon, "approve", question["id"], "--set", "name=Ada", "--set", "age=36")
    assert right.returncode == 0, right.stderr
    said = json.loads(daemon.client.answer(asked).result["content"][0]["text"])
    assert said["person"] == {"action": "accept", "content": {"name": "Ada", "age": 36}}
    assert stdiod(daemon, "approvals").stdout == ""
