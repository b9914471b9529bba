"""Write the daemon's own log to a place that may be full, gone or stuck.

A full disk (ENOSPC), a closed terminal (EIO) or a reader that went away (EPIPE) would otherwise
fail whatever was about to say something; a reader that does not read, or a dead mount, would hold
it up. So a thread writes, behind a queue of bounded bytes. Lines that find no room there, or that
cannot be written, are counted, and the next one that can be is preceded by their number.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from supervisor.runtime.begun_thread import begun_thread
from supervisor.runtime.held_bytes import LOGS, Account

if TYPE_CHECKING:
    # `up` reads the log, too, and needs no event loop for that.
    from supervisor.runtime.blocking import BlockingWork

PID_FIELD = "daemon_pid"
"""Whose line it is, in the log: another daemon may write to the same file."""

QUEUE_BYTES = 1 << 20
"""How much may wait to be written: some thousand lines."""

CLOSE_S = 2.0
"""How long the end of the daemon waits at the most for what does not answer."""

SLOW = "they came faster than they could be written"

Put = Callable[[bytes], int]
"""As `os.write` to somewhere."""


class _Waiting(NamedTuple):
    line: bytes
    lines: int
    told: int
    """How many lost ones it tells of: if it is lost, they are untold again."""


class LogStream:
    """A text stream, as far as structlog needs one; it can be written to from any thread."""

    def __init__(self, put: Put, notice: Callable[[int, str], str], blocking: BlockingWork) -> None:
        """Write by `put`; `notice` makes a line out of a number of lost ones and why.

        `blocking` is told what the thread is at.
        """
        self.lost_lines = 0
        """Since the daemon's start."""
        self.problem: str | None = None
        """Why the last line could not be written."""
        self._put = put
        self._notice = notice
        self._blocking = blocking
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._untold = 0
        """So many of the lost lines are not said in the log yet."""
        self._torn = False
        self._thread: threading.Thread | None = None
        self._account: Account | None = None
        self._account_thread = 0

    def hold_in(self, account: Account) -> None:
        """Hold what waits in an account of the thread that calls: no other may change a ledger.

        So what the log's own thread has written is taken note of when that thread looks next. No
        line is lost for what others hold: it may be what tells of them.
        """
        self._account, self._account_thread = account, threading.get_ident()

    def write(self, text: str) -> int:
        """Queue a line, or count it as lost; never raises, and never waits."""
        line = text.encode(errors="backslashreplace")
        with self._lock:
            if self._waiting_bytes + len(line) > QUEUE_BYTES:
                self._lose(1, 0, self.problem or SLOW)
            else:
                self._submit(line, 1)
            self._have_thread()
        return len(text)

    def flush(self) -> None:
        """Do nothing: what waits is written as soon as can be."""

    def close(self) -> None:
        """Write what waits, as far as that can be done in time."""
        with self._lock:
            if self._untold:
                self._submit(b"", 0)
            self._have_thread()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(min(CLOSE_S, self._blocking.end_left_s()))

    def status(self) -> dict[str, Any]:
        """Return what `status` shows."""
        self._hold()
        return {"lost_lines": self.lost_lines, "problem": self.problem}

    def _hold(self) -> None:
        """Take note of what waits by now, if that is possible here."""
        if self._account is not None and threading.get_ident() == self._account_thread:
            self._account.hold(LOGS, self._waiting_bytes)

    def _submit(self, line: bytes, lines: int) -> None:
        told, self._untold = self._untold, 0
        if told:
            line = self._notice(told, self.problem or SLOW).encode() + line
        self._waiting_bytes += len(line)
        self._queue.put(_Waiting(line, lines, told))
        self._hold()

    def _have_thread(self) -> None:
        if self._thread is None and not self._queue.empty():
            self._thread = begun_thread(self._run, "daemon-log")

    def _run(self) -> None:
        while (one := self._queue.get()) is not None:
            with self._blocking.naming("writing the daemon's own log"):
                problem = self._write(one.line)
            with self._lock:
                self._waiting_bytes -= len(one.line)
                self.problem = None
                if problem is not None:
                    self._lose(one.lines, one.told, problem)

    def _lose(self, lines: int, told: int, problem: str) -> None:
        self.problem = problem
        self.lost_lines += lines
        self._untold += lines + told

    def _write(self, line: bytes) -> str | None:
        """Write all of it; returns why that could not be done."""
        left = b"\n" * self._torn + line
        size = len(left)
        try:
            while left:
                left = left[self._put(left) :]
        except OSError as error:
            self._torn = self._torn or len(left) < size
            return os.strerror(error.errno or 0)
        self._torn = False
        return None
