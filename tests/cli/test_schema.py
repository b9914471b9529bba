"""`stdiod schema`."""

from __future__ import annotations

import json

import pytest

import schemas
from tests.cli.conftest import Run


def test_without_a_name_it_lists_them_each_with_its_title(run: Run) -> None:
    lines = run("schema").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(schemas.NAMES)
    assert all(len(line.split()) > 1 for line in lines)


@pytest.mark.parametrize("name", ["stdiod-descriptor", "stdiod-descriptor.v1"])
def test_a_schema_is_printed_as_it_is(run: Run, name: str) -> None:
    assert json.loads(run("schema", name).stdout) == schemas.load("stdiod-descriptor.v1")


@pytest.mark.parametrize(
    ("name", "words"),
    [("transcrip", "did you mean 'transcript'?"), ("zzz", "`stdiod schema` lists them")],
)
def test_a_name_that_there_is_not_is_told(run: Run, name: str, words: str) -> None:
    ended = run("schema", name)
    assert ended.exit_code == 2
    assert words in ended.stderr


def test_the_list_is_json_for_programs(run: Run) -> None:
    listed = json.loads(run("schema", "--json").stdout)["schemas"]
    assert [one["name"] for one in listed] == list(schemas.NAMES)
    assert all(one["title"] for one in listed)


def test_the_types_are_printed_all_or_not_at_all(run: Run) -> None:
    assert run("schema", "--typescript").stdout == schemas.typescript()
    ended = run("schema", "--typescript", "plan")
    assert (ended.exit_code, "leave NAME out" in ended.stderr) == (2, True)
