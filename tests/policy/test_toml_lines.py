"""Where things stand in a TOML document, held to what tomllib makes of the same text."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.policy.toml_lines import Place, lines, repeat_in, spots

LEAVES = [
    "1", "-2.5e3", "inf", "true", "0x_f".replace("_", ""), "1979-05-27", "1979-05-27 07:32:00.5",
    "1979-05-27T07:32:00Z", "07:32:00", '""', "''", '"a # no, [comment] = {}"', "'C:\\'",
    '"\\"\\\\"', '"""a\n"" \\" [x]\nb"""', '""""q"""""', "'''\n'' # \\\n'''''", '"""\\\n   x"""',
    '"""\\\\"""', '"\\u00e9 é"',
]  # fmt: skip
BLANKS = ["", " ", "\t", "\n", "\r\n", " # c ]}\"'\n", "\n\n  "]


class Writer:
    """Write TOML with odd spacing, and note in which line each thing was written."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._names = 0
        self.text = ""
        self.noted: dict[Place, int] = {}

    def document(self) -> None:
        self._members(())
        for _ in range(self._draw(st.integers(0, 3))):
            name = self._name()
            if self._draw(st.booleans()):
                for index in range(self._draw(st.integers(1, 2))):
                    self.text += self._draw(st.sampled_from(["", "\n", "# [x]\n"]))
                    self._note((name,), (name, index))
                    self.text += f"[[ {self._quoted(name)} ]]  # t\n"
                    self._members((name, index))
                    self._note((name, index, "sub"))
                    self.text += f"[{self._quoted(name)}.sub]\n"
                    self._members((name, index, "sub"))
            else:
                self._note((name,), (name, "in"))
                self.text += f"[{self._quoted(name)} . in]\n"
                self._members((name, "in"))

    def _members(self, table: Place) -> None:
        for _ in range(self._draw(st.integers(0, 3))):
            self.text += self._draw(st.sampled_from(["", " ", "\n", "#c = [\n", "\r\n"]))
            self._member(table, depth=2)
            self.text += self._draw(st.sampled_from(["\n", " # c\n", "\r\n"]))

    def _member(self, table: Place, depth: int) -> None:
        name = self._name()
        place = (*table, name)
        self._note(place)
        self.text += self._quoted(name)
        if self._draw(st.booleans()):
            place = (*place, "x")
            self._note(place)
            self.text += " .x"
        self.text += self._draw(st.sampled_from(["=", " = ", "\t= "]))
        self._value(place, depth)

    def _value(self, place: Place, depth: int) -> None:
        form = self._draw(st.sampled_from(["leaf", "array", "table"])) if depth else "leaf"
        size = self._draw(st.integers(0, 3))
        if form == "leaf":
            self.text += self._draw(st.sampled_from(LEAVES))
        elif form == "array":
            self.text += "["
            for index in range(size):
                self._blank()
                self._note((*place, index))
                self._value((*place, index), depth - 1)
                self._blank()
                self.text += "," if index < size - 1 or self._draw(st.booleans()) else ""
            self._blank()
            self.text += "]"
        else:
            self.text += "{ "
            for index in range(size):
                self.text += ", " * (index > 0)
                self._member(place, depth - 1)
            self.text += " }"

    def _blank(self) -> None:
        self.text += self._draw(st.sampled_from(BLANKS))

    def _name(self) -> str:
        self._names += 1
        return self._draw(st.sampled_from(["k-", "1", "é", "a.b", "#", "]", "'", '"', "\\"])) + str(
            self._names
        )

    def _quoted(self, name: str) -> str:
        if name.isascii() and name.replace("-", "").isalnum():
            return self._draw(st.sampled_from([name, f"'{name}'", f'"{name}"']))
        return json.dumps(name, ensure_ascii=False)

    def _note(self, *places: Place) -> None:
        for place in places:
            self.noted.setdefault(place, self.text.count("\n") + 1)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Place, int]]:
    writer = Writer(draw)
    writer.document()
    return writer.text, writer.noted


def places(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every place of a document, with the value if it is no array or table."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    elif at:
        yield at, value
        return
    if at:
        yield at, None
    for key, member in members:
        yield from places(member, (*at, key))


def held_to_tomllib(text: str) -> None:
    expected = dict(places(tomllib.loads(text)))
    found = spots(text)
    assert found.keys() == expected.keys()
    for place, (line, leaf) in found.items():
        assert 1 <= line <= text.count("\n") + 1
        value = None if leaf is None else tomllib.loads(f"x = {leaf}")["x"]
        assert value == expected[place]


@settings(max_examples=150, deadline=None)
@given(documents())
def test_every_place_is_found_in_the_line_it_was_written_in(
    written: tuple[str, dict[Place, int]],
) -> None:
    text, noted = written
    held_to_tomllib(text)
    assert lines(text) == noted


FRAGMENTS = [
    "a", "b", "modules", ".", "=", " = ", "[", "]", "[[", "]]", "{", "}", ",", "\n", " ", "#", '"',
    "'", '"""', "'''", "\\", "x = 1\n", "[a]\n", "[[a]]\n", "[a.b]\n", *LEAVES,
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example('[[a]]\n[[a]]\n[a.b]\nc.d = [[1, [2]], {e = "]"}]\n[a.b.f]\n[[a.g]]\n[[a.g]]\nh = 1')
@example("[a.b]\n[a]\nx.y = 1\nx.z = 2\n")
def test_whatever_text_tomllib_takes_is_walked_to_the_same_places(text: str) -> None:
    try:
        tomllib.loads(text)
    except ValueError:
        return
    held_to_tomllib(text)


def test_text_that_is_no_toml_is_never_walked_for_ever() -> None:
    for text in ("a = [", "a = {b", "a =", "=", '"', "[", "[["):
        with pytest.raises(ValueError, match="not TOML at character"):
            lines(text)


@pytest.mark.parametrize(
    ("text", "place", "first", "second"),
    [
        ("a = 1\n\na = 2", ("a",), 1, 3),
        ("a = [\n1,\n]\na = [\n2,\n]\n", ("a",), 1, 4),
        ("[t]\na = 1\n'a' = 2\n", ("t", "a"), 2, 3),
        ("[t]\n[u]\n[t]\n", ("t",), 1, 3),
        ("a = 1\n[a]\n", ("a",), 1, 2),
        ("a = 1\n[a.b]\n", ("a",), 1, 2),
        ("a = 1\na.b = 2\n", ("a",), 1, 2),
        ("a.b = 1\n[a]\n", ("a",), 1, 2),
        ("a.b = 1\na = 2\n", ("a",), 1, 2),
        ("[a.b]\n[a]\nb = 1\n", ("a", "b"), 1, 3),
        ("x = {a = 1, a = 2}\n", ("x", "a"), 1, 1),
        ("\nx = {a = 1}\nx.b = 2\n", ("x",), 2, 3),
        ("x = {}\n[x]\n", ("x",), 1, 2),
        ("a = []\n[[a]]\n", ("a",), 1, 2),
        ("[[a]]\n[a]\n", ("a",), 1, 2),
        ("[[a]]\nb = 1\n[[a]]\nb = 2\nb = 3\n", ("a", 1, "b"), 4, 5),
    ],
)
def test_what_stands_twice_is_found_with_both_lines(
    text: str, place: Place, first: int, second: int
) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    assert repeat_in(text) == (place, first, second)


@pytest.mark.parametrize("text", ["a = 1\nb = [", "a = [\na = 1", "[[[[", "a = " + "[" * 100_000])
def test_text_that_is_wrong_in_another_way_has_nothing_twice(text: str) -> None:
    assert repeat_in(text) is None
