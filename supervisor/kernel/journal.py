"""The daemon's memory: entries and documents on their way to disk, and those restored from it.

    record, keep -> store.writer (a thread) -> committed -> followers, and flushes

Everything here runs in the event loop and returns at once; the disk is the writer's. While it does
not serve, entries wait, up to a bound; beyond it they are counted, and `journal:dropped` says how
many once there is room again. All documents are then kept anew (`on_loss`), since a document may
have relied on an entry that was dropped.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from protocol.errors import Failure, Reason
from protocol.journal_event import JournalEvent
from supervisor.kernel.durability import FLUSH_S
from supervisor.kernel.recorder import (
    Kept,
    Recorder,
    Restored,
    Unended,
    encoded,
)
from supervisor.kernel.store.retention import Clocks
from supervisor.kernel.store.rows import EventRow
from supervisor.kernel.store.settings import DocumentKey, JournalOptions, Span
from supervisor.kernel.store.writer import Relay, Told, Writer, WriterOptions
from supervisor.runtime.files.directory import shown
from supervisor.runtime.threads import Threads

FILE = "journal.db"

OPEN_S = 30.0
"""How long the start waits for the file; a daemon whose disk hangs serves without memory."""

log = structlog.get_logger()


class Journal(Recorder):
    """The recorder that writes to disk; made by `remembering`."""

    _keeps = True

    def __init__(
        self,
        data_dir: Path,
        options: JournalOptions,
        wall_clock: Callable[[], float],
        threads: Threads,
        flush_s: float,
    ) -> None:
        super().__init__()
        self.path = data_dir / FILE
        self._flush_s = flush_s
        self.life = uuid.uuid4().hex[:8]
        self.dropped = 0
        self.told = Told()
        self._wall_clock = wall_clock
        self._threads = threads
        self.new_span: Callable[[], str] = map(
            f"{self.life}-{{:x}}".format, itertools.count(1)
        ).__next__
        """Returns a unique id, in this life of the daemon or another."""
        self.span_of: Callable[[str], str] = f"{self.life}-i".__add__
        """The same for a request; no digit of the others is an "i"."""
        self._unended: dict[DocumentKey, Unended] = {}
        self._unreported = 0
        self._lost = False
        self._late = False
        self._over = False
        self._flushes: dict[int, tuple[float, Kept]] = {}
        self._flush_asked = trio.Event()
        self._commits = trio.lowlevel.ParkingLot()
        self._opened = trio.Event()
        self._closed = trio.Event()
        self._writer = Writer(
            WriterOptions(
                path=self.path,
                life=self.life,
                power=options.power,
                limits=options.limits,
                clocks=Clocks(wall_clock, time.monotonic),
            ),
            Relay(self, trio.lowlevel.current_trio_token()),
            self._unended,
            threads,
        )

    # The recorder.

    def _write(self, entry: JournalEvent, in_place_of: DocumentKey | None) -> None:
        data = entry.data or {}
        revision = data.get("revision") if entry.event == "session:patch" else None
        written = _entry(entry, revision, in_place_of)
        # One is dropped, so those after it are too, until there is room: the gap is one.
        if self._unreported or not self._writer.add(written):
            self._drop()
        if in_place_of is not None:
            self._unended.pop(in_place_of, None)
        if self._listener is not None:
            self._listener(entry, written.body)

    def keep(self, kind: str, name: str, document: bytes | None, revision: int = 0) -> None:
        self._writer.keep((kind, name), revision, document)

    def span_began(self, key: DocumentKey, document: Unended) -> None:
        self._unended[key] = document
        if self._writer.asleep:
            self._writer.wake()

    def span_ended(self, span: Span) -> bool:
        if self._listener is not None:
            return False
        if self._unreported or not self._writer.add(span):
            self._drop()
        self._unended.pop(span.key, None)
        return True

    def flush(self, done: Kept) -> None:
        refusal = self.unavailable()
        if refusal is not None:
            done(refusal)
            return
        ticket = self._writer.ask()
        self._flushes[ticket] = (trio.current_time(), done)
        self._flush_asked.set()

    def unavailable(self) -> Failure | None:
        problem = self.problem
        if problem is None:
            return None
        return Failure.because(Reason.STORAGE, f"the daemon cannot store anything now: {problem}")

    # What else is known of it.

    @property
    def problem(self) -> str | None:
        """Why nothing can be kept at the moment, in words."""
        if self._over:
            return f"{shown(self.path)}: the daemon has ended"
        if self.told.problem is not None:
            return self.told.problem
        if self._late:
            return f"{shown(self.path)}: the disk did not answer in {self._flush_s:g} s"
        if self._lost:
            return f"{shown(self.path)}: the disk does not keep up with what is to be written"
        return None

    def status(self) -> dict[str, Any]:
        return {
            "path": shown(self.path),
            "id": self.told.journal,
            "events": self.told.events,
            "bytes": self.told.used_bytes,
            "waiting_bytes": self._writer.waiting_bytes,
            "last_seq": self.told.last_seq,
            "dropped": self.dropped,
            "problem": self.problem,
            "set_aside": [msgspec.to_builtins(one) for one in self.told.asides],
        }

    @property
    def is_complete(self) -> bool:
        return self.problem is None and not self.told.asides

    async def wait_beyond(self, seq: int) -> None:
        """Return when an entry after `seq` is committed."""
        while self.told.last_seq <= seq:
            await self._commits.park()

    def suspect(self) -> None:
        """Set the file aside: data read from it is damaged."""
        self._writer.suspect()

    # Called for the writer, in the event loop.

    def take_opened(self, restored: Restored) -> None:
        if not self._opened.is_set():  # later it is too late: others have begun without it
            self.restored = restored
        self._opened.set()

    def take_told(self, told: Told, *, renewed: bool) -> None:
        self.told = told
        if told.problem is not None:
            self._opened.set()
            self._end_flushes(self.unavailable(), lambda _ticket, _asked_at: True)
        else:
            self._late = False
            self._end_flushes(None, lambda ticket, _asked_at: ticket <= told.ticket)
            self._report_drops()
        if renewed:
            self._keep_again()
        self._commits.unpark_all()

    def take_closed(self) -> None:
        self._over = True
        self._opened.set()
        self._closed.set()
        self._end_flushes(self.unavailable(), lambda _ticket, _asked_at: True)

    # Life.

    async def begin(self) -> None:
        self._writer.start()
        with trio.move_on_after(OPEN_S) as scope:
            await self._opened.wait()
        if scope.cancelled_caught:
            self._opened.set()
            self._late = True
            log.warning("the journal did not open in time", path=shown(self.path))

    async def end(self) -> None:
        """Write what waits, as far as the daemon's end waits for that."""
        self._writer.close()
        with trio.move_on_after(self._threads.end_left_s(), shield=True) as scope:
            await self._closed.wait()
        if scope.cancelled_caught:
            log.warning("the journal was not written to its end", path=shown(self.path))

    async def expire_flushes(self) -> None:
        """Answer flushes that have waited too long for the disk, until cancelled."""
        while True:
            await self._flush_asked.wait()
            while self._flushes:
                asked_at, _ = next(iter(self._flushes.values()))
                await trio.sleep_until(asked_at + self._flush_s)
                before = trio.current_time() - self._flush_s
                if any(asked_at <= before for asked_at, _ in self._flushes.values()):
                    self._late = True
                    self._end_flushes(self.unavailable(), lambda _, at: at <= before)  # noqa: B023
            self._flush_asked = trio.Event()

    def _end_flushes(self, failure: Failure | None, ended: Callable[[int, float], bool]) -> None:
        over = [one for one, (asked_at, _) in self._flushes.items() if ended(one, asked_at)]
        for done in [self._flushes.pop(ticket)[1] for ticket in over]:
            done(failure)

    def _drop(self) -> None:
        self.dropped += 1
        self._unreported += 1
        self._lost = True

    def _report_drops(self) -> None:
        if not self._unreported:
            return
        count = self._unreported
        event = JournalEvent(
            id=self.new_span(),
            ts=self._wall_clock(),
            event="journal:dropped",
            component="supervisor",
            data={"count": count},
        )
        written = _entry(event)
        if self._writer.add(written):
            self._unreported = 0
            log.warning("entries of the journal were dropped", count=count)
            if self._listener is not None:
                self._listener(event, written.body)
            self._keep_again()
            self._lost = False

    def _keep_again(self) -> None:
        for keep_all in self.on_loss:
            keep_all()


@asynccontextmanager
async def remembering(
    data_dir: Path,
    options: JournalOptions,
    wall_clock: Callable[[], float] = time.time,
    threads: Threads | None = None,
    flush_s: float = FLUSH_S,
) -> AsyncIterator[Journal]:
    """Keep the journal in `data_dir` around the block; a disk that fails does not make it fail.

    `threads` is told what its thread does.
    """
    journal = Journal(data_dir, options, wall_clock, threads or Threads(), flush_s)
    await journal.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.expire_flushes)
        try:
            yield journal
        finally:
            await journal.end()
            nursery.cancel_scope.cancel()


def _entry(
    event: JournalEvent, revision: int | None = None, key: DocumentKey | None = None
) -> EventRow:
    event, body = encoded(event)
    return EventRow(event.ts, event.event, event.module, event.session_id, revision, body, key)
