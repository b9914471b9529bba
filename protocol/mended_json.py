"""Read a line that is no JSON but has one clear meaning.

Only for lines that the strict reader has refused (`json_line.read_object`). `json` reads what
msgspec does not: NaN, Infinity, and control characters that stand in a string as they are.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from protocol.json_line import MENDED_BYTES, is_utf8, without_lone_surrogates
from protocol.malformed_json import is_utf16

SURROGATES = "half characters as \\ufffd"

_CP1252 = {0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in range(128, 256)}
"""The Windows-1252 character of each byte that is not UTF-8, by its surrogate escape."""


def mended(line: bytes) -> tuple[Any, list[str]] | None:
    """Return the value of a line, and its repairs; None if the meaning is not clear."""
    if len(line) > MENDED_BYTES or is_utf16(line):
        return None
    repairs: list[str] = []
    whole = without_lone_surrogates(line)
    if whole is not None:
        repairs.append(SURROGATES)
    text = (whole or line).decode(errors="surrogateescape")
    if not is_utf8(line):
        repairs.append("bytes that are no UTF-8 as Windows-1252")
        text = text.translate(_CP1252)
    constants: list[str] = []
    read = partial(json.loads, text, parse_constant=constants.append, parse_float=_finite)
    try:
        try:
            value = read()
        except json.JSONDecodeError as error:
            if "control character" not in error.msg:
                raise
            value = read(strict=False)
            repairs.append("control characters as they stand there")
    except (ValueError, RecursionError):
        return None
    if constants:
        repairs.append("NaN and Infinity as null")
    return value, repairs


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number that no double holds")
    return number
