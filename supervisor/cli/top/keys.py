from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto


class Key(Enum):
    QUIT = auto()
    SORT = auto()
    RESTART = auto()
    LOGS = auto()
    YES = auto()
    UP = auto()
    DOWN = auto()
    PAGE_UP = auto()
    PAGE_DOWN = auto()
    TOP = auto()
    BOTTOM = auto()
    OTHER = auto()
    """Any other key; it answers a question with no."""


_KEYS = {
    b"q": Key.QUIT,
    b"Q": Key.QUIT,
    b"s": Key.SORT,
    b"r": Key.RESTART,
    b"l": Key.LOGS,
    b"\r": Key.LOGS,
    b"\n": Key.LOGS,
    b"y": Key.YES,
    b"k": Key.UP,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"j": Key.DOWN,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN,
    b" ": Key.PAGE_DOWN,
    b"g": Key.TOP,
    b"\x1b[H": Key.TOP,
    b"\x1bOH": Key.TOP,
    b"\x1b[1~": Key.TOP,
    b"G": Key.BOTTOM,
    b"\x1b[F": Key.BOTTOM,
    b"\x1bOF": Key.BOTTOM,
    b"\x1b[4~": Key.BOTTOM,
}
_ONE_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[^\x1b]|\x1b(?![\[O]|$)", re.DOTALL)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;]{0,16}|O)?\Z")


class Keys:
    """Splits input into keys; an arrow may come in two pieces over a slow line."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> Iterator[Key]:
        data = self._left + data
        unfinished = _UNFINISHED.search(data)
        self._left = b"" if unfinished is None else unfinished[0]
        for found in _ONE_KEY.finditer(data[: len(data) - len(self._left)]):
            yield _KEYS.get(found[0], Key.OTHER)
