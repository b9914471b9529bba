"""Arguments that nobody means are refused in words, before anything is asked of a daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ODD = os.fsdecode(b"\xff")


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", ODD),
        ("invoke", ODD, "roll"),
        ("invoke", "dice", ODD),
        ("invoke", "dice", "roll", "--session", ODD),
        ("invoke", "dice", "roll", "--args", f'{{"a":"{ODD}"}}'),
        ("invoke", "dice", "roll", f"dice={ODD}"),
        ("invoke", "dice", "roll", f"{ODD}=1"),
        ("health", ODD),
        ("describe", ODD),
        ("start", ODD),
        ("stop", ODD),
        ("restart", ODD),
        ("logs", ODD),
        ("wait", "dice", ODD),
        ("up", "/", "--name", ODD),
        (ODD,),
    ],
    ids=lambda arguments: ascii(" ".join(arguments)),
)
def test_what_is_not_utf_8_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert "UTF-8" in ended.stderr or "there is no verb" in ended.stderr


@pytest.mark.fault(33)
@pytest.mark.parametrize("arguments", [("run",), ("session",)])
def test_what_is_said_again_of_arguments_steers_no_terminal(
    run: Run, arguments: tuple[str, ...]
) -> None:
    ended = run(*arguments, "/\x1b[31m\x9b2J\u202e")
    assert ended.exit_code == 2
    assert "\\x1b[31m\\x9b2J\\u202e" in ended.stderr


def test_args_without_an_end_are_refused(run: Run) -> None:
    ended = run("invoke", "dice", "roll", "--args", "@/dev/zero")
    assert ended.exit_code == 2
    assert "/dev/zero: is not a regular file, and has more than 16 MiB" in ended.stderr


def test_args_of_more_than_16_mib_are_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "args.json"
    file.write_bytes(b" " * (16 << 20) + b"{")
    ended = run("invoke", "dice", "roll", "--args", f"@{file}")
    assert ended.exit_code == 2
    assert f"{file}: has more than 16 MiB" in ended.stderr


def test_args_of_16_mib_are_read(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "args.json"
    file.write_bytes(b"{}" + b" " * ((16 << 20) - 2))
    assert run("invoke", "dice", "roll", "--args", f"@{file}").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("version",), "did you mean '--version'?"),
        (("status", ""), "'[MODULE]': it is empty"),
        (("invoke", "dice", ""), "'OP': it is empty"),
        (("wait", "dice", ""), "'[MODULE]...': it is empty"),
        (("logs", "dice", "-n", "-3"), "'-3' is not a number of lines from 0 to 10000"),
        (("logs", "dice", "-n", "10001"), "'10001' is not a number of lines from 0 to 10000"),
        (("logs", "dice", "-n", "few"), "'few' is not a number of lines from 0 to 10000"),
        (("invoke", "dice", "roll", "{}"), "pass args as one JSON object with --args"),
        (("invoke", "dice", "roll", "--args", "{a:1}"), """--args '{"key": "value"}'"""),
        (("invoke", "dice", "roll", "--args", '{"a":'), """--args '{"key": "value"}'"""),
    ],
    ids=lambda value: ascii(value) if isinstance(value, tuple) else "",
)
def test_a_slip_is_answered_with_what_would_be_right(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert words in ended.stderr
