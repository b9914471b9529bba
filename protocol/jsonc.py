"""JSON with comments and trailing commas, as editors write their settings, read as JSON.

Comments and commas become blanks, so that lines and columns stay the same. A comment without an end
is left, for the reader to report.
"""

from __future__ import annotations

import re

_STRING = rb'"(?:[^"\\\n]|\\.)*+"'
_COMMENT = re.compile(_STRING + rb"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(_STRING + rb"|,(?=\s*+[}\]])")


def plain_json(data: bytes) -> bytes:
    """Return the text with blanks for comments and for commas before a closing bracket."""
    return _COMMA.sub(_blank, _COMMENT.sub(_blank, data))


def _blank(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if text.startswith(b'"'):
        return text
    # One for each character, not byte: columns count those.
    return re.sub(r"\S", " ", text.decode(errors="replace")).encode()
