"""Count what a JSON line costs to build while it comes, without building any of it.

Building a value takes some 0.1 us and 100 bytes, and further work on it as much again: a line of a
million values holds up all other modules for a quarter of a second, though it may be no longer than
a string that takes no time. So a long line is refused as soon as it has too many. Counted
is each comma, each `[` and each `{` outside of strings: an object or an array that holds something
counts twice. Integers and floats of many digits take time by the digit (4 MB of integers of 4300
digits: 140 ms), and strings by the escape; so ten digits of a long number count as a value, and so
do 32 escapes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

MOST_VALUES = 1 << 17
"""Building them takes 5 to 20 ms, and as much memory as 30 MB. Other work on a built line, checking
args or encoding it again, takes up to as long."""

LONG_BYTES = 1 << 18
"""Shorter lines are not counted: they cannot hold many more values."""

_WINDOW_BYTES = 1 << 16

ESCAPES = 32
"""So many count as a value."""

_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 20
"""As many digits take time beyond that of a value: integers of up to 19 are read at once."""

VALUES_OF_LONG = 2


class ValueCount:
    """Counts the values of one line, fed in pieces."""

    def __init__(self) -> None:
        self._plain = 0
        self._slow = 0
        """For digits and escapes."""
        self._digits = b""
        """Those at the end of the last piece."""
        self._backslashes = 0
        self._inside = 0
        """Whether the next byte is within a string, as 0 or 1."""
        self._escapes = False
        """Whether the last piece ended in a backslash that escapes the next character."""

    @property
    def values(self) -> int:
        return self._plain + self._slow

    @property
    def name(self) -> str:
        """The words for the limit that the line passed: values, or also digits and escapes."""
        if self._slow <= self._plain:
            return "values"
        return "values (ten digits of a long number count as one, and so do 32 escapes)"

    def feed(self, piece: bytes | memoryview) -> int:
        """Count a piece, in time linear in its length; returns the count so far.

        For bytes that are no JSON the count means nothing.
        """
        for start in range(0, len(piece), _WINDOW_BYTES):
            self._feed(bytes(piece[start : start + _WINDOW_BYTES]))
        return self.values

    def _feed(self, piece: bytes) -> None:
        values, self._backslashes = divmod(self._backslashes + piece.count(b"\\"), ESCAPES)
        self._slow += values
        if self._escapes:
            piece = piece[1:]
            self._escapes = False
        if b"\\" in piece:
            backslashes = len(piece) - len(piece.rstrip(b"\\"))
            self._escapes = backslashes % 2 == 1
            # Now each quote is an end.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = piece.split(b'"')
        outside = b"".join(pieces[self._inside :: 2])
        self._inside = (self._inside + len(pieces) - 1) % 2
        self._plain += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        digits = self._digits + outside.translate(_AS_ZEROS)
        self._slow += VALUES_OF_LONG * digits.count(_LONG)
        self._digits = b"0" * ((len(digits) - len(digits.rstrip(b"0"))) % len(_LONG))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while a long line is decoded.

    JSON cannot form a cycle, and collecting a million new values takes three times as long as the
    decoding.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_CONTAINERS = (dict, list)  # a tuple is looked through in half the time of a union


def is_deeper(value: Any, levels: int, read_from: bytes | None = None) -> bool:
    """Tell whether a value nests more than `levels` objects and arrays.

    The brackets in the text that it was `read_from` are counted first: mostly there are fewer.
    """
    if read_from is not None and not _opens_more(read_from, levels):
        return False
    layer = [value] if isinstance(value, dict | list) else []
    for level in range(1, levels + 1):
        if not layer:
            return False
        # An empty value holds nothing deeper: it counts only if it is too deep itself.
        last = level == levels
        held = chain.from_iterable(one.values() if isinstance(one, dict) else one for one in layer)
        layer = [one for one in held if (one or last) and isinstance(one, _CONTAINERS)]
    return bool(layer)


def _opens_more(text: bytes, levels: int) -> bool:
    # Counting a byte takes 0.35 ms per megabyte, finding it next to nothing.
    opened = 0
    for bracket in (b"{", b"["):
        at = text.find(bracket)
        while at >= 0:
            opened += 1
            if opened > levels:
                return True
            at = text.find(bracket, at + 1)
    return False
