"""Explain what is wrong, and where, in a line that cannot be read as JSON.

The words are for the program's author, who knows no decoder: the text at the place, and JSON's form
of it. A clause with the line as its subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from protocol.framing import BOM
from protocol.problem import printable, step

SHOWN_BYTES = 20
"""How much text is shown at the place of the fault."""

LOOKED_AT_BYTES = 1 << 16
"""In longer lines the number is not located: it would take several parses."""

LEVELS = 4
"""How deep the number is searched for."""

PLACE_CHARS = 80

_ANY = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

_PLACE = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|[^\0]\0[^\0]\0|\0[^\0]\0[^\0]")
_WORD = re.compile(rb"[-+]?[A-Za-z_]\w*")
_VALUES_ELSEWHERE = frozenset(b"none null nil undef undefined nan inf infinity true false".split())
"""How languages write null, true and false, and values that JSON has no word for."""

_NUMBER = re.compile(rb"-?\d")
_SPACE = 0x20


def is_utf16(line: bytes) -> bool:
    return _UTF_16.match(line) is not None


def why_malformed(line: bytes, found: str) -> str:
    """Return why a line, which is UTF-8, is not JSON; `found` are the decoder's words."""
    if line.startswith(BOM):
        return "begins with a byte order mark (BOM), which JSON does not"
    place = _PLACE.fullmatch(found)
    if place is not None:
        why = _why_at(line, int(place[2]), place[1])
        return f"is not JSON: {why}" if why else "is not JSON"
    if found.endswith("truncated"):
        return "is not JSON: it ends in the middle (printed over several lines? it has to be one)"
    return f"is not JSON: {found}"


def _why_at(line: bytes, at: int, words: str) -> str:
    """Say what is wrong at a place; nothing for plain text."""
    if words.startswith("trailing characters"):
        # A date is a number to a decoder, and what follows.
        begins = line.lstrip()[:1] in (b"{", b"[")
        return f"{_shown(line[at - 1 :])} follows its JSON" if begins else ""
    if (before := _before_object(line)) is not None:
        return f"{_shown(before)} stands before its JSON"
    rest = line[at:]
    word = _WORD.match(rest)
    there = f" at byte {at}" if at else ""
    if rest[:1] and rest[0] < _SPACE:
        return f"it has the control character 0x{rest[0]:02x}{there}, not written as an escape"
    if words.startswith("object keys"):
        return f"{_shown(rest)}{there} is not a key in double quotes"
    if word is not None and (at or rest.strip().lower() in _VALUES_ELSEWHERE):
        return f"{_shown(word[0])}{there} is not a JSON value"
    if rest.startswith(b"'"):
        return f"{_shown(rest)}{there} is not in double quotes"
    if not at:
        return ""
    return f"{words}{there}, where {_shown(rest)} stands" if rest else f"{words} at the end"


def too_large_number(line: bytes) -> str:
    """Return where a JSON line has a number that a double cannot hold."""
    pointer, token = _unkept(line, "", LEVELS) if len(line) <= LOOKED_AT_BYTES else ("", b"")
    place = printable(".".join(pointer.split("/")[1:]), PLACE_CHARS)
    where = f' in "{place}"' if place else ""
    number = f": {_shown(token)}{where}" if _NUMBER.match(token) else where
    return f"holds a number that is too large to be kept exactly{number}"


def _unkept(value: bytes, pointer: str, levels: int) -> tuple[str, bytes]:
    for key, part in _parts(value) if levels else ():
        try:
            _ANY.decode(part)
        except msgspec.ValidationError:
            return _unkept(bytes(part), step(pointer, key), levels - 1)
    return pointer, value


def _parts(value: bytes) -> Iterable[tuple[str | int, msgspec.Raw]]:
    try:
        match value.lstrip()[:1]:
            case b"{":
                return _MEMBERS.decode(value).items()
            case b"[":
                return enumerate(_ELEMENTS.decode(value))
    except (msgspec.DecodeError, RecursionError):
        pass  # what follows the number is no JSON
    return ()


def _before_object(line: bytes) -> bytes | None:
    """Return the text before a JSON object that ends the line, if there is some."""
    begin = line.find(b'{"')
    if begin <= 0 or not line.rstrip().endswith(b"}"):
        return None
    try:
        _ANY.decode(line[begin:])
    except (msgspec.DecodeError, RecursionError):
        return None
    return line[:begin]


def _shown(text: bytes) -> str:
    shown = printable(text[:SHOWN_BYTES].decode(errors="replace").strip(" "))
    return f"`{shown}…`" if len(text) > SHOWN_BYTES else f"`{shown}`"
