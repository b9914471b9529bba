"""In which line of a TOML document each key and each array element stands.

tomllib gives no positions, and no library that we need anyway does. So `tomllib` alone says what
is TOML and what it means; this is a walk over text it has accepted, which need only find where
things begin and end. A test holds the two together: the same places, with the same values.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Container
from typing import NamedTuple

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value, such as `("modules", "kv", "allow", 0)`."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*'""")
_LEAF = re.compile(
    r"""
      \"\"\"(?:\\.|[^\\])*?\"{3,5}          # two quotes may stand before the closing three
    | '''.*?'{3,5}
    | "(?:\\.|[^"\\])*"
    | '[^']*'
    | \d{4}-\d\d-\d\d[ ]\d\d:[^,\]}\s#]*    # a date-time may have a space for its T
    | [^,\]}\s#]+
    """,
    re.VERBOSE | re.DOTALL,
)


class Repeat(NamedTuple):
    """A key or table that stands twice, and the lines of both."""

    place: Place
    first: int
    second: int


class _RepeatError(Exception):
    def __init__(self, repeat: Repeat) -> None:
        super().__init__(repeat)
        self.repeat = repeat


def lines(text: str) -> dict[Place, int]:
    """Return the line, from 1, of each key, table and array element of valid TOML."""
    return {place: line for place, (line, _) in spots(text).items()}


def spots(text: str) -> dict[Place, tuple[int, str | None]]:
    """Return the line of each place, and the text of its value if that is no array or table.

    Raises `RecursionError` for arrays in arrays by the hundred; so does tomllib.
    """
    walk = _Walk(text.replace("\r\n", "\n"))
    walk.document()
    return walk.found


def repeat_in(text: str) -> Repeat | None:
    """Return what stands twice in text that tomllib refuses for it; None if nothing is found."""
    try:
        spots(text)
    except _RepeatError as error:
        return error.repeat
    except (ValueError, RecursionError):  # no TOML in another way too, before that
        pass
    return None


class _Walk:
    def __init__(self, text: str) -> None:
        self.found: dict[Place, tuple[int, str | None]] = {}
        self._text = text
        self._at = 0
        self._ends = [place.start() for place in re.finditer("\n", text)]
        self._lengths: dict[Place, int] = {}  # of arrays of tables
        self._given: set[Place] = set()  # by a value
        self._closed: set[Place] = set()  # to headers: these have one, a value, or a dotted key

    def document(self) -> None:
        table: Place = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._take("[["):
                table = self._header(last_is_array=True)
                self._take("]]")
            elif self._take("["):
                table = self._header(last_is_array=False)
                self._take("]")
            else:
                self._member(table)
            self._skip(_BLANK)

    def _header(self, *, last_is_array: bool) -> Place:
        place: Place = ()
        line = self._line()
        *path, last = self._keys()
        for key in path:
            place = self._newest(self._once((*place, key), line, self._given))
        place = (*place, last)
        if not last_is_array:
            self._once(place, line, self._closed)
        elif place not in self._lengths:
            self._once(place, line, self.found)
        self._closed.add(place)
        if last_is_array:
            self._lengths[place] = self._lengths.get(place, 0) + 1
            place = self._note(self._newest(place), line)
        return place

    def _newest(self, place: Place) -> Place:
        return (*place, self._lengths[place] - 1) if place in self._lengths else place

    def _member(self, table: Place) -> None:
        line = self._line()
        place = table
        *path, last = self._keys()
        for key in path:
            place = self._once((*place, key), line, self._given)
            self._closed.add(place)
        place = self._once((*place, last), line, self.found)
        self._given.add(place)
        self._closed.add(place)
        self._take("=")
        self._skip(_SPACE)
        self._value(place)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            word = self._skip(_KEY)
            keys.append(_unquoted(word) if word[:1] in {'"', "'"} else word)
            self._skip(_SPACE)
            if not self._take("."):
                return keys

    def _value(self, place: Place) -> None:
        if self._take("["):
            self._skip(_BLANK)
            index = 0
            while not self._take("]"):
                self._value(self._note((*place, index), self._line()))
                self._skip(_BLANK)
                self._take(",")
                self._skip(_BLANK)
                index += 1
        elif self._take("{"):
            self._skip(_BLANK)
            while not self._take("}"):
                self._member(place)
                self._skip(_BLANK)
                self._take(",")
                self._skip(_BLANK)
        else:
            line, _ = self.found[place]
            self.found[place] = (line, self._skip(_LEAF))

    def _note(self, place: Place, line: int) -> Place:
        self.found.setdefault(place, (line, None))
        return place

    def _once(self, place: Place, line: int, taken: Container[Place]) -> Place:
        if place in taken:
            raise _RepeatError(Repeat(place, self.found[place][0], line))
        return self._note(place, line)

    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1

    def _take(self, token: str) -> bool:
        taken = self._text.startswith(token, self._at)
        self._at += len(token) * taken
        return taken

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise ValueError(f"not TOML at character {self._at}")
        self._at = match.end()
        return match.group()


def _unquoted(word: str) -> str:
    return str(tomllib.loads(f"key = {word}")["key"])
