"""Compare a JSON document with what is expected of it: exactly, but for what is marked as open."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Some:
    """Any value of one of these types: a pid, an age, a request's number."""

    kinds: tuple[type, ...]

    def __str__(self) -> str:
        """Name the types."""
        return " or ".join(f"some {kind.__name__}" for kind in self.kinds)


@dataclass(frozen=True)
class Like:
    """A text that a regular expression matches from end to end."""

    pattern: str

    def __str__(self) -> str:
        """Show the expression."""
        return f"a text like /{self.pattern}/"


@dataclass(frozen=True)
class Having:
    """An object with at least these fields."""

    fields: dict[str, Any]


SOME_INT = Some((int,))
SOME_NUMBER = Some((int, float))
SOME_TEXT = Some((str,))


def difference(expected: Any, found: Any, at: str = "") -> str | None:
    """Return where `found` is not what was expected first, in words; None if it is."""
    match expected:
        case Some(kinds):
            return None if type(found) in kinds else _differs(expected, found, at)
        case Like(pattern):
            alike = isinstance(found, str) and re.fullmatch(pattern, found, re.DOTALL)
            return None if alike else _differs(expected, found, at)
        case Having(fields):
            if not isinstance(found, dict):
                return _differs(fields, found, at)
            return _first(fields, {key: found[key] for key in fields if key in found}, at)
        case dict() if isinstance(found, dict):
            return _first(expected, found, at)
        case list() if isinstance(found, list) and len(expected) == len(found):
            return _first(dict(enumerate(expected)), dict(enumerate(found)), at)
        case _:
            # As JSON tells them apart: to Python 1, 1.0 and True are the same.
            same = type(expected) is type(found) and expected == found
            return None if same else _differs(expected, found, at)


def _first(expected: dict[Any, Any], found: dict[Any, Any], at: str) -> str | None:
    for key, value in expected.items():
        if key not in found:
            return f"{at}/{key}: expected {_shown(value)}, found nothing"
        words = difference(value, found[key], f"{at}/{key}")
        if words is not None:
            return words
    for key in found.keys() - expected.keys():
        return f"{at}/{key}: expected nothing, found {_shown(found[key])}"
    return None


def _differs(expected: Any, found: Any, at: str) -> str:
    return f"{at or 'the whole'}: expected {_shown(expected)}, found {_shown(found)}"


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Some | Like) else json.dumps(value, default=str)
    limit = 400
    return text if len(text) <= limit else text[:limit] + "…"
