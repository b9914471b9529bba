"""`stdiod help`, and the example that ends the help of each verb."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from supervisor.cli.command_line import VERBS, stdiod
from tests.cli.conftest import Run


def names() -> list[str]:
    found = []
    for name in VERBS:
        found.append(name)
        command = stdiod.get_command(click.Context(stdiod), name)
        if isinstance(command, click.Group):
            found += [f"{name} {inner}" for inner in command.commands]
    return found


@pytest.mark.parametrize("name", names())
def test_each_help_ends_with_an_example_that_can_be_typed(run: Run, name: str) -> None:
    ended = run(*name.split(), "--help", env={"COLUMNS": "40"})
    _, colon, examples = ended.stdout.rpartition("Example")
    commands = re.findall(r"^ +stdiod (.+)$", examples, re.MULTILINE)
    assert colon
    assert commands
    for command in commands:
        words = shlex.split(re.split(" [<>] ", command)[0])
        assert words[: len(name.split())] == name.split()
        group: click.Command = stdiod
        context = click.Context(stdiod, resilient_parsing=False)
        while isinstance(group, click.Group):
            _, found, words = group.resolve_command(context, words)
            assert found is not None
            group, context = found, click.Context(found, parent=context)
        group.make_parser(context).parse_args(words)


def test_help_of_a_verb_is_what_it_says_itself(run: Run) -> None:
    assert run("help", "status").stdout == run("status", "--help").stdout
    assert run("help", "session", "new").stdout == run("session", "new", "--help").stdout
    assert run("help").stdout == run("--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("statsu",), "did you mean 'status'?"),
        (("session", "knew"), "did you mean 'new'?"),
        (("status", "dice"), "'stdiod status' has no verbs of its own"),
    ],
)
def test_help_of_what_is_no_verb_says_so(run: Run, words: tuple[str, ...], said: str) -> None:
    ended = run("help", *words)
    assert ended.exit_code == 2
    assert said in ended.stderr


@pytest.mark.parametrize("name", names())
def test_no_line_of_a_help_is_wider_than_a_terminal_of_40_columns(run: Run, name: str) -> None:
    said = run(*name.split(), "--help", env={"COLUMNS": "40"}).stdout
    # What can be typed is not broken: examples, and the choices of an option.
    explained, _, _ = said.partition("Example")
    wide = [line for line in explained.splitlines() if len(line) > 40]
    assert all(line.startswith("  --") for line in wide)


def test_the_list_of_verbs_has_a_line_for_each_and_what_is_typed_every_day_first(run: Run) -> None:
    lines = run("--help", env={"COLUMNS": "80"}).stdout.splitlines()
    sections = [line for line in lines if line.endswith(":") and line[0] != " "]
    assert sections[:3] == ["Options:", "Common commands:", "Modules:"]
    for name, verb in VERBS.items():
        (line,) = [one for one in lines if one.split()[:1] == [name] and one.startswith("  ")]
        assert line.endswith(verb.summary)
    narrow = run("--help", env={"COLUMNS": "40"}).stdout
    assert max(map(len, narrow.splitlines())) <= 40
