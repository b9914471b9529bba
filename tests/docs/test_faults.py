"""docs/faults.md has each row of the table of faults, and names tests that prove it."""

from __future__ import annotations

import re

import pytest

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


def test_the_comparison_says_when_it_was_measured() -> None:
    text = read(PAGE)
    assert re.search(r"^Measured \d{4}-\d\d-\d\d on .*: stdiod [\w.]+", text, re.MULTILINE)
    assert "| Fault | stdiod |" in text


@pytest.mark.parametrize(
    "fault",
    [
        "grandchild in the same process group that ignores SIGTERM: left after a stop",
        "the same, where the supervisor can be told to stop the whole group",
        "grandchild in a session of its own (`setsid`): left after a stop",
        "supervisor killed with `kill -9`: left of a child, its grandchild and an escapee",
    ],
)
def test_the_comparison_was_measured_by_a_version_that_leaves_nobody(fault: str) -> None:
    # Once it stood here as it was measured before there was any containment.
    ours = {cells[0]: cells[1] for cells in rows(PAGE, "Fault")}
    assert ours[fault] == "0"
