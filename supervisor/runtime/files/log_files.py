"""The module logs on disk, written by one thread, each file bounded and rotated.

Disks stall; the event loop must not. So all file work happens in one thread behind a queue that is
bounded in bytes: what does not fit is dropped and counted, and the file says so. Reading the tail
goes through the same queue, so it sees exactly what was written before it was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import quote

from supervisor.runtime.files.rotated_file import FILES, append, numbered
from supervisor.runtime.threads import Threads, begin_thread

QUEUE_BYTES = 8 << 20
"""How much may wait for the disk, all modules together."""

BATCH_BYTES = 1 << 18
"""How much is written at once: a flood of short lines costs one write for many."""

NAME_CHARS = 200
"""File systems allow 255 bytes; the rest is for the ending."""


class LogFiles:
    """Append to files in one folder, from one thread; never blocks the caller."""

    def __init__(self, folder: Path, threads: Threads | None = None) -> None:
        """Write below `folder`, which is made when the first line is written.

        `threads` is told what the thread is at.
        """
        self.folder = folder
        self._threads = threads or Threads()
        self.dropped_bytes = 0
        self._errors: dict[str, str] = {}
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._batches: dict[str, bytearray] = {}
        """The batch of a log to which lines are still added: no tail was asked for after it."""
        self._reads: dict[str, dict[object, Callable[[], None]]] = {}
        """The tails of a log that are read together: no line came after the first."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def last_error(self) -> str | None:
        """Why the newest write failed, among the logs whose last write did."""
        with self._lock:
            return next(reversed(self._errors.values()), None)

    def path(self, name: str) -> Path:
        return self.folder / f"{_file_name(name)}.log"

    def append(self, name: str, data: bytes) -> None:
        """Queue whole lines for a log; dropped and counted if the disk is too far behind."""
        with self._lock:
            self._add(name, data)
        self._have_thread()

    def _add(self, name: str, data: bytes) -> None:
        if self._waiting + len(data) > QUEUE_BYTES:
            self.dropped_bytes += len(data)
            return
        self._reads.pop(name, None)
        self._waiting += len(data)
        batch = self._batches.get(name)
        if batch is not None and len(batch) + len(data) <= BATCH_BYTES:
            batch += data
            return
        self._batches[name] = batch = bytearray(data)
        self._queue.put(lambda: self._write_batch(name, batch))

    def tail(
        self, name: str, lines: int, reply: Callable[[list[bytes]], None]
    ) -> Callable[[], None]:
        """Call `reply`, in the writing thread, with the last lines of a log.

        Returns a function that gives that up: `reply` is not called then.
        """
        key = object()
        with self._lock:
            # What is appended from here on is to be written after the tail was read.
            self._batches.pop(name, None)
            is_queued = name in self._reads
            reads = self._reads.setdefault(name, {})
            reads[key] = lambda: reply(self._read_tail(name, lines))
        if not is_queued:
            self._queue.put(lambda: self._read_all(name, reads))
        self._have_thread()

        def give_up() -> None:
            reads.pop(key, None)

        return give_up

    def forget(self, name: str) -> None:
        """Clear the error of a log that has ended, once what waits for it was tried."""
        if self._thread is not None:
            self._queue.put(lambda: self._forget_error(name))

    def close(self) -> None:
        """Write what waits, within what is left of the daemon's end, then end the thread."""
        self._have_thread()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(self._threads.end_left_s())
            self._thread = None

    def _have_thread(self) -> None:
        if self._thread is None and not self._queue.empty():
            self._thread = begin_thread(self._run, "module-logs")

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            with self._threads.naming("writing and reading the modules' logs"):
                work()

    def _write_batch(self, name: str, batch: bytearray) -> None:
        with self._lock:
            if self._batches.get(name) is batch:
                del self._batches[name]
        self._write(name, bytes(batch))

    def _read_all(self, name: str, reads: dict[object, Callable[[], None]]) -> None:
        with self._lock:
            if self._reads.get(name) is reads:
                del self._reads[name]
        for key in tuple(reads):
            read = reads.pop(key, None)
            if read is not None:  # not given up meanwhile
                read()

    def _forget_error(self, name: str) -> None:
        with self._lock:
            self._errors.pop(name, None)

    def _write(self, name: str, data: bytes) -> None:
        path = self.path(name)
        failed: str | None = None
        try:
            # Anew if it was deleted.
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # A pipe in its place is an error, and not waited for: all modules share the thread.
            self.dropped_bytes += len(data) - append(path, data, flags=os.O_NONBLOCK)
        except OSError as error:
            # ENOSPC and its like degrade the logs, not the daemon: the next line tries again.
            failed = f"{path}: {os.strerror(error.errno or 0)}"
            self.dropped_bytes += len(data)
        finally:
            with self._lock:
                self._waiting -= len(data)
                self._errors.pop(name, None)
                if failed is not None:
                    self._errors[name] = failed

    def _read_tail(self, name: str, lines: int) -> list[bytes]:
        path = self.path(name)
        kept: deque[bytes] = deque(maxlen=lines)
        for number in range(FILES - 1, -1, -1):
            with contextlib.suppress(OSError), _opened(numbered(path, number)) as file:
                kept.extend(line.rstrip(b"\n") for line in file)
        return list(kept)


def _opened(path: Path) -> IO[bytes]:
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _file_name(name: str) -> str:
    # A module's name may be anything but a path; a file's name is held to less, and to 255 bytes.
    safe = quote(name, safe=" ")
    safe = "%2E" + safe[1:] if safe.startswith(".") else safe
    if len(safe) <= NAME_CHARS:
        return safe
    return safe[:NAME_CHARS] + "~" + hashlib.sha256(name.encode()).hexdigest()[:16]
