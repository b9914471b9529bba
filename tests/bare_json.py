"""Read and write JSON with what `json` itself is built upon.

Importing `json` takes as long as the start of Python, and modules of tests are started many
thousand times, each for a few lines.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Settings:
    """What `json.JSONDecoder` tells the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


def _refuse(value: object) -> None:
    raise TypeError(value)


_scan = _json.make_scanner(_Settings())  # type: ignore[arg-type] # as the json module calls it
_encode = _json.make_encoder(
    None, _refuse, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True
)


def loads(text: str | bytes) -> Any:
    """Parse a line that begins with its value."""
    value, _ = _scan(text.decode() if isinstance(text, bytes) else text, 0)
    return value


def dumps(value: Any) -> str:
    """Write a value as `json.dumps` does."""
    return "".join(_encode(value, 0))
