"""docs/faults.md has each row of the table of faults, and names tests that prove it."""

from __future__ import annotations

import re

import pytest

from scripts.compare.faults import FAULTS
from scripts.compare.report import BEGIN, END
from tests.docs.markdown import read, rows
from tests.faults.rows import ROWS, marked

PAGE = "docs/faults.md"
NOT_PROVEN = "Not proven in this version"
TOLD = {int(cells[0]): cells[1:] for cells in rows(PAGE, "#")}


def test_the_page_has_all_rows_in_their_order() -> None:
    assert list(TOLD) == [row.number for row in ROWS]


def test_a_row_names_tests_that_exist_and_carry_its_number() -> None:
    for row in ROWS:
        carry = {where.partition("::")[2] for number, where in marked() if number == row.number}
        _, what, proofs = TOLD[row.number]
        named = re.findall(r"`(test_\w+)`", proofs)
        assert set(named) <= carry, row.number
        assert bool(named) is not bool(row.awaits), row.number
        assert what.startswith(NOT_PROVEN) is bool(row.awaits), row.number


def test_the_comparison_stands_between_its_markers_and_says_when_it_was_measured() -> None:
    text = read(PAGE).partition(BEGIN)[2].partition(END)[0]
    assert re.search(r"^Measured \d{4}-\d\d-\d\d on .*: stdiod [\w.]+", text, re.MULTILINE)
    assert "| Fault | stdiod |" in text


@pytest.mark.parametrize("key", ["grandchild", "group", "escapee", "kill9"])
def test_the_comparison_was_measured_by_a_version_that_leaves_nobody(key: str) -> None:
    # Once it stood here as it was measured before there was any containment.
    (title,) = (fault.title for fault in FAULTS if fault.key == key)
    ours = {cells[0]: cells[1] for cells in rows(PAGE, "Fault")}
    assert ours[title] == "0"
