"""`stdiod mcp`: it joins a daemon, or starts one, and carries bytes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.client import DaemonClient
from tests.bounds import WAIT_S
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok

STDIOD = [sys.executable, "-m", "supervisor.cli"]
DICE = Path(__file__).parents[2] / "modules" / "dice"


def message(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


HELLO = message(
    1,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "t", "version": "1"},
)


def test_without_a_daemon_and_a_directory_it_says_what_to_do(run: Run) -> None:
    ended = run("mcp")
    assert ended.exit_code == 3
    assert "mcp DIR` starts one for the modules in DIR" in ended.stderr


@pytest.mark.parametrize("place", ["in a file", "where a folder is"])
def test_a_place_where_no_socket_can_be_is_said(place: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "socket.starting").mkdir()
    socket = tmp_path / ("socket" if place == "where a folder is" else "file/socket")
    ended = run("mcp", str(tmp_path), "--socket", str(socket))
    assert ended.exit_code == 3
    assert f"no daemon can be started for {socket}: " in ended.stderr


def test_what_the_daemon_refuses_is_said(run: Run, serve: Serve) -> None:
    serve(lambda frame: [not_ok("bad_request", 'there is no view "x"')])
    ended = run("mcp", "--view", "x")
    assert (ended.exit_code, ended.stderr) == (1, 'stdiod: there is no view "x"\n')
    assert ended.stdout == ""


@pytest.fixture
def environment(socket_path: Path, tmp_path: Path) -> dict[str, str]:
    named = {"STDIOD_SOCKET": str(socket_path), "STDIOD_DATA_DIR": str(tmp_path / "data")}
    return {**os.environ, **named}


def test_many_start_one_daemon_that_stays_and_each_ends_with_its_client(
    environment: dict[str, str], socket_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "dice").symlink_to(DICE)
    entries = [
        subprocess.Popen(
            [*STDIOD, "mcp", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        call = {"name": "dice__roll", "arguments": {"dice": "d1"}}
        asked = HELLO + message(2, "tools/call", **call)
        begun = []
        for entry in entries:
            said, words = entry.communicate(asked, timeout=WAIT_S)
            begun += [words] if words else []
            answers = {one["id"]: one["result"] for one in map(json.loads, said.splitlines())}
            assert answers[1]["serverInfo"]["name"] == "stdiod"
            assert answers[2]["structuredContent"] == {"rolls": [1], "total": 1}
            assert entry.returncode == 0
        assert len(begun) == 1
        assert "which stays until `stdiod down`" in begun[0]
    finally:
        for entry in entries:
            entry.kill()
            entry.wait()
        with DaemonClient(socket_path) as client:
            pid = client.daemon_pid()
            ends = os.pidfd_open(pid)
            last = subprocess.Popen(
                [*STDIOD, "mcp"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert last.stdin is not None
            assert last.stdout is not None
            last.stdin.write(HELLO)
            last.stdin.flush()
            assert json.loads(last.stdout.readline())["id"] == 1
            assert client.known("shutdown").result == {"pid": pid}
        with last:
            assert last.stdout.read() == ""
            assert last.stderr is not None
            assert "the daemon has ended" in last.stderr.read()
        assert last.returncode == 3
        # It parts from its clients before it has closed its files.
        ended, _, _ = select.select([ends], [], [], WAIT_S)
        os.close(ends)
        assert ended, "the daemon has not ended"
