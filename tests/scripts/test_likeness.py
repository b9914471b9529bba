from __future__ import annotations

from typing import Any

import pytest

from scripts.demo.likeness import SOME_INT, SOME_NUMBER, Having, Like, difference


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": [1, "x", None]}, {"a": [1, "x", None]}),
        (SOME_INT, 3),
        (SOME_NUMBER, 0.5),
        (Like(r"dice#\d+"), "dice#12"),
        (Having({"state": "ready"}), {"state": "ready", "pid": 7}),
    ],
)
def test_what_is_as_expected_has_no_difference(expected: Any, found: Any) -> None:
    assert difference(expected, found) is None


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        (1, True, "the whole: expected 1, found true"),
        (1, 1.0, "the whole: expected 1, found 1.0"),
        (SOME_INT, True, "the whole: expected some int, found true"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a/b: expected 1, found 2"),
        ({"a": 1}, {}, "/a: expected 1, found nothing"),
        ({}, {"a": 1}, "/a: expected nothing, found 1"),
        ([1], [1, 2], "the whole: expected [1], found [1, 2]"),
        ([1, 2], [1, 3], "/1: expected 2, found 3"),
        (Like("a+"), "aab", 'the whole: expected a text like /a+/, found "aab"'),
        (Having({"a": 1}), {"b": 1}, "/a: expected 1, found nothing"),
        (Having({"a": 1}), 5, 'the whole: expected {"a": 1}, found 5'),
    ],
)
def test_the_first_difference_is_named(expected: Any, found: Any, words: str) -> None:
    assert difference(expected, found) == words
