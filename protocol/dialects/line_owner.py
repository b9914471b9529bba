"""Whether a bad line is meant as an answer, or is other output of a program.

A line is meant as an answer if it is an empty object, or has one of the keys that answers have, or
cannot be read and begins as such an object would; so does a `{` alone, with which JSON over several
lines begins. Anything else (a banner, a program's own log in JSON) answers no request.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from protocol.json_line import Fault
from protocol.malformed_json import is_utf16
from protocol.replies import EXPECTED, Operation

_KEYS = frozenset({"ok", "result", "error", "status", "type"})

_MARK = re.compile(rb"\xef\xbb\xbf|\xff\xfe|\xfe\xff")
_BEGINS_JSON = re.compile(rb'\{\s*(?:\Z|")')
_BEGINS_SHOWN = re.compile(rb"\{\s*'?(?:ok|result|error|status|type|requestId)'?\s*:")
"""How Python and JavaScript print an object for people."""


def is_meant_as_answer(
    line: bytes | dict[str, Any], operation: Operation = Operation.INVOKE
) -> bool:
    """Tell whether a wrong or unreadable line is meant as an answer.

    A `describe` may be meant by its `name`, too.
    """
    if isinstance(line, bytes):
        line = _MARK.sub(b"", line, count=1) if _MARK.match(line) else line
        if is_utf16(line):
            line = line.replace(b"\0", b"")
        return bool(_BEGINS_JSON.match(line) or _BEGINS_SHOWN.match(line))
    if not line or not _KEYS.isdisjoint(line):
        return True
    return operation is Operation.DESCRIBE and "name" in line


def unreadable_answer(line: bytes, fault: Fault, operation: Operation) -> Fault:
    """Return the fault of a line that is meant as an answer, with what would be right."""
    hint = ""
    if _BEGINS_SHOWN.match(line):
        hint = " (an object as the language shows it? JSON.stringify and json.dumps make JSON)"
    words = f"bad reply to {operation}: {fault.message}{hint}; expected {EXPECTED[operation]}"
    return msgspec.structs.replace(fault, message=words)
