"""What an answer to a question comes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.approval import (
    ALLOWING,
    OPTION_CHARS,
    OPTIONS,
    allows,
    is_lasting,
    options_of,
)


@pytest.mark.parametrize(
    ("answer", "comes_to"),
    [
        ("allow", True),
        (" Deny ", False),
        ("Allow once", True),
        ("YES, always", True),
        ("no", False),
        ("production", False),
        ("not allow", False),
        ("maybe", None),
        ("", None),
    ],
)
def test_an_option_denies_unless_it_begins_as_one_that_allows(
    answer: str, comes_to: bool | None
) -> None:
    options = ["allow once", "Yes, always", "No", "production", "not allow"]
    assert allows(answer, options) is comes_to


@given(st.text(), st.lists(st.text()))
def test_only_what_was_offered_is_an_answer(answer: str, options: list[str]) -> None:
    said = answer.strip().casefold()
    offered = said in {one.strip().casefold() for one in [*options, "allow", "deny"]}
    assert (allows(answer, options) is not None) is offered
    if allows(answer, options):
        assert said.startswith(ALLOWING)


@given(st.none() | st.lists(st.text()))
def test_what_is_offered_is_bounded_and_never_nothing(options: list[str] | None) -> None:
    shown = options_of(options)
    assert 1 <= len(shown) <= max(OPTIONS, 2)
    assert all(len(one) <= OPTION_CHARS for one in shown)


@pytest.mark.parametrize(
    ("answer", "lasts"),
    [("allow always", True), ("No, ALWAYS", True), ("always allow", False), ("", False)],
)
def test_an_answer_lasts_if_its_last_word_says_so(answer: str, lasts: bool) -> None:
    assert is_lasting(answer) is lasts


def test_sixteen_options_of_a_hundred_characters_are_offered() -> None:
    assert options_of([]) == options_of(None) == ("allow", "deny")
    assert options_of(["x" * 101]) == ("x" * 100,)
    assert options_of(map(str, range(17))) == tuple(map(str, range(16)))
    assert allows(",", [","]) is False
