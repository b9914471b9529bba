"""Of `test_operating_tables.py`, what is bound to the structure."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from supervisor.cli import exit_status
from supervisor.cli.command_line import VERBS, stdiod
from supervisor.cli.top import view
from supervisor.cli.top.figures import ModuleFigures, Order
from supervisor.runtime.files import rotated_file
from tests.docs.markdown import DOCUMENTS, blocks, code, prose, read, rows
from tests.docs.test_operating_tables import DOCUMENT
from tests.docs.transcript import steps

EVERYWHERE = {"--socket", "--help"}


def test_every_exit_status_has_a_row() -> None:
    table = {int(str(code(row[0]))) for row in rows(DOCUMENT, "Exit status")}
    assert table == {
        value for name, value in vars(exit_status).items() if name.isupper() and type(value) is int
    }


def test_the_size_and_number_of_log_files_are_those_of_the_code() -> None:
    assert rotated_file.FILE_BYTES == 5 << 20
    assert rotated_file.FILES == 3
    assert "at 5 MiB as `MODULE.log.1`, then `.2`: at most three" in read(DOCUMENT)


def test_every_column_of_top_has_a_row_with_its_name_in_json() -> None:
    table = rows(DOCUMENT, "Column")
    shown = [column for row in table for column in re.findall(r"`([^`]+)`", row[0])]
    assert {"NAME", "STATE", *shown} == {*view.COLUMNS, view.TREND}
    named = {name for row in table for name in re.findall(r"`([^`]+)`", row[1])}
    assert {"name", "state", *named} == set(ModuleFigures.__struct_fields__)


def test_the_orders_of_top_are_listed() -> None:
    assert f"changes the order ({', '.join(Order)})" in " ".join(read(DOCUMENT).split())


def verb(*words: str) -> click.Command:
    """Return the command that a command line begins with: of a group, what its next word names."""
    command: click.Command = stdiod
    for word in words:
        if not isinstance(command, click.Group):
            break
        with click.Context(command) as context:
            found = command.get_command(context, word)
        assert found is not None, f"there is no verb {word}"
        command = found
    return command


def all_verbs() -> list[str]:
    found: list[str] = []
    for name in VERBS:
        command = verb(name)
        if isinstance(command, click.Group):
            found += [f"{name} {inner}" for inner in command.commands]
        else:
            found.append(name)
    return found


def named(row: list[str]) -> list[str]:
    """Return the words of a row's command, without what stands for its arguments."""
    begin = re.match(r"[a-z ]+\b", str(code(row[0])))
    assert begin is not None
    return begin[0].split()


def options(command: click.Command) -> dict[str, set[str]]:
    """Return the options a reader may use, each with all its spellings, by the long one."""
    return {
        max(param.opts, key=len): {*param.opts, *param.secondary_opts}
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    }


def test_every_command_has_a_row_and_every_row_is_a_command() -> None:
    assert [" ".join(named(row)) for row in rows(DOCUMENT, "Command")] == all_verbs()


@pytest.mark.parametrize("row", rows(DOCUMENT, "Command"), ids=lambda row: row[0].strip("`"))
def test_a_command_has_the_options_its_row_has_and_no_other(row: list[str]) -> None:
    command = verb(*named(row))
    assert set(re.findall(r"`(--[a-z-]+)`", row[1])) == options(command).keys() - EVERYWHERE


def test_every_command_that_speaks_with_a_daemon_takes_the_socket() -> None:
    without = {name for name in all_verbs() if "--socket" not in options(verb(*name.split()))}
    assert without == {
        "validate",
        "new",
        "check",
        "dev",
        "import",
        "replay",
        "policy check",
        "schema",
        "trust",
        "service install",
        "service uninstall",
        "completion",
        "help",
    }


def shown() -> list[Any]:
    """Return each `stdiod ...` that a document shows, with the place."""
    found = []
    for name in DOCUMENTS:
        for block in blocks(name):
            if block.language == "console":
                for step in steps(block.text):
                    found += [(name, one) for one in _commands(step.command)]
        found += [
            (name, one) for span in re.findall(r"`([^`]+)`", prose(name)) for one in _commands(span)
        ]
    return found


def _commands(text: str) -> list[str]:
    return [
        one.strip()
        for one in re.findall(r"(?:^|[\s;|&])stdiod ((?:[^;|&'\"]|'[^']*'|\"[^\"]*\")*)", text)
        if one.strip() and not one.startswith(".")
    ]


@pytest.mark.parametrize(("name", "command"), sorted(set(shown())))
def test_a_command_that_is_shown_exists_with_its_options(name: str, command: str) -> None:
    words = [word for word in re.sub(r"'[^']*'|\"[^\"]*\"", "X", command).split() if word != "X"]
    if words[0] == "--socket":
        words = words[2:]
    if words[0].startswith("-"):
        known = set().union(*options(stdiod).values()) | {"--help"}
    else:
        known = set().union(*options(verb(*words)).values()) | {"--help"}
    assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known
