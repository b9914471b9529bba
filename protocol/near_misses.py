"""Fields that are ignored, but were probably meant: misspelt or misplaced ones.

Unknown fields are tolerated at the top level of a descriptor and in `transport`, so these are
warnings for a person, never a reason to refuse a descriptor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.descriptor_shape import DESCRIPTOR, SUPERVISION, TRANSPORT
from protocol.problem import Problem, nearest, step
from protocol.shape import Fields

# Nearer than in `supervision`, where an unknown key is wrong anyway: "comment" is no "command".
_CUTOFF = 0.8

_HOMES = (("", DESCRIPTOR), ("/transport", TRANSPORT), ("/supervision", SUPERVISION))


def near_misses(document: dict[str, Any]) -> list[Problem]:
    """Return warnings for ignored fields that look like known ones, sorted by pointer."""
    found = list(_misses(document, "", DESCRIPTOR))
    transport = document.get("transport")
    if isinstance(transport, dict):
        found += _misses(transport, "/transport", TRANSPORT)
    return sorted(found)


def _misses(value: dict[str, Any], at: str, known: Fields) -> Iterator[Problem]:
    absent = [field for field in known.fields if field not in value]
    for key in value:
        if key in known.fields:
            continue
        home = next((home for home, fields in _HOMES if key in fields.fields), None)
        meant = nearest(key, absent, _CUTOFF)
        if home is not None:
            hint = f"did you mean '{step(home, key)}'?"
        elif meant is not None:
            hint = f"did you mean '{meant}'?"
        else:
            continue
        yield Problem(step(at, key), f"unknown field, ignored; {hint}")
