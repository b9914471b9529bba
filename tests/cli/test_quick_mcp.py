"""The short way of `stdiod mcp`: taken where all is as usual, else left to the verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.version import VERSION
from tests.cli.conftest import Serve
from tests.cli.fake_daemon import Frame, Reply, not_ok, ok

PROGRAM = """
import sys
from supervisor.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
VIEW = {"name": "default", "modules": None, "prefix": True}


def accepted(frame: Frame) -> list[Reply]:
    view = {**VIEW, "name": frame["input"]["view"]}
    return [ok({"name": "root", "pid": 1, "directories": ["/modules"], "view": view})]


def is_short(*words: str, cwd: Path | None = None, **environment: str) -> bool:
    """Run `stdiod mcp` with no client, and return whether the verb was left out."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "mcp", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )
    modules = ended.stderr.splitlines()[-1:]
    assert modules, ended
    return "click" not in modules[0].split()


@pytest.mark.parametrize(
    ("words", "view"),
    [
        ([], "default"),
        (["/modules", "/modules/more"], "default"),
        (["--view", "home-1"], "home-1"),
        (["/modules", "--view=höhe"], "höhe"),
    ],
)
def test_a_daemon_that_lets_us_in_is_asked_for_the_view(
    words: list[str], view: str, serve: Serve, socket_path: Path
) -> None:
    daemon = serve(accepted)
    assert is_short(*words, STDIOD_SOCKET=str(socket_path))
    assert daemon.frames[0]["input"] == {"view": view}


@pytest.mark.parametrize("form", ["--socket {}", "--socket={}"])
def test_a_socket_that_is_named_comes_first(form: str, serve: Serve, socket_path: Path) -> None:
    serve(accepted)
    assert is_short(*form.format(socket_path).split(), STDIOD_SOCKET="/nowhere")


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--config", "stdiod.toml"], ["--"], ["--view"], ["--view="], ["--socket="]],
)
def test_other_words_are_left_to_the_verb(
    words: list[str], serve: Serve, socket_path: Path
) -> None:
    serve(accepted)
    assert not is_short(*words, STDIOD_SOCKET=str(socket_path))


def test_no_daemon_is_left_to_the_verb(socket_path: Path) -> None:
    assert not is_short(STDIOD_SOCKET=str(socket_path))


@pytest.mark.parametrize(
    "answer", [not_ok("bad_request", 'there is no view "x"'), b"HTTP/1.1 400\r\n\r\n", b""]
)
def test_whoever_does_not_let_us_in_is_left_to_the_verb(
    answer: Reply, serve: Serve, socket_path: Path
) -> None:
    daemon = serve(lambda _: [answer])
    daemon.close_after_reply = True
    assert not is_short("--view", "x", STDIOD_SOCKET=str(socket_path))
    assert len(daemon.frames) == 2, "the verb asks by itself"


@pytest.mark.parametrize(("version", "is_joined"), [(VERSION, True), ("0.0.1", False)])
def test_a_daemon_of_another_version_is_left_to_the_verb(
    version: str, is_joined: bool, serve: Serve, socket_path: Path
) -> None:
    serve(accepted)
    Path(f"{socket_path}.lock").write_text(f"1\n{version}\n", encoding="utf-8")
    assert is_short(STDIOD_SOCKET=str(socket_path)) is is_joined


def test_the_socket_is_the_users_own_or_left_to_the_verb(
    serve: Serve, socket_path: Path, tmp_path: Path
) -> None:
    serve(accepted)
    runtime, below = tmp_path / "run", tmp_path / "project" / "below"
    (runtime / "stdiod").mkdir(parents=True)
    below.mkdir(parents=True)
    runtime.chmod(0o700)
    (runtime / "stdiod" / "stdiod.sock").symlink_to(socket_path)
    named = {"STDIOD_SOCKET": "", "XDG_RUNTIME_DIR": str(runtime)}
    assert is_short(cwd=below, **named)
    (below.parent / "stdiod.toml").touch()
    assert not is_short(cwd=below, **named)
    (below.parent / "stdiod.toml").unlink()
    runtime.chmod(0o755)
    assert not is_short(cwd=below, **named)
