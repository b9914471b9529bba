"""Keep a tap's bytes until they are written down; bounded, and never blocking the module.

A recording is filled by the event loop and emptied by a writer: a thread (`TranscriptFile`), or the
op that streams it to a client. Bytes that do not fit are dropped and counted; the transcript says
where, and how many.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.connection import HostCalled, Request
from protocol.descriptor.model import Descriptor
from protocol.errors import Outcome
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Header,
    asked,
    descriptor_document,
    encode_record,
    outcome_document,
    said,
)
from protocol.version import VERSION
from supervisor.runtime.held_bytes import TRANSCRIPTS, Account
from supervisor.runtime.taps import Tap

WAITING_BYTES = 8 << 20
"""How much may wait to be written; a pipe holds 64 KiB, so only a slow writer fills it."""

ENTRY_BYTES = 512
"""What each waiting item counts for beside its bytes, so that a flood of small ones is bounded."""


def header_of(descriptor: Descriptor, recorded: str) -> Header:
    """Return the header of a transcript; `recorded` is the time of its beginning, ISO 8601."""
    return Header(
        transcript=1,
        module=descriptor.name,
        protocol=descriptor.transport.protocol,
        lifecycle=descriptor.transport.lifecycle,
        descriptor=descriptor_document(descriptor),
        recorded=recorded,
        stdiod=VERSION,
        source=descriptor.source,
    )


def _nothing() -> None:
    pass


class Recording(Tap):
    """What was heard of a module and not written yet."""

    def __init__(self, wake: Callable[[], None], account: Account | None = None) -> None:
        """Call `wake`, in the event loop, whenever there is something to write.

        With an `account`, waiting bytes are held for it, and everything is done in the event loop.
        """
        self.started_at = trio.current_time()
        self._wake = wake
        self._account = account
        self._lock = threading.Lock()
        self._heard: list[tuple[Entry | _Passed, int]] = []
        self._waiting = 0
        self._gaps: dict[_Stream, Entry] = {}
        """The `missing` entries of what was lost since the last entry that had room."""
        self._skipped: dict[_Stream, bool] = {}
        """The streams of which the beginning of a line was not kept, and so is not its rest; and
        whether that counts as missing."""
        self.missing_bytes = 0
        """How many bytes the taken entries report as missing."""
        self.saw_an_end = False
        """Whether a process has ended, with outcomes for all its requests."""
        self._open: Counter[str] = Counter()
        self._exited: set[str] = set()

    @property
    def elapsed_s(self) -> float:
        return round(trio.current_time() - self.started_at, 6)

    # What the tap hears.

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        stream = (instance, source)
        if stream in self._skipped:
            rest, newline, data = data.partition(b"\n")
            if self._skipped[stream]:
                with self._lock:
                    self._lose(stream, rest + newline)
            if newline:
                del self._skipped[stream]
        if data:
            self._put(_Passed(self.elapsed_s, instance, source, data), ENTRY_BYTES + len(data))

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        if event is Happened.ATTACHED and facts["mid_line"]:
            self._skipped[instance, EntrySource.MODULE] = False
        if event is Happened.EXITED and self._open[instance]:
            self._exited.add(instance)
        elif event is Happened.EXITED:
            self._ended(instance)
        self._note(instance, EntrySource.PROCESS, event=event, **facts)

    def asked(self, instance: str, request: Request) -> None:
        self._open[instance] += 1
        self._put_entry(asked(self.elapsed_s, instance, request))

    def answered(self, instance: str, request: Request, outcome: Outcome) -> None:
        self._open[instance] -= 1
        if not self._open[instance] and instance in self._exited:
            self._ended(instance)
        named = {"request_id": request.request_id, "operation": request.operation}
        document = outcome_document(outcome)
        self._note(instance, EntrySource.HOST, **named, op=request.op or None, outcome=document)

    def host_answered(self, instance: str, called: HostCalled, outcome: Outcome) -> None:
        named = {"request_id": called.request_id, "call_id": called.call.call_id}
        self._note(instance, EntrySource.HOST, **named, outcome=outcome_document(outcome))

    def _ended(self, instance: str) -> None:
        self.saw_an_end = True
        self._exited.discard(instance)
        del self._open[instance]

    # What the writer does.

    def take(self) -> Iterator[Entry]:
        """Yield the entries since the last call; from one thread."""
        with self._lock:
            # Gaps are taken here, not when there is room again: the module may never write more.
            heard, self._heard = [*self._heard, *self._take_gaps()], []
        for one, size in heard:
            if isinstance(one, Entry):
                yield one
            else:
                yield from said(*one)
            with self._lock:
                self._hold(-size)

    def end(self, at_s: float, why: str) -> Entry:
        """Return the last entry."""
        return Entry(
            at_s=at_s,
            source=EntrySource.RECORDER,
            event=Happened.ENDED,
            missing_bytes=self.missing_bytes,
            why=why,
        )

    def _note(self, instance: str, source: EntrySource, **facts: Any) -> None:
        self._put_entry(Entry(at_s=self.elapsed_s, instance=instance, source=source, **facts))

    def _put_entry(self, entry: Entry) -> None:
        self._put(entry, ENTRY_BYTES + len(msgspec.json.encode(entry)))

    def _put(self, heard: Entry | _Passed, size: int) -> None:
        with self._lock:
            has_room = self._account is None or self._account.fits(size)
            if self._waiting + size <= WAITING_BYTES and has_room:
                self._heard += [*self._take_gaps(), (heard, size)]
                self._hold(size)
            elif isinstance(heard, Entry):
                self._count((heard.instance or "", None), size, 1)
            else:
                self._lose((heard.instance, heard.source), heard.data)
        self._wake()

    def drop(self) -> None:
        """Forget what was not taken; nothing is taken or recorded after it."""
        self._heard = []
        self._hold(-self._waiting)
        self._wake = _nothing  # its owner's, who holds it

    def _hold(self, more: int) -> None:
        self._waiting += more
        if self._account is not None:
            self._account.add(TRANSCRIPTS, more)

    def _take_gaps(self) -> list[tuple[Entry | _Passed, int]]:
        gaps: list[tuple[Entry | _Passed, int]] = [(one, 0) for one in self._gaps.values()]
        self.missing_bytes += sum(one.size or 0 for one in self._gaps.values())
        self._gaps.clear()
        return gaps

    def _lose(self, stream: _Stream, data: bytes) -> None:
        if not data.endswith(b"\n"):
            self._skipped[stream] = True
        self._count(stream, len(data), data.count(b"\n"))

    def _count(self, stream: _Stream, size: int, lines: int) -> None:
        before = self._gaps.get(stream)
        instance, source = stream
        self._gaps[stream] = Entry(
            at_s=self.elapsed_s,
            instance=instance,
            source=EntrySource.RECORDER,
            event=Happened.MISSING,
            stream=source,
            size=size + (before.size or 0 if before else 0),
            lines=lines + (before.lines or 0 if before else 0),
        )


class _Passed(NamedTuple):
    """Bytes of a stream, as they passed."""

    at_s: float
    instance: str
    source: EntrySource
    data: bytes


_Stream = tuple[str, EntrySource | None]


CLOSE_S = 10.0
"""How long the end of a recording waits for a disk that does not answer."""


class TranscriptFile:
    """A file that a recording is written to; `recording` is the tap to attach."""

    def __init__(self, path: Path, header: Header) -> None:
        """Create or truncate the file; raises `OSError`."""
        self._awake = threading.Event()
        self.recording = Recording(self._awake.set)
        self.error: str | None = None
        """Why the file is incomplete, once `close` has returned."""
        self._path = path
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(number, "wb")
        try:
            self._file.write(encode_record(header))
            self._file.flush()
        except OSError:
            self._file.close()
            raise
        self._ending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ended_at = 0.0
        # A daemon thread: a disk that hangs for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="transcript", daemon=True)
        self._thread.start()

    def close(self, why: str) -> None:
        """Write what waits, and the end with `why`; the recording must be detached."""
        if not self._thread.is_alive():
            return
        self._ended_at = self.recording.elapsed_s
        self._ending.put(why)
        self._awake.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self.error = f"{self._path}: the disk did not answer in {CLOSE_S:g} s"

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
                self._write(self.recording.end(self._ended_at, self._ending.get()))
        except OSError as error:
            # The recording goes on into its bounded buffer; the module is not concerned.
            self.error = f"{self._path}: {os.strerror(error.errno or 0)}"

    def _write(self, entry: Entry) -> None:
        self._file.write(encode_record(entry))
