"""A problem of a JSON document: where it is, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

EXCERPT_CHARS = 60
POINTER_CHARS = 200
COMPARED = 32
COMPARED_CHARS = 40
"""Only so many words, of such a length, are compared: difflib takes 0.05 ms for a usual pair, and
is quadratic in their length."""
SLIP_CHARS = 32
_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789-_."

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class Problem(msgspec.Struct, frozen=True, order=True):
    """What is wrong at one place of a document.

    `pointer` is a JSON pointer (RFC 6901), "" for the whole document. `message` is a phrase whose
    subject is the value at that place; it says what would be right.
    """

    pointer: str
    message: str

    def __str__(self) -> str:
        """Return one line, however odd the keys in the pointer are."""
        where = printable(self.pointer, POINTER_CHARS)
        return f"{where}: {self.message}" if where else self.message


def step(pointer: str, key: str | int) -> str:
    """Return the pointer of a member or element below `pointer`."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def kind(value: Any) -> str:
    return _KINDS[type(value)]


def described(value: Any) -> str:
    """Show a scalar as JSON, shortened; name the type of an array or object."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | dict):
        return kind(value)
    return shortened(_as_json(value), EXCERPT_CHARS)


def literal(value: Any) -> str:
    """Show a value as JSON, shortened; an array or object too."""
    if isinstance(value, list | dict):
        return printable(shortened(_as_json(value, ensure_ascii=False), EXCERPT_CHARS))
    return described(value)


def quoted(text: str) -> str:
    """Show a string as JSON, shortened, without anything that cannot be printed."""
    text = shortened(without_password(text), EXCERPT_CHARS)
    return printable(_as_json(text, ensure_ascii=False))


# One pass over the text, since modules print any length of it.
_USER = re.compile(r"""(://|(?<=http):/|(?<=https):/)[^\s/?#"'<>]*@""")
_USER_OF_HOST = re.compile(
    r"""((?<!\S)|(?<=[="']))[^\s/:@="']+:[^\s/@="']+@(?!sha\d)(?=([\w.-]+|\[[\da-f:]+\]):\d)"""
)


def without_password(text: str) -> str:
    """Write `***@` for the `user:password@` of each address in a text."""
    if "@" not in text:
        return text
    return _USER_OF_HOST.sub("***@", _USER.sub(r"\1***@", text))


def shortened(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters; the last one is then an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str, limit: int | None = None) -> str:
    """Write a text on one line: what cannot be printed is written as an escape."""
    if limit is not None:
        text = shortened(text, limit)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def named(text: str, limit: int) -> str:
    """Quote a name that a client asked for, cut; takes time for the cut part only."""
    return shortened(repr(text[:limit]), limit)


def did_you_mean(word: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """Return `; did you mean 'x'?` for the nearest known word, or nothing."""
    found = nearest(word, known, cutoff)
    return f"; did you mean '{printable(found, EXCERPT_CHARS)}'?" if found is not None else ""


def nearest(word: str, known: Collection[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that `word` most probably stands for, if one is near enough.

    Few known words are all compared. Of many, only those are found that lack one character, have
    one more, another one, or two in the other order; that takes a millisecond at the most, however
    many there are, if `known` can be looked into by key.
    """
    if len(known) > COMPARED:
        return _one_slip_away(word, known)
    if len(word) > COMPARED_CHARS:
        return None
    # Only for a misspelt word, and so only then: every command would wait for the import.
    from difflib import get_close_matches  # noqa: PLC0415

    folded = {one.lower(): one for one in known if len(one) <= COMPARED_CHARS}
    matches = get_close_matches(word.lower(), folded, n=1, cutoff=cutoff)
    return folded[matches[0]] if matches else None


def _one_slip_away(word: str, known: Collection[str]) -> str | None:
    if len(word) > SLIP_CHARS:
        return None
    if not isinstance(known, AbstractSet | Mapping):
        known = frozenset(known)
    return next((slip for slip in _slips(word) if slip in known), None)


def _slips(word: str) -> Iterator[str]:
    """Yield the words that may have been meant, the most frequent mistakes first."""
    yield word.lower()
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]
    for at in range(len(word) + 1):
        head, tail, rest = word[:at], word[at:], word[at + 1 :]
        for char in _CHARS:
            yield head + char + tail
            yield head + char + rest


def _as_json(value: Any, *, ensure_ascii: bool = True) -> str:
    # Imported here for the same reason as `difflib`.
    import json  # noqa: PLC0415

    return json.dumps(value, ensure_ascii=ensure_ascii)
