"""What a process finds on its stdin, perhaps before it first looks."""

from __future__ import annotations

import contextlib
import os


class Opening:
    """Bytes for a process that is about to be spawned.

    They are written once it is contained and limited and dies with the daemon; where that is so
    before the event loop hears of it, by the thread that spawns it: the process works while the
    loop gets ready to listen.
    """

    def __init__(self, data: bytes, *, closes_stdin: bool) -> None:
        """`closes_stdin`: nothing comes after `data`."""
        self._data = data
        self._closes_stdin = closes_stdin
        self._begun = False
        self._written = 0
        self.withheld = False
        """Set when it is not to be written; without effect once it was begun."""

    @property
    def written(self) -> bytes:
        return self._data[: self._written]

    @property
    def left(self) -> bytes:
        """What the pipe had no room for; nothing of an opening that was withheld."""
        return self._data[self._written :] if self._begun else b""

    def write(self, stdin: int) -> bool:
        """Write what a pipe takes this moment, once; returns whether it is to be closed then."""
        if self.withheld or self._begun:
            return False
        self._begun = True
        # Whatever is wrong with the pipe, the writer of the rest will meet it too.
        with contextlib.suppress(OSError):
            self._written = os.write(stdin, self._data)
        return self._closes_stdin and not self.left
