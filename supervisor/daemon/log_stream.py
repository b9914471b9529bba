"""Write the daemon's own log to a place that may be full, gone or stuck.

A full disk (ENOSPC), a closed terminal (EIO), a reader that went away (EPIPE) or one that does not
read would otherwise fail, or hold up, whatever was about to say something. Lines that cannot be
written are counted, and the next one that can be is preceded by their number.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

PID_FIELD = "daemon_pid"
"""Whose line it is, in the log: another daemon may write to the same file."""

PIECE_BYTES = select.PIPE_BUF
"""A pipe that polls as writable takes this many without making the writer wait."""

PATIENCE_MS = 100
"""How long a reader may make the daemon wait; once, until it has read again."""


class LogStream:
    """A text stream, as far as structlog needs one."""

    def __init__(self, descriptor: int, notice: Callable[[int, str], str]) -> None:
        """Write to `descriptor`; `notice` makes a line out of a number of lost ones and why."""
        self.lost_lines = 0
        self._descriptor = descriptor
        self._notice = notice
        self._why = ""
        self._patience_ms = PATIENCE_MS
        self._torn = False

    def write(self, text: str) -> int:
        """Write a line, or count it as lost; never raises."""
        if self.lost_lines and self._put(self._notice(self.lost_lines, self._why)):
            self.lost_lines = 0
        if self.lost_lines or not self._put(text):
            self.lost_lines += 1
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def _put(self, text: str) -> bool:
        left = memoryview(("\n" * self._torn + text).encode(errors="backslashreplace"))
        size = len(left)
        while left:
            if not self._is_writable():
                self._why = "its reader does not read"
            else:
                try:
                    left = left[os.write(self._descriptor, left[:PIECE_BYTES]) :]
                    continue
                except OSError as error:
                    self._why = os.strerror(error.errno or 0)
            self._torn = self._torn or len(left) < size
            return False
        self._torn = False
        return True

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        # An error is for `write` to find out about; it does not block then.
        writable = bool(poll.poll(self._patience_ms))
        self._patience_ms = PATIENCE_MS if writable else 0
        return writable
