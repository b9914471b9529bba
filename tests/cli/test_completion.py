"""What a shell completes, and that it is quiet where there is nothing to complete with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from supervisor.cli.command_line import VERBS, stdiod
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, module, ok, status

OPS = {"names": ["roll", "reset"], "count": 2, "remembered": False}
SESSIONS = [{"session_id": "walk", "title": "A walk", "status": "idle"}]


def completed(*words: str) -> list[str]:
    """Return what the last word may become."""
    shell = ShellComplete(stdiod, {}, "stdiod", "_STDIOD_COMPLETE")
    return [one.value for one in shell.get_completions(list(words[:-1]), words[-1])]


def answer(frame: Frame) -> list[Frame | bytes]:
    asked = frame["input"]
    if asked["op"] == "session.list":
        return [ok({"sessions": SESSIONS})]
    if asked["op"] == "token.list":
        return [ok({"tokens": [{"name": "ada", "scopes": ["read"]}]})]
    if "module" in asked["args"]:
        return [ok(module(ops=OPS))]
    return [ok(status(module(), module("disk", state="failed")))]


@pytest.fixture(autouse=True)
def _socket(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STDIOD_SOCKET", str(socket_path))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("sta",), ["status", "start"]),
        (("session", "f"), ["fork"]),
        (("status", "--f"), ["--failing"]),
        (("status", "di"), ["dice", "disk"]),
        (("stop", "dice", ""), ["disk"]),
        (("invoke", "d"), ["dice", "disk"]),
        (("invoke", "dice", "r"), ["roll", "reset"]),
        (("invoke", "dice", "roll", "--session", ""), ["walk"]),
        (("session", "show", "w"), ["walk"]),
        (("prompt", ""), ["walk"]),
        (("token", "revoke", ""), ["ada"]),
        (("logs", "-f", "dice", "x"), []),
        (("completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_verbs_options_modules_ops_and_sessions_are_completed(
    serve: Serve, words: tuple[str, ...], found: list[str]
) -> None:
    serve(answer)
    assert completed(*words) == found


@pytest.mark.parametrize("words", [("status", ""), ("invoke", "dice", ""), ("session", "show", "")])
def test_without_a_daemon_nothing_is_offered_and_nothing_is_said(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert completed(*words) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("result", [None, {}, {"modules": [{}]}, {"modules": 3}])
def test_an_answer_of_another_form_offers_nothing(serve: Serve, result: object) -> None:
    serve(lambda frame: [ok(result)])
    assert completed("status", "") == []


@pytest.mark.parametrize("words", [("bogus", ""), ("session", "bogus", "")])
def test_a_wrong_verb_is_no_error_while_it_is_typed(words: tuple[str, ...]) -> None:
    completed(*words)


def test_the_socket_that_was_typed_is_asked(
    serve: Serve, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STDIOD_SOCKET", "/no/such/socket")
    serve(answer)
    assert completed("--socket", str(socket_path), "status", "dic") == ["dice"]
    assert completed("status", "--socket", str(socket_path), "dic") == ["dice"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(run: Run, shell: str) -> None:
    printed = run("completion", shell).stdout
    assert "_STDIOD_COMPLETE" in printed
    assert f"{shell}_complete" in printed


def test_bash_completes_with_it_and_no_verb_is_imported_for_the_list(
    tmp_path: Path, serve: Serve
) -> None:
    serve(answer)
    program = tmp_path / "stdiod"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m supervisor.cli "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(stdiod completion bash)"
        for words in 'stdiod re' 'stdiod stop di'; do
            COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _stdiod_completion stdiod
            echo "${COMPREPLY[@]}"
        done
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    verbs = " ".join(name for name in VERBS if name.startswith("re"))
    assert ended.stdout == f"{verbs}\ndice disk\n"
    assert ended.stderr == ""
