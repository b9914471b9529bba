"""The short way of `stdiod mcp`: taken where all is as usual, else left to the verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Success
from protocol.response import Response
from protocol.version import VERSION
from supervisor.cli import quick_mcp
from supervisor.cli.project import default_socket
from supervisor.faces.module_wire import done_line
from tests.cli.conftest import Serve
from tests.cli.fake_daemon import Frame, Reply, not_ok


def accepted(frame: Frame) -> list[Reply]:
    return [done_line(frame["requestId"], Response(Success({"view": "default"})))]


@pytest.fixture(autouse=True)
def relayed(monkeypatch: pytest.MonkeyPatch, socket_path: Path) -> list[str]:
    """The peers that were relayed to."""
    found: list[str] = []

    def relay(connection: object) -> bool:
        found.append(connection.getpeername())  # type: ignore[attr-defined]
        return True

    monkeypatch.setattr(quick_mcp, "relay", relay)
    monkeypatch.setenv("STDIOD_SOCKET", str(socket_path))
    return found


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ([], {}),
        (["modules", "/more"], {}),
        (["--view", "home-1"], {"view": "home-1"}),
        (["modules", "--view=home"], {"view": "home"}),
    ],
)
def test_a_daemon_that_lets_us_in_is_asked_once_and_relayed_to(
    words: list[str], args: Frame, serve: Serve, socket_path: Path, relayed: list[str]
) -> None:
    daemon = serve(accepted)
    assert quick_mcp.serve(words)
    assert relayed == [str(socket_path)]
    [frame] = daemon.frames
    assert (frame["tool"], frame["input"]) == ("supervisor", {"op": "mcp", "args": args})


def test_a_socket_that_is_named_comes_first(
    serve: Serve, socket_path: Path, relayed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(accepted)
    monkeypatch.setenv("STDIOD_SOCKET", "/nowhere")
    assert quick_mcp.serve(["--socket", str(socket_path)])
    assert quick_mcp.serve([f"--socket={socket_path}", "modules"])
    assert relayed == [str(socket_path)] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--config", "stdiod.toml"],
        ["--"],
        ["--view"],
        ["--view="],
        ["--view", 'a"b'],
        ["--view", "höhe"],
        ["--socket="],
    ],
)
def test_other_words_are_left_to_the_verb(
    words: list[str], serve: Serve, relayed: list[str]
) -> None:
    daemon = serve(accepted)
    assert not quick_mcp.serve(words)
    assert not daemon.frames
    assert not relayed


def test_no_daemon_is_left_to_the_verb(relayed: list[str]) -> None:
    assert not quick_mcp.serve(["modules"])
    assert not relayed


@pytest.mark.parametrize(
    "answer", [not_ok("bad_request", 'there is no view "x"'), b"HTTP/1.1 400\r\n\r\n", b"", None]
)
def test_whoever_does_not_let_us_in_is_left_to_the_verb(
    answer: Reply | None, serve: Serve, relayed: list[str]
) -> None:
    daemon = serve(lambda frame: None if answer is None else [answer])
    daemon.close_after_reply = True
    assert not quick_mcp.serve(["--view", "x"])
    assert not relayed


@pytest.mark.parametrize(("version", "is_joined"), [(VERSION, True), ("0.0.1", False)])
def test_a_daemon_of_another_version_is_left_to_the_verb(
    version: str, is_joined: bool, serve: Serve, socket_path: Path
) -> None:
    serve(accepted)
    Path(f"{socket_path}.lock").write_text(f"1\n{version}\n", encoding="utf-8")
    assert quick_mcp.serve([]) is is_joined


def test_the_socket_is_that_of_the_verbs_or_left_to_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert quick_mcp._read([]) == (str(default_socket()), "", [])
    monkeypatch.delenv("STDIOD_SOCKET")
    monkeypatch.chdir("/")
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert quick_mcp._read([]) == (str(default_socket()), "", [])
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert quick_mcp._read([]) == (str(default_socket()), "", [])
    (tmp_path / "stdiod.toml").touch()
    assert quick_mcp._read([]) is None
    assert quick_mcp._read(["--socket", "s"]) == ("s", "", [])
    (tmp_path / "stdiod.toml").unlink()
    tmp_path.chmod(0o755)
    assert quick_mcp._read([]) is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert quick_mcp._read([]) is None
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert quick_mcp._read([]) in (None, (str(default_socket()), "", []))
