"""`make surface`: what is compared, and how schemas are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.surface import LISTS, differences, fields, listed, tables
from tests.scripts.checkout import CHECKOUT


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    (tmp_path / "af46bfda.txt").write_text("# before\nverb: a\nverb: b\n")
    (tmp_path / "additions.txt").write_text("\n# since\nverb: c\n")
    (tmp_path / "changes.txt").write_text("")
    return tmp_path


def test_the_same_things_make_no_difference(lists: Path) -> None:
    assert list(differences(["verb: a", "verb: b", "verb: c"], lists)) == []


def test_what_is_gone_and_what_is_new_are_differences(lists: Path) -> None:
    found = list(differences(["verb: b", "verb: d"], lists))
    assert found == ["- verb: a", "- verb: c", "+ verb: d"]


def test_what_may_be_gone_is_no_difference_until_it_is_back(lists: Path) -> None:
    (lists / "changes.txt").write_text("# `a` goes.\nverb: a\n")
    assert list(differences(["verb: b", "verb: c"], lists)) == []
    assert list(differences(["verb: a", "verb: b", "verb: c"], lists)) == ["+ verb: a"]


def test_what_may_be_gone_needs_a_sentence(lists: Path) -> None:
    (lists / "changes.txt").write_text("# `a` goes.\nverb: a\n\nverb: b\n")
    found = list(differences(["verb: c"], lists))
    assert found == ["verb: b is in changes.txt without a sentence above it"]


def test_what_may_be_gone_has_to_have_been_there(lists: Path) -> None:
    (lists / "changes.txt").write_text("# `x` goes.\nverb: x\n")
    found = list(differences(["verb: a", "verb: b", "verb: c"], lists))
    assert found == ["verb: x is in changes.txt, and in no list"]


def test_fields_are_found_wherever_a_schema_has_them() -> None:
    schema = {
        "properties": {"a": {"enum": ["x", 1]}, "b": {"items": {"$ref": "#/$defs/B"}}},
        "additionalProperties": {"properties": {"c": {}}},
        "oneOf": [{"properties": {"type": {"const": "d"}}}],
        "then": {"properties": {"e": {}}},
        "dependentSchemas": {"a": {"properties": {"f": {}}}},
    }
    found = {field.removeprefix("s") for field in fields(schema, "s")}
    values = {'.a = "x"', ".a = 1", '.type = "d"', ".b[]: B"}
    assert found == {".a", ".b", ".*.c", ".type", ".e", ".f"} | values


def test_tables_are_read_from_the_documents() -> None:
    found = set(tables(CHECKOUT))
    assert {"exit status: 141", "data of a journal event: module:state cause"} <= found
    assert "metric of a module: stdiod_invocations_total outcome" in found


@pytest.mark.parametrize("name", ["af46bfda.txt", "additions.txt"])
def test_no_list_says_a_thing_twice(name: str) -> None:
    lines = listed(CHECKOUT / LISTS / name)
    assert len(lines) == len(set(lines))
