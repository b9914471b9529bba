"""Keep what a tap hears until it is written; bounded, and never blocking the module.

A recording is filled by the taps and emptied by `Recording.stream`, into a file (`TranscriptFile`)
or to the client of the op `record`. Bytes that do not fit are dropped and counted; the transcript
says where, and how many.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.connection import HostCalled, Request
from protocol.errors import Outcome
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Header,
    asked,
    encode_record,
    outcome_document,
    said,
)
from supervisor.runtime.held_bytes import TRANSCRIPTS, Account
from supervisor.runtime.taps import Tap

WAITING_BYTES = 8 << 20
"""How much may wait to be written; a pipe holds 64 KiB, so only a slow writer fills it."""

ENTRY_BYTES = 512
"""What each waiting item counts for beside its bytes, so that a flood of small ones is bounded."""

ENTRIES_AT_ONCE = 64
"""Entries that are handed over in one turn."""


class Recording(Tap):
    """What was heard of a module and not written yet."""

    def __init__(self, account: Account | None = None, *, until_exit: bool = False) -> None:
        """Hold waiting bytes for an `account`, if there is one.

        With `until_exit` it ends when a process has ended, with outcomes for all its requests.
        """
        self._started_at = trio.current_time()
        self._account = account
        self._until_exit = until_exit
        self._heard: list[tuple[Entry | _Passed, int]] = []
        self._news = trio.Event()
        self._waiting = 0
        self._gaps: dict[_Stream, Entry] = {}
        """The `missing` entries of what was lost since the last entry that had room."""
        self._skipped: dict[_Stream, bool] = {}
        """The streams of which the beginning of a line was not kept, and so is not its rest; and
        whether that counts as missing."""
        self.missing_bytes = 0
        """How many bytes the taken entries report as missing."""
        self.has_ended = False
        self._open: defaultdict[str, set[str]] = defaultdict(set)
        """The requests without an outcome, by process."""
        self._exited: set[str] = set()

    # What the tap hears.

    def said(self, instance: str, source: EntrySource, data: bytes) -> None:
        stream = (instance, source)
        if stream in self._skipped:
            rest, newline, data = data.partition(b"\n")
            if self._skipped[stream]:
                self._lose(stream, rest + newline)
            if newline:
                del self._skipped[stream]
        if data:
            passed = _Passed(self._elapsed_s(), instance, source, data)
            if not self._put(passed, ENTRY_BYTES + len(data)):
                self._lose(stream, data)

    def happened(self, instance: str, event: Happened, **facts: Any) -> None:
        if event is Happened.ATTACHED and facts["mid_line"]:
            self._skipped[instance, EntrySource.MODULE] = False
        self._note(instance, EntrySource.PROCESS, event=event, **facts)
        if event is Happened.EXITED:
            self._exited.add(instance)
            self._end_with(instance)

    def asked(self, instance: str, request: Request) -> None:
        self._open[instance].add(request.request_id)
        self._put_entry(asked(self._elapsed_s(), instance, request))

    def answered(self, instance: str, request: Request, outcome: Outcome) -> None:
        named = {"request_id": request.request_id, "operation": request.operation}
        document = outcome_document(outcome)
        self._note(instance, EntrySource.HOST, **named, op=request.op or None, outcome=document)
        self._open[instance].discard(request.request_id)
        self._end_with(instance)

    def host_answered(self, instance: str, called: HostCalled, outcome: Outcome) -> None:
        named = {"request_id": called.request_id, "call_id": called.call.call_id}
        self._note(instance, EntrySource.HOST, **named, outcome=outcome_document(outcome))

    def _end_with(self, instance: str) -> None:
        """End the recording, or forget a process, if that has exited and owes no outcome."""
        if instance in self._exited and not self._open[instance]:
            self._exited.discard(instance)
            del self._open[instance]
            if self._until_exit:
                self.end("a process ended")

    # What the writer does.

    async def stream(self, write: Callable[[list[Entry]], Awaitable[None]]) -> None:
        """Hand over all entries to `write`, a few at a time, until the recording has ended."""
        has_ended = False
        while not has_ended:
            await self.wait()
            has_ended = self.has_ended
            entries = self.take()
            while some := list(islice(entries, ENTRIES_AT_ONCE)):
                await write(some)

    async def wait(self) -> None:
        """Wait until there is something to take."""
        await self._news.wait()

    def take(self) -> Iterator[Entry]:
        """Yield the entries since the last call."""
        self._news = trio.Event()
        # Gaps are taken here, not when there is room again: the module may never write more.
        heard, self._heard = [*self._heard, *self._take_gaps()], []
        for one, size in heard:
            if isinstance(one, Entry):
                yield one
            else:
                yield from said(*one)
            self._hold(-size)

    def end(self, why: str) -> None:
        """Add the last entry, and record no more; only the first `why` counts."""
        if self.has_ended:
            return
        gaps = self._take_gaps()
        last = Entry(
            at_s=self._elapsed_s(),
            source=EntrySource.RECORDER,
            event=Happened.ENDED,
            missing_bytes=self.missing_bytes,
            why=why,
        )
        self._heard += [*gaps, (last, 0)]
        self.has_ended = True
        self._news.set()

    def drop(self) -> None:
        """Forget what was not taken, and record no more."""
        self.has_ended = True
        self._heard = []
        self._hold(-self._waiting)

    # What waits.

    def _elapsed_s(self) -> float:
        return round(trio.current_time() - self._started_at, 6)

    def _note(self, instance: str, source: EntrySource, **facts: Any) -> None:
        self._put_entry(Entry(at_s=self._elapsed_s(), instance=instance, source=source, **facts))

    def _put_entry(self, entry: Entry) -> None:
        size = ENTRY_BYTES + len(msgspec.json.encode(entry))
        if not self._put(entry, size):
            self._count((entry.instance or "", None), size, 1)

    def _put(self, heard: Entry | _Passed, size: int) -> bool:
        """Keep an entry; False if there is no room for it."""
        if self.has_ended:
            return True
        self._news.set()
        if self._waiting + size > WAITING_BYTES:
            return False
        if self._account is not None and not self._account.fits(size):
            return False
        self._heard += [*self._take_gaps(), (heard, size)]
        self._hold(size)
        return True

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
            at_s=self._elapsed_s(),
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
    """A file for a recording; `recording` is the tap to attach."""

    def __init__(self, path: Path, header: Header) -> None:
        """Create or truncate the file; raises `OSError`."""
        self.recording = Recording()
        self.error: str | None = None
        """Why the file is incomplete, once the block of `written` is left."""
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        # Without a buffer: that would be flushed to a disk that hangs as the interpreter ends.
        self._file = os.open(path, flags, 0o600)
        try:
            self._write([header])
        except OSError:
            os.close(self._file)
            raise

    @contextlib.asynccontextmanager
    async def written(self, why: str) -> AsyncIterator[None]:
        """Write what is recorded within the block, and the end with `why`, whatever that raises."""
        failure: BaseException | None = None
        # Not cancelled with the block: what it heard is written, too.
        writing = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run, writing)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised once all is written
                failure = error
            self.recording.end(why)
            writing.deadline = trio.current_time() + CLOSE_S
        if writing.cancelled_caught:
            self.error = f"{self._path}: the disk did not answer in {CLOSE_S:g} s"
        else:
            os.close(self._file)
        if failure is not None:
            raise failure

    async def _run(self, writing: trio.CancelScope) -> None:
        async def write(entries: list[Entry]) -> None:
            await trio.to_thread.run_sync(self._write, entries, abandon_on_cancel=True)

        try:
            with writing:
                await self.recording.stream(write)
        except OSError as error:
            # The recording goes on into its bounded buffer; the module is not concerned.
            self.error = f"{self._path}: {os.strerror(error.errno or 0)}"

    def _write(self, records: Iterable[Header | Entry]) -> None:
        data = memoryview(b"".join(map(encode_record, records)))
        while data:
            data = data[os.write(self._file, data) :]
