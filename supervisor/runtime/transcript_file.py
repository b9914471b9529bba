"""Write a recording to a file from a thread, as `log_files` does: a disk that stalls stalls nobody.

The file is the user's alone (mode 0600): a transcript holds everything that was said.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from protocol.transcript import Entry, Header, encode_record
from supervisor.runtime.recording import Recording

CLOSE_S = 10.0
"""How long the end of a recording waits for a disk that does not answer."""


class TranscriptFile:
    """A file that a recording is written to; `recording` is what to attach."""

    def __init__(self, path: Path, header: Header) -> None:
        """Make the file, or write over the one that there is; raises `OSError`."""
        self.recording = Recording(self._wake)
        self.error: str | None = None
        """Why not all of it could be written, once `close` has returned."""
        self._path = path
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(number, "wb")
        try:
            self._file.write(encode_record(header))
            self._file.flush()
        except OSError:
            self._file.close()
            raise
        self._awake = threading.Event()
        self._ending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ended_at = 0.0
        # A daemon thread: a disk that hangs for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="transcript", daemon=True)
        self._thread.start()

    def close(self, why: str) -> None:
        """Write what waits and the end, in which `why` stands; the recording is detached by now."""
        if not self._thread.is_alive():
            return
        self._ended_at = self.recording.elapsed_s
        self._ending.put(why)
        self._awake.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self.error = f"{self._path}: the disk did not answer in {CLOSE_S:g} s"

    def _wake(self) -> None:
        self._awake.set()

    def _run(self) -> None:
        try:
            with self._file:
                while True:
                    self._awake.wait()
                    self._awake.clear()
                    ending = not self._ending.empty()
                    for entry in self.recording.take():
                        self._write(entry)
                    if ending:
                        break
                    self._file.flush()
                for entry in self.recording.end(self._ended_at, self._ending.get()):
                    self._write(entry)
        except OSError as error:
            # The recording goes on into its bounded buffer; the module is not concerned.
            self.error = f"{self._path}: {os.strerror(error.errno or 0)}"

    def _write(self, entry: Entry) -> None:
        self._file.write(encode_record(entry))
