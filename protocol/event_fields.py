"""The fields of Spec 001's events (sections 3 and 4), for words about a wrong event.

`events` decides in one typed parse whether a line is an event; this file is for the words.
"""

from __future__ import annotations

from typing import Any

from protocol.problem import Problem
from protocol.shape import ANY_TEXT, Choice, Fields, Rule, Scalar, text

_OBJECT = Fields({})
_ENVELOPE: dict[str, Rule] = {
    "requestId": text("a string, that of the request", empty=True),
    "timestamp": ANY_TEXT,
}


def _event(*optional: str, **fields: Rule) -> Fields:
    required = tuple(name for name in fields if name not in optional)
    return Fields({**fields, **_ENVELOPE}, required=required)


_FIELDS = {
    "log": _event(
        "fields", level=Choice(("debug", "info", "warn", "error")), message=ANY_TEXT, fields=_OBJECT
    ),
    "state_patch": _event(patch=_OBJECT),
    "asset": _event(
        "metadata",
        assetId=ANY_TEXT,
        kind=ANY_TEXT,
        mediaType=ANY_TEXT,
        path=ANY_TEXT,
        metadata=_OBJECT,
    ),
    "ui_event": _event("payload", event=ANY_TEXT, payload=_OBJECT),
    "error": _event("details", errorCode=ANY_TEXT, errorMessage=ANY_TEXT, details=_OBJECT),
    "done": _event("summary", ok=Scalar("true or false", (bool,)), summary=ANY_TEXT),
}


def wrong_field(type_: str, fields: dict[str, Any]) -> str | None:
    """Say what is wrong with the first wrong field of an event of a known type, if any.

    `fields` has those that are not absent.
    """
    found: list[Problem] = []
    _FIELDS[type_](fields, "", found)
    if not found:
        return None
    first = min(found)
    return f'"{first.pointer.removeprefix("/")}" {first.message}'
