"""Read a whole JSON file strictly, and explain its faults by line, column or pointer.

Stricter than the standard library where a silent reading would surprise the author of the file:
duplicate keys, NaN and Infinity, numbers that do not survive a round trip, lone surrogates and
extreme depth are refused. A UTF-8 byte order mark is tolerated.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from protocol.problem import Problem, kind, printable, quoted, step

MAX_DEPTH = 128  # orjson and msgspec write 254 and more levels; no hand writes a tenth of it.
_INT_RANGE = range(-(2**63), 2**64)  # what orjson writes
_INT_CHARS = 20  # of the longest in that range; int() is quadratic and refuses 4,300 digits

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# What the standard library's error leaves unread when a literal, number or escape is cut short.
_CUT_REST = re.compile(
    r"""\s*
    | t(ru?)? | f(a(ls?)?)? | n(ul?)?
    | -? | \. | [eE][+-]?
    | \\?u?[0-9a-fA-F]{0,4}
    """,
    re.VERBOSE,
)


class _Repeated(dict[str, Any]):
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.keys_repeated = {key for key, count in counts.items() if count > 1}


class _Unusable(NamedTuple):
    """Stands in for an unusable value; `why` is a problem's message."""

    why: str


def read_document(data: bytes) -> dict[str, Any] | list[Problem]:
    """Parse bytes that must be one JSON object; return it, or its problems (never none)."""
    if not data.removeprefix(codecs.BOM_UTF8).strip():
        return [Problem("", "the file is empty, it must be one JSON object")]
    value, problems = read_value(data)
    if not problems and not isinstance(value, dict):
        problems = [Problem("", f"is {kind(value)}, must be one JSON object")]
    return problems or value


def read_value(data: bytes) -> tuple[Any, list[Problem]]:
    """Parse bytes that must be one JSON value; return it, and its problems."""
    text = _decode(data)
    if isinstance(text, Problem):
        return None, [text]
    try:
        value, flawed = _parse(text)
    except json.JSONDecodeError as error:
        return None, [_explain(text, error)]
    except RecursionError:
        return None, [Problem("", f"is nested more than {MAX_DEPTH} levels deep")]
    flaws = list(_flaws(value)) if flawed or _is_suspect(text) else []
    return value, flaws


def _decode(data: bytes) -> str | Problem:
    if data.startswith(_UTF16_MARKS):
        return Problem("", "is UTF-16, must be UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        if error.end == len(data) and error.reason == "unexpected end of data":
            return _cut(before)
        where = _place(before, len(before))
        return Problem("", f"is not UTF-8: byte 0x{data[error.start]:02x} at {where}")


def _place(text: str, index: int) -> str:
    line_start = text.rfind("\n", 0, index) + 1
    return f"line {text.count(chr(10), 0, index) + 1} column {index - line_start + 1}"


def _cut(text: str) -> Problem:
    where = _place(text, len(text))
    return Problem("", f"the JSON ends in the middle, {where}; is the file still being written?")


def _explain(text: str, error: json.JSONDecodeError) -> Problem:
    at = error.pos
    if error.msg.startswith("Illegal trailing comma"):
        # Python 3.13 points to the comma, those before it to what follows.
        at += 1
        at += len(text) - at - len(text[at:].lstrip())
    rest = text[at:]
    if error.msg.startswith("Unterminated string") or _CUT_REST.fullmatch(rest):
        return _cut(text)
    where = _place(text, at)
    return Problem("", f"is not JSON at {where}: {_words(error.msg, rest, text[:at])}")


def _words(said: str, rest: str, before: str) -> str:
    if said == "Extra data":
        return "something follows the end of the JSON value"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if rest.startswith("'"):
        return "strings are written in double quotes"
    if rest.startswith(("True", "False", "None")):
        return "true, false and null are written in lower case"
    if rest.startswith(("}", "]", ",")) and before.rstrip().endswith(","):
        return f"nothing stands between ',' and '{rest[0]}'"
    if said.startswith("Invalid control character"):
        return f"a string holds a raw control character, written {printable(repr(rest[0]))} in JSON"
    return said[0].lower() + said[1:]


def _parse(text: str) -> tuple[Any, bool]:
    """Return the value, and whether `_Unusable` and `_Repeated` stand for flaws in it."""
    flaws: list[str] = []

    def unusable(why: str) -> _Unusable:
        flaws.append(why)
        return _Unusable(why)

    def integer(digits: str) -> int | _Unusable:
        value = int(digits) if len(digits) <= _INT_CHARS else _INT_RANGE.stop
        fits = value in _INT_RANGE
        return value if fits else unusable("is an integer that does not fit in 64 bits")

    def number(digits: str) -> float | _Unusable:
        value = float(digits)
        return unusable("is a number too large for a double") if math.isinf(value) else value

    def constant(name: str) -> _Unusable:
        return unusable(f"is {name}, which JSON does not have")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        flaws.append("a key that stands there twice")
        return _Repeated(pairs)

    decoder = json.JSONDecoder(
        parse_int=integer, parse_float=number, parse_constant=constant, object_pairs_hook=members
    )
    return decoder.decode(text), bool(flaws)


def _is_suspect(text: str) -> bool:
    """Tell from the text alone whether it may be too deep or hold a lone surrogate."""
    if text.count("{") + text.count("[") > MAX_DEPTH:
        return True
    return _SURROGATE_ESCAPE.search(text) is not None


def _flaws(root: Any) -> Iterator[Problem]:
    left: list[tuple[str, int, Any]] = [("", 1, root)]
    while left:
        at, depth, value = left.pop()
        if isinstance(value, _Unusable):
            yield Problem(at, value.why)
        elif isinstance(value, str):
            if _SURROGATE.search(value):
                yield Problem(at, "holds half of a surrogate pair, which is not a character")
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                yield Problem("", f"is nested more than {MAX_DEPTH} levels deep")
                return
            yield from _key_flaws(at, value)
            members = value.items() if isinstance(value, dict) else enumerate(value)
            left.extend((_step(at, key), depth + 1, member) for key, member in members)


def _step(at: str, key: str | int) -> str:
    # A pointer with a lone surrogate in it could not be written to anyone.
    return step(at, _SURROGATE.sub("\ufffd", str(key)))


def _key_flaws(at: str, value: dict[str, Any] | list[Any]) -> Iterator[Problem]:
    if isinstance(value, _Repeated):
        for key in sorted(value.keys_repeated):
            yield Problem(_step(at, key), f"the key {quoted(key)} stands here more than once")
    if isinstance(value, dict):
        for key in value:
            if _SURROGATE.search(key):
                words = "has a key with half of a surrogate pair, which is not a character"
                yield Problem(at, words)


_STRING = rb'"(?:[^"\\\n]|\\.)*+"'
_COMMENT = re.compile(_STRING + rb"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(_STRING + rb"|,(?=\s*+[}\]])")


def plain_json(data: bytes) -> bytes:
    """Return plain JSON of one with comments and trailing commas, as editors write their settings.

    Comments and commas become blanks, so that lines and columns stay the same. A comment without an
    end is left, for the reader to report.
    """
    return _COMMA.sub(_blank, _COMMENT.sub(_blank, data))


def _blank(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if text.startswith(b'"'):
        return text
    # One for each character, not byte: columns count those.
    return re.sub(r"\S", " ", text.decode(errors="replace")).encode()
