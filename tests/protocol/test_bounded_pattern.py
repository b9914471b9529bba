"""The count of a pattern's steps, held to an engine that tries everything and counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.bounded_pattern import CHARS, bounded


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z0-9_-]{1,64}$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^https?://",
        r"^\d+\.\d+\.\d+$",
        r"^[^@]+@[^@]+$",
        r"^(yes|no)$",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"^$",
        "",
    ],
)
def test_what_people_write_for_names_and_dates_is_bounded(pattern: str) -> None:
    proof = bounded(pattern)
    assert proof is not None
    assert proof.chars >= 64


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(a|a)*$",
        r"^(a|aa)+$",
        r"(.*)*x",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"^a*a*a*a*b$",
        r"(a?){30}a{30}",
        r"^(a)\1$",
        r"^(?=a)",
        r"(?i)a",
        r"^(?i:a)$",
        r"(?>a+)",
        r"a++",
        r"^(x{0,30000}){0,30000}$",
        r"[[a]",
        r"(",
        r"a" * 1000,
        r"^" + "(" * 150 + "a" + ")*" * 150,
    ],
)
def test_what_backtracks_or_cannot_be_counted_is_not(pattern: str) -> None:
    assert bounded(pattern) is None


class Engine:
    """Matches as a backtracking engine does that saves nothing, and counts what it looks at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0

    def search(self, tree: Any) -> bool:
        return any(
            any(True for _ in self.ways(list(tree), start)) for start in range(len(self.text) + 1)
        )

    def ways(self, items: list[Any], at: int) -> Iterable[int]:
        if not items:
            yield at
            return
        (code, argument), rest = items[0], items[1:]
        for after in self.of(code, argument, at):
            yield from self.ways(rest, after)

    def of(self, code: Any, argument: Any, at: int) -> Iterable[int]:
        self.steps += 1
        if code is codes.BRANCH:
            for branch in argument[1]:
                yield from self.ways(list(branch), at)
        elif code is codes.SUBPATTERN:
            yield from self.ways(list(argument[3]), at)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = argument
            yield from self.times(
                list(inner), least, int(most), at, greedy=code is codes.MAX_REPEAT
            )
        elif code is codes.AT:
            begins = argument in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING)
            left = self.text[at:]
            if at == 0 if begins else left in ("", "\n"):
                yield at
        elif at < len(self.text) and self.fits(code, argument, ord(self.text[at])):
            yield at + 1

    def times(
        self, inner: list[Any], least: int, most: int, at: int, *, greedy: bool
    ) -> Iterable[int]:
        if not greedy and least <= 0:
            yield at
        if most > 0:
            for after in self.ways(inner, at):
                yield from self.times(inner, least - 1, most - 1, after, greedy=greedy)
        if greedy and least <= 0:
            yield at

    def fits(self, code: Any, argument: Any, char: int) -> bool:
        if code is codes.IN:
            negated = argument[0][0] is codes.NEGATE
            return negated is not any(self.fits(code, one, char) for code, one in argument)
        if code is codes.RANGE:
            return bool(argument[0] <= char <= argument[1])
        if code is codes.CATEGORY:
            return chr(char).isdecimal()
        return (code is codes.LITERAL and argument == char) or (
            code is codes.NOT_LITERAL and argument != char
        )


ATOMS = st.sampled_from(["a", "b", "-", "[ab]", "[^a]", "[^ab]", r"\d", "[a-c]"])
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "+?"])
PATTERNS = st.recursive(
    st.tuples(ATOMS, REPEATS).map("".join),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4).map("".join)
        | st.tuples(st.lists(inner, min_size=1, max_size=2).map("|".join), REPEATS).map(
            lambda both: f"({both[0]}){both[1]}"
        )
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(st.sampled_from(["", "^"]), PATTERNS, st.sampled_from(["", "$", "c"])).map("".join),
    st.text("ab-1", max_size=8) | st.sampled_from(["a" * 16, "ab" * 8, "b" * 15 + "-"]),
)
def test_no_search_takes_more_steps_than_were_counted(pattern: str, text: str) -> None:
    proof = bounded(pattern)
    if proof is None or len(text) > proof.chars:
        return
    assert proof.chars in CHARS
    engine = Engine(text)
    found = engine.search(parser.parse(pattern))
    assert found == (re.search(pattern, text) is not None)
    assert engine.steps <= proof.steps
