"""An entry of the journal as JSON, whatever is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.journal_event import JournalEvent

DEPTH = 32
"""Values that cannot be encoded are copied this deep, with what is wrong replaced."""

_encode = msgspec.json.Encoder().encode


def encoded(entry: JournalEvent) -> tuple[JournalEvent, bytes]:
    """Return an entry as JSON, and what of it could be written: all, unless that is no JSON."""
    try:
        return entry, _encode(entry)
    except (RecursionError, UnicodeError, TypeError, ValueError, OverflowError):
        # A name on disk that is no UTF-8, say: an entry with a mark in it is better than none.
        # `by` is JSON already, and none of what was said.
        whole = _encodable(msgspec.structs.asdict(msgspec.structs.replace(entry, by=None)))
        marked = msgspec.structs.replace(msgspec.convert(whole, JournalEvent), by=entry.by)
        return marked, _encode(marked)


def _encodable(value: Any, depth: int = DEPTH) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case bool() | int() | float() | None:
            return value
        case Mapping() if depth:
            return {
                str(_encodable(str(key))): _encodable(one, depth - 1) for key, one in value.items()
            }
        case list() | tuple() if depth:
            return [_encodable(one, depth - 1) for one in value]
        case _:
            return "\N{REPLACEMENT CHARACTER}"
