"""The daemon's memory: entries and documents on their way to disk, and those restored from it.

    record, keep -> store.writer (a thread) -> committed -> followers, and flushes

Everything here runs in the event loop and returns at once; the disk is the writer's. While it does
not serve, entries wait, up to a bound; beyond it they are counted, and `journal:dropped` says how
many once there is room again. All documents are then kept anew (`on_loss`), since a document may
have relied on an entry that was dropped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from protocol.errors import Failure, Reason
from protocol.journal_event import JournalEvent
from supervisor.kernel.recorder import Kept, Recorder, Restored, Unended, encoded
from supervisor.kernel.store.rows import EventRow
from supervisor.kernel.store.settings import DocumentKey, JournalOptions, Span
from supervisor.kernel.store.writer import RETRY_S, JournalState, Writer
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
        retry_s: float,
    ) -> None:
        super().__init__()
        self.path = data_dir / FILE
        self.wall_clock = wall_clock
        self.dropped = 0
        self.state = JournalState()
        self.unended: dict[DocumentKey, Unended] = {}
        """The documents without an end yet, which the writer's thread reads."""
        self._threads = threads
        self._unreported = 0
        self._late_s: float | None = None
        """How long the disk had not answered when somebody waited last."""
        self._over = False
        self._has_restored = False
        """Whether the documents in memory are all there are: the start did not go on without."""
        self._flushes: dict[int, Kept] = {}
        self._commits = trio.lowlevel.ParkingLot()
        self._opened = trio.Event()
        self._closed = trio.Event()
        self._writer = Writer(self, options, threads, retry_s)

    # The recorder.

    def _write(self, entry: JournalEvent, in_place_of: DocumentKey | None) -> None:
        data = entry.data or {}
        revision = data.get("revision") if entry.event == "session:patch" else None
        written = _entry(entry, revision, in_place_of)
        # One is dropped, so those after it are too, until there is room: the gap is one.
        if self._unreported or not self._writer.add(written):
            self._drop()
        if in_place_of is not None:
            self.unended.pop(in_place_of, None)
        if self._listener is not None:
            self._listener(entry, written.body)

    def keep(self, kind: str, name: str, document: bytes | None, revision: int = 0) -> None:
        self._writer.keep((kind, name), revision, document)

    def span_began(self, key: DocumentKey, document: Unended) -> None:
        self.unended[key] = document
        if self._writer.asleep:
            self._writer.wake()

    def span_ended(self, span: Span) -> bool:
        if self._listener is not None:
            return False
        if self._unreported or not self._writer.add(span):
            self._drop()
        self.unended.pop(span.key, None)
        return True

    def flush(self, done: Kept) -> None:
        refusal = self.unavailable()
        if refusal is not None:
            done(refusal)
            return
        self._flushes[self._writer.ask()] = done

    def flush_is_late(self, after_s: float) -> Failure:
        self._late_s = after_s
        return super().flush_is_late(after_s)

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
        if self.state.problem is not None:
            return self.state.problem
        if self._late_s is not None:
            return f"{shown(self.path)}: the disk did not answer in {self._late_s:g} s"
        if self._unreported:
            return f"{shown(self.path)}: the disk does not keep up with what is to be written"
        return None

    def status(self) -> dict[str, Any]:
        return {
            "path": shown(self.path),
            "id": self.state.journal,
            "events": self.state.events,
            "bytes": self.state.used_bytes,
            "waiting_bytes": self._writer.waiting_bytes,
            "last_seq": self.state.last_seq,
            "dropped": self.dropped,
            "problem": self.problem,
            "set_aside": [msgspec.to_builtins(one) for one in self.state.asides],
            **({} if self.state.set_back is None else {"set_back": self.state.set_back}),
        }

    @property
    def is_complete(self) -> bool:
        return self.problem is None and not self.state.asides and self.state.set_back is None

    async def wait_beyond(self, seq: int) -> None:
        """Return when an entry after `seq` is committed."""
        while self.state.last_seq <= seq:
            await self._commits.park()

    def suspect(self) -> None:
        """Set the file aside: data read from it is damaged."""
        self._writer.suspect()

    # Called for the writer, in the event loop.

    def take_opened(self, restored: Restored) -> None:
        if not self._opened.is_set():  # later it is too late: others have begun without it
            self.restored, self._has_restored = restored, True
        self._opened.set()

    def take_state(self, state: JournalState, renewed: bool) -> None:  # noqa: FBT001
        """Take the state; `renewed` says that the file is another journal's than before."""
        self.state = state
        if state.problem is not None:
            self._opened.set()
            self._end_flushes()
        else:
            self._late_s = None
            self._end_flushes(state.ticket)
            self._report_drops()
        if renewed and self._has_restored:
            # Of what is in that file, such as a revoked token, nothing is to come back.
            with self._writer.keeping_all():
                self._keep_again()
        elif renewed:
            self._keep_again()
        self._commits.unpark_all()

    def take_closed(self) -> None:
        self._over = True
        self._opened.set()
        self._closed.set()
        self._end_flushes()

    # Life.

    async def begin(self) -> None:
        self._writer.start()
        with trio.move_on_after(OPEN_S) as scope:
            await self._opened.wait()
        if scope.cancelled_caught:
            self._opened.set()
            self._late_s = OPEN_S
            log.warning("the journal did not open in time", path=shown(self.path))

    async def end(self) -> None:
        """Write what waits, as far as the daemon's end waits for that."""
        self._writer.close()
        with trio.move_on_after(self._threads.end_left_s(), shield=True) as scope:
            await self._closed.wait()
        if scope.cancelled_caught:
            log.warning("the journal was not written to its end", path=shown(self.path))

    def _end_flushes(self, ticket: int | None = None) -> None:
        """Answer the flushes up to a ticket, which is durable; without one, all: they failed."""
        failure = self.unavailable() if ticket is None else None
        over = [one for one in self._flushes if ticket is None or one <= ticket]
        for done in [self._flushes.pop(one) for one in over]:
            done(failure)

    def _drop(self) -> None:
        self.dropped += 1
        self._unreported += 1

    def _report_drops(self) -> None:
        if not self._unreported:
            return
        count = self._unreported
        event = JournalEvent(
            id=self.new_span(),
            ts=self.wall_clock(),
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

    def _keep_again(self) -> None:
        for keep_all in self.on_loss:
            keep_all()


@asynccontextmanager
async def remembering(
    data_dir: Path,
    options: JournalOptions,
    wall_clock: Callable[[], float] = time.time,
    threads: Threads | None = None,
    retry_s: float = RETRY_S,
) -> AsyncIterator[Journal]:
    """Keep the journal in `data_dir` around the block; a disk that fails does not make it fail.

    `threads` is told what its thread does; what failed is tried again after `retry_s`.
    """
    journal = Journal(data_dir, options, wall_clock, threads or Threads(), retry_s)
    await journal.begin()
    try:
        yield journal
    finally:
        await journal.end()


def _entry(
    event: JournalEvent, revision: int | None = None, key: DocumentKey | None = None
) -> EventRow:
    event, body = encoded(event)
    return EventRow(event.ts, event.event, event.module, event.session_id, revision, body, key)
