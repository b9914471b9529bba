"""Decide whether a string is a valid MIME type (Spec 001 4.3: `mediaType` MUST be one)."""

from __future__ import annotations

import re

# RFC 6838 4.2 restricted names, with RFC 2045 5.1 parameters after them.
_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&\-^_.+]{0,126}"
_WORD = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|{_QUOTED}))*")

LONGEST = 1024
"""No registered type comes near; a bound keeps a hostile one cheap."""


def is_media_type(text: str) -> bool:
    """Tell whether `text` is `type/subtype` with optional parameters."""
    return len(text) <= LONGEST and _MEDIA_TYPE.fullmatch(text) is not None
