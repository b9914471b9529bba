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

from supervisor.runtime.held_bytes import LOGS, Account
from supervisor.runtime.threads import begin_thread

if TYPE_CHECKING:
    # `up` reads the log, too, and needs no event loop for that.
    from supervisor.runtime.threads import Threads

PID_FIELD = "daemon_pid"
"""The pid of the daemon that wrote a line: daemons may share a log file."""

QUEUE_BYTES = 1 << 20
"""The bytes that may wait to be written: some thousand lines."""

CLOSE_S = 2.0
"""How long the end of the daemon waits at the most for a log that does not take its lines."""

SLOW = "they came faster than they could be written"

Put = Callable[[bytes], int]
"""Like `os.write` to a descriptor."""


class _Waiting(NamedTuple):
    line: bytes
    lines: int
    told: int
    """The number of lost lines that this line reports; added back if this line is lost."""


class LogStream:
    """The part of a text stream that structlog needs; any thread may write."""

    def __init__(self, put: Put, notice: Callable[[int, str], str], threads: Threads) -> None:
        """Write by `put`; `notice` makes a line out of a number of lost lines and the reason.

        `threads` is told what the thread does.
        """
        self.lost_lines = 0
        self.problem: str | None = None
        """Why the last line could not be written."""
        self._put = put
        self._notice = notice
        self._threads = threads
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._untold = 0
        """Lost lines that no line of the log has reported yet."""
        self._torn = False
        self._thread: threading.Thread | None = None
        self._account: Account | None = None
        self._account_thread = 0

    def hold_in(self, account: Account) -> None:
        """Count the queue in an account, in the calling thread: no other may change a ledger.

        So the bytes that the log's own thread has written are counted when that thread checks next.
        No line is dropped because of other holders: it may be the line that reports them.
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
        """Do nothing: lines are written as soon as possible."""

    def close(self) -> None:
        """Write the queued lines, within `CLOSE_S`."""
        with self._lock:
            if self._untold:
                self._submit(b"", 0)
            self._have_thread()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(min(CLOSE_S, self._threads.end_left_s()))

    def status(self) -> dict[str, Any]:
        self._hold()
        return {"lost_lines": self.lost_lines, "problem": self.problem}

    def _hold(self) -> None:
        """Count the queue in the account, if this is the account's thread."""
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
            self._thread = begin_thread(self._run, "daemon-log")

    def _run(self) -> None:
        while (one := self._queue.get()) is not None:
            with self._threads.naming("writing the daemon's own log"):
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
        """Write all of it; returns the reason if that failed."""
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
