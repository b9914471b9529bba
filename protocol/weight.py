"""Tell what a JSON line would become in memory, without making anything of it.

A line of `{},{},...` becomes thirty times its own size as Python objects, and takes the better part
of a second; a string becomes its own size. So a long line is weighed by its bytes before it is
decoded. The figures are CPython's on a 64-bit machine. A number weighs no more than its place in an
array: what it takes beside that cannot be told by counting bytes, and is 32 bytes at the most. An
array of nothing but `-9` becomes fourteen times its own size, and no other one becomes more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LONG_BYTES = 1 << 18
"""Shorter lines are not looked at: whatever they hold, they become a few megabytes."""

OBJECT_BYTES = 72
ARRAY_BYTES = 80
FIELD_BYTES = 64
STRING_BYTES = 56
PLACE_BYTES = 8
"""What an object, an array, a field of an object, a string and a place in an array take, beside
what they hold."""

_WINDOW_BYTES = 1 << 16


def is_heavier(line: bytes, most_bytes: int) -> bool:
    """Tell whether what a line holds, but for its numbers, takes more than `most_bytes`.

    Linear in the line's length, and holds one more copy of it at the most. Of bytes that are no
    JSON the answer means nothing.
    """
    strings = line.count(b'"') // 2
    commas = line.count(b",")
    if _weight(line.count(b"{"), line.count(b"["), line.count(b":"), strings, commas) <= most_bytes:
        return False  # no more than that, even if all of these stand outside of strings
    if b"\\" in line:
        line = line.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote is an end
    objects = arrays = fields = strings = commas = inside = 0
    for start in range(0, len(line), _WINDOW_BYTES):
        pieces = line[start : start + _WINDOW_BYTES].split(b'"')
        outside = b"".join(pieces[inside::2])
        quotes = len(pieces) - 1
        strings += (quotes + 1 - inside) // 2
        inside = (inside + quotes) % 2
        objects += outside.count(b"{")
        arrays += outside.count(b"[")
        fields += outside.count(b":")
        commas += outside.count(b",")
        if _weight(objects, arrays, fields, strings, commas) > most_bytes:
            return True
    return False


def _weight(objects: int, arrays: int, fields: int, strings: int, commas: int) -> int:
    # A field's name is in the field's weight: short ones are shared by all the objects of a line.
    values = max(strings - fields, 0)
    # So is its comma. One more field never makes less of the sum: a part never outweighs the whole.
    places = max(commas - fields, 0)
    return (
        objects * OBJECT_BYTES
        + arrays * ARRAY_BYTES
        + fields * FIELD_BYTES
        + values * STRING_BYTES
        + places * PLACE_BYTES
    )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Decode a long line within this block: a million new values are not to be looked through.

    JSON cannot form a cycle, and the collector's looks take three times as long as the decoding.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
