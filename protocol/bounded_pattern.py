r"""Prove how many steps a regular expression takes at the most, where that is easy.

Python's `re` tries one way after the other, and nothing bounds how many there are: `^(a+)+$` takes
years to refuse 40 characters. The cost of a pattern is counted here from its parse tree, without
the engine's savings: for a part that may match in several ways, everything behind it counts once
per way, unless the next character settles where the part ends. So the count is never too low, and
for usual patterns of names, dates and versions it is low enough. Back references, look-around,
flags, and loops over a part that may be empty cannot be counted, and are not bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # typeshed has no names for these
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import msgspec

MOST_STEPS = 10_000
"""For one string; about 0.1 ms."""

CHARS = (1024, 256, 64, 16)
"""A pattern is bounded for strings of one of these lengths, the longest for which it holds."""

PATTERN_CHARS = 512
"""Longer patterns are not examined."""

MOST_PARTS = 200
"""The parts of a pattern that are examined, those of a loop once per repetition; about 0.2 ms."""

# `re` warns of sets that may mean something else one day; a warning is not for us to print.
_DOUBTFUL = re.compile(r"\[\[|--|&&|~~|\|\|")

_ONE_CHAR = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.AT)
_SINGLE = (*_ONE_CHAR, codes.IN)
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
_ANCHORS = (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING)


class BoundedPattern(msgspec.Struct, frozen=True):
    compiled: re.Pattern[str]
    chars: int
    steps: int


class _UnboundedError(Exception):
    """There is no proof."""


class _Count:
    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._parts = 0

    def search(self, tree: Any) -> int:
        # A search begins anew at each place, if the pattern does not say where it begins.
        steps = self._of_all(tree, 1)
        anchored = len(tree) > 0 and tree[0][0] is codes.AT and tree[0][1] in _ANCHORS
        return steps + self._chars + 1 if anchored else steps * (self._chars + 1)

    def _of_all(self, items: Iterable[Any], rest: int) -> int:
        """Return the cost of parts in sequence; `rest` follows them."""
        following: tuple[Any, Any] | None = None
        for code, argument in reversed(list(items)):
            if code in _REPEATS and _ends_at(argument, following):
                # It ends in one place only: elsewhere what follows fails at its first character.
                lengths = min(int(argument[1]), self._chars) + 1
                rest += lengths * (2 + len(argument[2][0]))
            else:
                rest = self._of(code, argument, rest)
            if rest > MOST_STEPS:
                break  # it only grows
            following = (code, argument)
        return rest

    def _of(self, code: Any, argument: Any, rest: int) -> int:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise _UnboundedError
        if code in _ONE_CHAR:
            return rest + 1
        if code is codes.IN:
            return rest + len(argument)
        if code is codes.BRANCH:
            return sum(1 + self._of_all(branch, rest) for branch in argument[1])
        if code is codes.SUBPATTERN:
            _, more_flags, fewer_flags, inner = argument
            if more_flags or fewer_flags:
                raise _UnboundedError
            return 1 + self._of_all(inner, rest)
        if code in _REPEATS:
            return self._repeated(argument, rest)
        raise _UnboundedError

    def _repeated(self, argument: Any, rest: int) -> int:
        least, most, inner = argument
        narrowest = inner.getwidth()[0]
        if most > 1 and narrowest == 0:
            raise _UnboundedError
        fitting = self._chars // max(narrowest, 1) + 1
        steps = rest
        if len(inner) == 1 and inner[0][0] in _SINGLE:
            width = 1 + self._of_all(inner, 0)
            optional = min(int(most) - least, fitting)
            return int(rest + optional * (rest + width) + min(least, fitting) * width)
        for _ in range(min(int(most) - least, fitting)):
            # Go on with what follows, or once more with the same.
            steps = rest + 1 + self._of_all(inner, steps)
            if steps > MOST_STEPS:
                return steps
        for _ in range(min(least, fitting)):
            steps = 1 + self._of_all(inner, steps)
            if steps > MOST_STEPS:
                break
        return steps


def _ends_at(repeat: Any, following: tuple[Any, Any] | None) -> bool:
    """Tell whether a repeated set of characters surely lacks the one character that follows it."""
    _, _, inner = repeat
    if following is None or following[0] is not codes.LITERAL or len(inner) != 1:
        return False
    literal, (code, argument) = following[1], inner[0]
    if code is codes.NOT_LITERAL or code is codes.LITERAL:
        return (argument == literal) is (code is codes.NOT_LITERAL)
    if literal > _ASCII or code is not codes.IN:
        return False
    negated = argument[0][0] is codes.NEGATE
    return negated is any(_holds(part, literal) for part in argument)


_ASCII = 127


def _holds(part: tuple[Any, Any], literal: int) -> bool:
    """Tell whether a part of a set holds an ASCII character."""
    code, argument = part
    char = chr(literal)
    if code is codes.LITERAL:
        return bool(argument == literal)
    if code is codes.RANGE:
        return bool(argument[0] <= literal <= argument[1])
    if code is codes.CATEGORY:
        return _CATEGORIES[argument](char)
    return False  # NEGATE, of the whole set


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdecimal,
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


@lru_cache(maxsize=256)
def bounded(pattern: str) -> BoundedPattern | None:
    if len(pattern) > PATTERN_CHARS or _DOUBTFUL.search(pattern):
        return None
    try:
        tree = parser.parse(pattern)
        if tree.state.flags != re.UNICODE:
            return None
        for chars in CHARS:
            steps = _Count(chars).search(tree)
            if steps <= MOST_STEPS:
                return BoundedPattern(re.compile(pattern), chars, steps)
    except (re.error, _UnboundedError, RecursionError, OverflowError):
        pass
    return None
