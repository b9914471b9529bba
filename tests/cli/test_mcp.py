"""`stdiod mcp`: it joins a daemon, or starts one, and carries bytes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.background import alone
from supervisor.cli.exit_status import NoDaemonError
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


def test_another_start_that_does_not_end_is_not_waited_for_without_a_bound(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    with alone(socket), pytest.raises(NoDaemonError) as caught, alone(socket, most_s=0):
        raise AssertionError
    words = f"pid {os.getpid()} has been starting a daemon for {socket} for more than 0 s; end it"
    assert words in caught.value.message
    with alone(socket, most_s=0):
        pass


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
            begun += [words] if "started a daemon" in words else []
            answers = {one["id"]: one["result"] for one in map(json.loads, said.splitlines())}
            assert answers[1]["serverInfo"]["name"] == "stdiod"
            assert answers[2]["structuredContent"] == {"rolls": [1], "total": 1}
            assert entry.returncode == 0
        assert len(begun) == 1  # another may say that it joins that daemon
        assert "which stays until `stdiod down`" in begun[0]
    finally:
        for entry in entries:
            entry.kill()
            entry.wait()
        down = [*STDIOD, "down"]
        subprocess.run(down, env=environment, check=True, capture_output=True)


def test_at_a_terminal_it_says_who_is_meant_to_start_it(
    environment: dict[str, str], tmp_path: Path, socket_path: Path
) -> None:
    folder = tmp_path / "my modules"
    folder.mkdir()
    config = tmp_path / "stdiod.toml"
    config.write_text("[mcp.views.home]\n")
    options = ["--view", "home", "--config", str(config), "--socket", str(socket_path)]
    terminal, stdin = os.openpty()
    words = [*STDIOD, "mcp", *options, str(folder)]
    with subprocess.Popen(words, env=environment, stdin=stdin, stderr=subprocess.PIPE) as entry:
        os.close(stdin)
        assert entry.stderr is not None
        said = b""
        while b"claude mcp add" not in said:
            line = entry.stderr.readline()
            assert line, said
            said += line
        os.write(terminal, b"\x04")  # Ctrl-D
        assert entry.wait(WAIT_S) == 0
    os.close(terminal)
    text = said.decode()
    assert "an MCP client is meant to start this, and to speak on its stdin" in text
    snippet = json.loads(text[text.index("{") : text.rindex("}") + 1])
    server = snippet["mcpServers"]["stdiod"]
    assert Path(server["command"]).is_absolute()
    assert server["args"] == ["mcp", *options, str(folder)]
    typed = shlex.join([server["command"], *server["args"]])
    assert f"claude mcp add stdiod -- {typed}\n" in text
    subprocess.run([*STDIOD, "down"], env=environment, check=True, capture_output=True)


def test_at_a_terminal_without_a_daemon_it_says_that_too(environment: dict[str, str]) -> None:
    terminal, stdin = os.openpty()
    ended = subprocess.run(
        [*STDIOD, "mcp"], env=environment, stdin=stdin, stderr=subprocess.PIPE, check=False
    )
    os.close(stdin)
    os.close(terminal)
    assert ended.returncode == 3
    assert b"claude mcp add stdiod -- /" in ended.stderr
    assert b"mcp DIR` starts one for the modules in DIR" in ended.stderr


@pytest.mark.parametrize("directories", [[], [str(DICE)]])
def test_it_joins_the_daemon_of_the_data_whatever_the_runtime_folder_is(
    environment: dict[str, str], tmp_path: Path, socket_path: Path, directories: list[str]
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    up = [*STDIOD, "up", "--http", "sock", str(folder)]
    subprocess.run(up, env=environment, check=True, capture_output=True)
    other = {**environment, "XDG_RUNTIME_DIR": str(tmp_path), "STDIOD_SOCKET": ""}
    ended = subprocess.run(
        [*STDIOD, "mcp", *directories],
        env=other,
        input=HELLO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["id"] == 1
    assert f"joins the daemon of {tmp_path}/data, on {socket_path}" in ended.stderr
    named = subprocess.run(
        [*STDIOD, "mcp", "--socket", f"{socket_path}2"],
        env=other,
        capture_output=True,
        text=True,
        check=False,
    )
    assert named.returncode == 3
    assert f"listens on {socket_path}: " in named.stderr
    subprocess.run([*STDIOD, "down"], env=environment, check=True, capture_output=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_data_of_another_user_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "instances.lock").touch()
    os.chown(tmp_path / "data" / "instances.lock", 65534, -1)
    ended = run("mcp", str(DICE))
    assert ended.exit_code == 3
    assert f"{tmp_path}/data is in use by user 65534" in ended.stderr


@pytest.fixture
def project(tmp_path: Path, socket_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A trusted project whose daemon runs, and the environment of its user."""
    folder, runtime = tmp_path / "shop", socket_path.parent / "run"
    (folder / "modules").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    runtime.mkdir(mode=0o700)
    (folder / "stdiod.toml").write_text('directories = ["modules"]\n[mcp.views.work]\n')
    environment = {
        **os.environ,
        "STDIOD_SOCKET": "",
        "STDIOD_DATA_DIR": "",
        "XDG_RUNTIME_DIR": str(runtime),
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    for verb in ("trust", "up"):
        subprocess.run(
            [*STDIOD, verb], env=environment, cwd=folder, check=True, capture_output=True
        )
    yield folder, environment
    subprocess.run([*STDIOD, "down"], env=environment, cwd=folder, check=True, capture_output=True)


def greeted(
    environment: dict[str, str], cwd: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STDIOD, "mcp", *words],
        env=environment,
        cwd=cwd,
        input=HELLO,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_entry_for_a_project_leads_to_its_daemon_from_any_folder(
    project: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = project
    terminal, stdin = os.openpty()
    os.write(terminal, b"\x04")  # Ctrl-D
    said = subprocess.run(
        [*STDIOD, "mcp", "modules", "--view", "work"],
        env=environment,
        cwd=folder,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    os.close(stdin)
    os.close(terminal)
    snippet = json.loads(said[said.index("{") : said.rindex("}") + 1])
    _, *args = snippet["mcpServers"]["stdiod"].values()
    assert args == [["mcp", "--view", "work", "--project", str(folder), f"{folder}/modules"]]
    ended = greeted(environment, tmp_path / "other", *args[0][1:])
    assert (ended.returncode, ended.stderr, bool(ended.stdout)) == (0, "", True)


def test_a_directory_that_another_daemon_serves_is_joined_there(
    project: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = project
    ended = greeted(environment, tmp_path / "other", str(folder / "modules"))
    assert ended.returncode == 0
    assert "joins the daemon that serves this already, on " in ended.stderr


def test_a_directory_that_the_daemon_does_not_serve_is_named(
    project: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = project
    status = [*STDIOD, "status", "--json"]
    shown = subprocess.run(status, env=environment, cwd=folder, check=True, capture_output=True)
    daemon = json.loads(shown.stdout)["daemon"]
    words = f"joined the daemon pid {daemon['pid']}, which does not serve {tmp_path}/other;"
    for place in ([], ["--socket", daemon["socket"]]):
        ended = greeted(environment, folder, *place, "../other")
        assert ended.returncode == 0
        assert words in ended.stderr
        assert greeted(environment, folder, *place, "modules").stderr == ""
    up = subprocess.run(
        [*STDIOD, "up", "../other"],
        env=environment,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert up.returncode == 1
    assert "listens on" in up.stderr
    assert "it does not serve " in up.stderr


def test_a_view_that_is_newer_than_the_daemon_is_said_to_be(
    project: tuple[Path, dict[str, str]],
) -> None:
    folder, environment = project
    with (folder / "stdiod.toml").open("a") as file:
        file.write("[mcp.views.fs]\n")
    trust = [*STDIOD, "trust"]
    subprocess.run(trust, env=environment, cwd=folder, check=True, capture_output=True)
    ended = greeted(environment, folder, "--view", "fs")
    assert ended.returncode == 1
    assert "the configuration has fs: `stdiod down`, and the next start reads it" in ended.stderr


def test_a_folder_that_is_no_trusted_project_is_not_taken_for_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run("mcp", "--project", str(tmp_path)).exit_code == 2
    (tmp_path / "stdiod.toml").write_text('directories = ["modules"]\n')
    ended = run("mcp", "--project", str(tmp_path))
    assert ended.exit_code == 1
    assert "is not trusted" in ended.stderr
