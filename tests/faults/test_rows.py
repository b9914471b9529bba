"""The table of faults and the markers on the tests, held to each other."""

from __future__ import annotations

from tests.faults.rows import ROWS, marked

NUMBERS = {row.number for row in ROWS}


def test_each_row_has_a_number_of_its_own_and_they_ascend() -> None:
    numbers = [row.number for row in ROWS]
    assert numbers == sorted(NUMBERS)


def test_each_marker_names_a_row() -> None:
    assert [(number, test) for number, test in marked() if number not in NUMBERS] == []


def test_a_row_has_a_test_or_says_what_it_awaits() -> None:
    for row in ROWS:
        tests = [test for number, test in marked() if number == row.number]
        if row.awaits:
            assert not tests, f"{tests[0]} holds row {row.number}: drop what it awaits"
        else:
            assert tests, f"no test holds row {row.number}: {row.fault}: {row.holds}"


def test_what_is_not_proven_yet_is_said() -> None:
    awaiting = [f"{row.number} ({row.awaits})" for row in ROWS if row.awaits]
    print("rows of the table of faults without a proof:", ", ".join(awaiting) or "none")  # noqa: T201
