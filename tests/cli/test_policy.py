"""`stdiod policy`: with a daemon and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok, ok


def explained(verdict: str, **others: Any) -> dict[str, Any]:
    return {
        "module": "m",
        "capability": "log",
        "verdict": verdict,
        "rule": "policy.toml:1: a rule",
        "source": "mode",
        "file": "policy.toml",
        "line": 1,
        "asked_for": ["log"],
        "remembered": None,
        **others,
    }


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (explained("allowed"), 0, "m may log"),
        (explained("denied"), 1, "m may not log"),
        (explained("ask"), 1, "if a person allows it"),
        (
            explained("ask", remembered={"allowed": True, "ts": 1.0, "same_program": True}),
            0,
            "remembered: allowed",
        ),
        (
            explained("ask", remembered={"allowed": True, "ts": 1.0, "same_program": False}),
            1,
            "about another program",
        ),
        (explained("denied", source="descriptor"), 1, "it lists: log"),
    ],
)
def test_a_daemon_is_asked_and_its_answer_is_the_exit_status(
    found: dict[str, Any], status: int, words: str, run: Run, serve: Serve
) -> None:
    daemon = serve(lambda _: [ok(found)])
    result = run("policy", "explain", "m", "log")
    assert result.exit_code == status
    assert words in result.stdout
    content = daemon.frames[0]["input"]
    assert content == {"op": "policy.explain", "args": {"module": "m", "capability": "log"}}
    assert json.loads(run("policy", "explain", "m", "log", "--json").stdout) == found


def test_what_the_daemon_refuses_is_told(run: Run, serve: Serve) -> None:
    serve(lambda _: [not_ok("bad_request", "there is no module 'm'", reason="unknown_module")])
    result = run("policy", "explain", "m", "log")
    assert result.exit_code == 1
    assert "no module 'm'" in result.stderr


def test_without_a_daemon_the_files_decide(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(
        json.dumps(
            {
                "name": "m",
                "kind": "tool",
                "capabilities": ["log"],
                "transport": {"type": "stdio", "command": ["true"]},
            }
        )
    )
    file = tmp_path / "policy.toml"
    file.write_text('allow = ["log"]\n')
    given = (str(tmp_path), "--policy", str(file))
    assert run("policy", "explain", "m", "log", *given).exit_code == 0
    assert run("policy", "explain", "m", "session.read", *given).exit_code == 1
    result = run("policy", "explain", "mm", "log", *given)
    assert (result.exit_code, "did you mean 'm'" in result.stderr) == (1, True)
    assert run("policy", "explain", "m", "log", str(tmp_path)).exit_code == 2
    assert run("policy", "explain", "m", "log", "--policy", str(file)).exit_code == 2


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('allow = ["log"]\n', 0, "is valid"),
        ('allow = ["log"]\n\ndeny = ["log"]\n', 1, "in line 3"),
        ('mode = "lax"\n', 1, ":1: mode"),
        ("[modules.nobody]\n", 1, "no module has this name"),
    ],
)
def test_a_file_is_checked(text: str, status: int, words: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    (tmp_path / "modules").mkdir()
    result = run("policy", "check", str(file), str(tmp_path / "modules"))
    assert result.exit_code == status
    assert words in result.stdout
    found = json.loads(
        run("policy", "check", str(file), str(tmp_path / "modules"), "--json").stdout
    )
    assert found["ok"] is (status == 0)


@pytest.mark.parametrize(("size_bytes", "status"), [(1 << 20, 0), ((1 << 20) + 1, 1)])
def test_a_file_may_have_a_mebibyte(size_bytes: int, status: int, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("#" * size_bytes)
    (tmp_path / "modules").mkdir()
    result = run("policy", "check", str(file), str(tmp_path / "modules"))
    assert result.exit_code == status, result.stdout
    assert ("larger than the 1048576 bytes" in result.stdout) is (status == 1)


def test_answers_are_forgotten(run: Run, serve: Serve) -> None:
    serve(lambda _: [ok({"forgotten": [{"capability": "log", "allowed": True}]})])
    result = run("policy", "forget", "m")
    assert result.exit_code == 0
    assert result.stdout == "log: was allowed\n1 answer forgotten\n"


def test_a_wrong_verb_is_told_with_the_right_one(run: Run) -> None:
    result = run("policy", "explian", "m", "log")
    assert (result.exit_code, "'explain'" in result.stderr) == (2, True)


def test_a_daemon_does_not_start_with_a_bad_policy(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('\nmode = "lax"\n')
    result = run("up", str(tmp_path), "--policy", str(file))
    assert result.exit_code == 2
    assert f"{file}:2: mode" in result.stderr
