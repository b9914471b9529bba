"""JSON spelled in any way there is: white space, escapes, the order of keys, doubled keys."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

OWN = "r1-7f3a9c"
"""The id that the daemon gave the request of a line."""

BLANKS = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])


def quoted(draw: st.DrawFn, text: str) -> str:
    """Spell a string, some of its characters as escapes."""
    if not draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    escaped = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    spelled = [
        "".join(f"\\u{unit:04x}" for unit in _units(char))
        if is_escaped
        else json.dumps(char, ensure_ascii=False)[1:-1]
        for char, is_escaped in zip(text, escaped, strict=True)
    ]
    return f'"{"".join(spelled)}"'


def spelled(draw: st.DrawFn, value: Any) -> str:
    """Spell a value."""
    match value:
        case dict():
            return listed(draw, "{}", [_field(draw, *item) for item in value.items()])
        case list():
            return listed(draw, "[]", [spelled(draw, one) for one in value])
        case str():
            return quoted(draw, value)
        case _:
            return json.dumps(value)


def listed(draw: st.DrawFn, brackets: str, items: list[str]) -> str:
    """Put items between brackets, with blanks wherever they may be."""
    inner = ",".join(f"{draw(BLANKS)}{item}{draw(BLANKS)}" for item in items)
    return brackets[0] + (inner or draw(BLANKS)) + brackets[1]


@st.composite
def lines(draw: st.DrawFn, documents: st.SearchStrategy[dict[str, Any]]) -> bytes:
    """Draw a document, spelled as one line; some of its fields stand twice, with any string."""
    document = draw(documents)
    items = [_field(draw, name, value) for name, value in document.items()]
    doubled = [name for name, value in document.items() if isinstance(value, str)]
    items += [
        _field(draw, name, draw(st.sampled_from([OWN, "r2", "requestId"])))
        for name in draw(st.lists(st.sampled_from([*doubled, "requestId"]), max_size=2))
        if name not in ("version", "type", "level")
    ]
    items = draw(st.permutations(items))
    return (draw(BLANKS) + listed(draw, "{}", items) + draw(BLANKS)).encode()


def _field(draw: st.DrawFn, name: str, value: Any) -> str:
    return f"{quoted(draw, name)}{draw(BLANKS)}:{draw(BLANKS)}{spelled(draw, value)}"


def _units(char: str) -> list[int]:
    pairs = char.encode("utf-16-be")
    return [int.from_bytes(pairs[at : at + 2]) for at in range(0, len(pairs), 2)]
