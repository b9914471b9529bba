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


COUNTED: dict[str, tuple[int, int] | None] = {
    "": (1024, 1025),
    "^": (1024, 1027),
    "a": (1024, 2050),
    "a$": (1024, 3075),
    r"\Aa": (1024, 1028),
    "a^": (1024, 3075),
    "[ab]": (1024, 3075),
    "^[^ab]$": (1024, 1031),
    "^a|bc$": (1024, 9225),
    "^(ab)$": (1024, 1031),
    "^(a|b)$": (1024, 1031),
    "^a?$": (1024, 1032),
    "^a*$": (1024, 5128),
    "^a*?b$": (1024, 5129),
    "^a+a$": (1024, 6156),
    "^a{2,5}b": (1024, 1052),
    "^a{0,1024}b": (1024, 5128),
    "^(ab){2}$": (1024, 1036),
    "^(ab){2,4}$": (1024, 1048),
    "^(a|b){10}$": (1024, 1068),
    "^(a?b){3}$": (1024, 1061),
    "^a{2000}$": (1024, 3078),
    "^a{0,2000}$": (1024, 5128),
    "^[a-z0-9]{1,64}$": (1024, 1346),
    r"^(\d{1,3}\.){3}\d{1,3}$": (1024, 1095),
    # How far the proof goes, of the lengths that there are.
    "a*b": (16, 1190),
    r"^(\d+\.)+\d+$": (16, 1448),
    "^[ab]*[bc]*$": (16, 1635),
    "^(ab)*$": None,
    "^(ab)+$": None,
    "^(ab)*a": None,
    "^(abc){400}$": None,
    "^a*b*c*$": None,
    "^(a?b)*$": None,
}
"""For how many characters a pattern is bounded, and by how many steps."""


@pytest.mark.parametrize(("pattern", "proved"), COUNTED.items(), ids=COUNTED)
def test_the_steps_of_a_pattern_are_counted_for_the_longest_string_that_is_bounded(
    pattern: str, proved: tuple[int, int] | None
) -> None:
    proof = bounded(pattern)
    assert (proof and (proof.chars, proof.steps)) == proved


ENDS = {
    "a": "b-_1é",
    "[^a]": "a",
    "[^b]": "b",
    "[ab]": "c",
    "[a-c]": "`d",
    "[^a-c]": "abc",
    r"[\d]": "a/:",
    r"[\D]": "09",
    r"[\s]": "a",
    r"[\S]": " ",
    r"[\w]": "-[",
    r"[\W]": "a_9",
    "[é]": "a",
    "[\x7e]": "\x7f",
}
"""Loops, and characters that end them: none of those that the loop takes."""

GOES_ON = {
    "a": "a",
    ".": "a",
    "[^a]": "b\x7f",
    "[^ab]": "c",
    "[ab]": "ab\x80é",
    "[a-c]": "abc\x80",
    "[^a-c]": "`d\x80",
    r"[\d]": "09",
    r"[\D]": "a/:",
    r"[\s]": " ",
    r"[\S]": "a",
    r"[\w]": "a_9",
    r"[\W]": "-[",
}
"""Loops, and characters that they take, or of which that is not known."""


@pytest.mark.parametrize(
    ("loop", "follows", "ends"),
    [
        (loop, follows, ends)
        for ends, table in ((True, ENDS), (False, GOES_ON))
        for loop, each in table.items()
        for follows in each
    ],
)
def test_a_loop_ends_in_one_place_where_what_follows_is_none_of_its_characters(
    loop: str, follows: str, ends: bool
) -> None:
    # Where it may end in many places, the five characters behind it count once for each.
    proof = bounded(f"^{loop}*{re.escape(follows)}xxxxx")
    assert proof is not None
    assert ((proof.chars, proof.steps) == (1024, 1025 * 5 + 8)) is ends


def test_a_pattern_of_too_many_parts_or_characters_is_not_examined() -> None:
    assert bounded("^" + "a" * 199) is not None
    assert bounded("^" + "a" * 200) is None
    assert bounded("[" + "a" * 510 + "]") is not None
    assert bounded("[" + "a" * 511 + "]") is None


@pytest.mark.parametrize("pattern", ["[[ab]", "[a--b]", "[a&&b]", "[a~~b]", "[a||b]"])
def test_a_set_that_may_mean_something_else_one_day_is_not_examined(pattern: str) -> None:
    assert bounded(pattern) is None
