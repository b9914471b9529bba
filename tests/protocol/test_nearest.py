"""The word that was probably meant, found in bounded time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from protocol.problem import (
    COMPARED,
    SLIP_CHARS,
    Problem,
    described,
    did_you_mean,
    literal,
    named,
    nearest,
    quoted,
    shortened,
)

MANY = {f"module-{number:04}": number for number in range(1000)}


class Counted(Collection[str]):
    """Many words that count how often they are looked at."""

    def __init__(self, words: Collection[str]) -> None:
        self._words = words
        self.looks = 0

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, one: object) -> bool:
        self.looks += 1
        return one in self._words

    def __iter__(self) -> Iterator[str]:
        for word in self._words:
            self.looks += 1
            yield word


@pytest.mark.parametrize(
    "word",
    ["modul-0421", "modulee-0421", "module-042l", "module-0421x", "MODULE-0421", "mdoule-0421"],
)
def test_of_many_words_one_that_is_a_slip_away_is_found(word: str) -> None:
    assert nearest(word, {"module-0421": 0} | {str(n): n for n in range(100)}) == "module-0421"
    assert nearest(word, MANY) in MANY


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("aB", ["ab", "Ba"]),
        ("abc", ["bac", "acb", "bc", "ab", "dabc"]),
        ("abc", ["dabc", "dbc", "abd", "abcd"]),
        ("abc", ["aabc", "dabc"]),
    ],
)
def test_of_many_words_the_most_frequent_mistake_is_meant(word: str, meant: list[str]) -> None:
    while meant:
        assert nearest(word, {*meant, *MANY}) == meant.pop(0)


def test_of_few_words_the_nearest_is_found_if_it_is_near() -> None:
    assert nearest("plannr", ["dice", "planner"]) == "planner"
    assert nearest("Planer-2", ["dice", "planner-2"]) == "planner-2"
    assert nearest("torch", ["dice", "planner"]) is None
    assert did_you_mean("dise", ["dice"]) == "; did you mean 'dice'?"


@pytest.mark.fault(29)
@pytest.mark.parametrize("known", [list(MANY), MANY, MANY.keys()], ids=["list", "dict", "keys"])
@pytest.mark.parametrize("word", ["x" * SLIP_CHARS, "module-9999xy", "", "x" * 10_000_000])
def test_of_many_words_none_is_compared(word: str, known: Collection[str]) -> None:
    assert nearest(word, known) is None


@pytest.mark.fault(29)
def test_many_words_are_looked_at_once_at_the_most() -> None:
    known = Counted(MANY)
    assert nearest("x" * SLIP_CHARS, known) is None
    assert known.looks == len(MANY)


def test_long_words_are_not_compared() -> None:
    assert nearest("x" * 1000, ["x" * 999]) is None
    assert len(MANY) > COMPARED


def test_what_was_asked_for_is_quoted_as_far_as_there_is_room() -> None:
    assert named("dice", 20) == "'dice'"
    assert len(named("x" * 10_000_000, 20)) == 20


def test_of_32_words_each_is_compared_and_of_more_none() -> None:
    words = [f"w{number:02}" for number in range(31)]
    assert nearest("plannerx2", ["planner", *words]) == "planner"
    assert nearest("plannerx2", ["planner", *words, "one-more"]) is None


def test_words_of_up_to_40_characters_are_compared_and_of_many_of_up_to_32() -> None:
    for size, found in ((40, True), (41, False)):
        assert (nearest("x" * (size - 1), ["x" * size]) is not None) is found or size == 41
        assert (nearest("x" * size, ["x" * 39]) is not None) is found
    for size, found in ((32, True), (33, False)):
        many = {"x" * (size - 1): 0} | {str(number): 0 for number in range(40)}
        assert (nearest("x" * size, many) is not None) is found


def test_texts_are_shown_with_60_characters_on_one_line() -> None:
    assert quoted("x" * 60) == '"' + "x" * 60 + '"'
    assert quoted("x" * 61) == '"' + "x" * 59 + '…"'
    assert quoted("\x85\u2028") == '"\\x85\\u2028"'
    assert described(10**59) == "1" + "0" * 59
    assert described(10**60) == "1" + "0" * 58 + "…"
    assert literal({"a": "x" * 60}) == '{"a": "' + "x" * 52 + "…"
    assert str(Problem("/" + "p" * 199, "is wrong")) == "/" + "p" * 199 + ": is wrong"
    assert str(Problem("/" + "p" * 200, "is wrong")) == "/" + "p" * 198 + "…: is wrong"
    assert str(Problem("", "is wrong")) == "is wrong"
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert named("x" * 10, 8) == "'xxxxxx…"
