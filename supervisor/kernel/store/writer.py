"""The one thread that writes the journal: it collects a group for a moment, and commits it.

    waiting -> (GROUP_S, or at once for a flush) -> a transaction -> the journal's state
                                          fails -> kept, and tried again after RETRY_S

The queue to the disk is bounded in bytes; an entry beyond that is refused (`add` returns False)
and the caller counts it. Documents are never refused: there is one of each. A file that turns out
to be damaged is set aside, and the queue goes into the new one, numbered on.

Entries come without a lock: the event loop appends, the thread takes from the other end, and is
woken only when it sleeps. Documents without an end yet (`unended`) are not queued at all: with each
group the thread reads which there are. It reads them *before* it takes the entries, and the event
loop adds an entry before it removes the document that the entry ends; so the disk always has one of
the two. Most of these documents have their end a moment later, and never need a row: only those
that the group before saw, too, get one, and all there are for a flush.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio

from supervisor.kernel.recorder import Restored, Unended
from supervisor.kernel.store.database import (
    FAILURES,
    Aside,
    Database,
    how_to_read,
    in_words,
    is_damage,
    open_database,
    transaction,
)
from supervisor.kernel.store.retention import Retention
from supervisor.kernel.store.rows import (
    Batch,
    EventRow,
    insert_entries,
    remove_documents,
    store_documents,
)
from supervisor.kernel.store.settings import UNENDED, DocumentKey, JournalOptions, Span
from supervisor.runtime.threads import Threads

if TYPE_CHECKING:
    from supervisor.kernel.journal import Journal

QUEUE_BYTES = 32 << 20
"""Bytes that may wait for the disk: a second of a daemon that does nothing but answer."""

GROUP_S = 0.01
"""How long a group is collected while no flush waits for it."""

RETRY_S = 1.0
"""After a failure of the disk, while something waits."""

TEND_S = 600.0
"""How often an idle daemon looks for entries that are too old."""

TEND_BYTES = 4 << 20
"""How much is written between two looks at the size."""

log = structlog.get_logger()


class JournalState(msgspec.Struct, frozen=True):
    """What the event loop knows of the journal, after each change."""

    ticket: int = 0
    """All that was to be durable up to this number is."""
    journal: str = ""
    last_seq: int = 0
    events: int = 0
    used_bytes: int = 0
    problem: str | None = None
    """Why nothing can be written at the moment."""
    asides: tuple[Aside, ...] = ()
    set_back: str | None = None
    """How much the file lacked when it was opened, if it was set back."""


class Writer:
    """The thread, and the queue to it; `add`, `keep`, `ask` and `close` never block."""

    def __init__(
        self, journal: Journal, options: JournalOptions, threads: Threads, retry_s: float
    ) -> None:
        """Write to the journal's path; made in the event loop."""
        self._journal = journal
        self._options = options
        self._threads = threads
        self._retry_s = retry_s
        self._loop = trio.lowlevel.current_trio_token()
        self._unended = journal.unended
        self._pending = Batch()
        self._entries: deque[EventRow | Span] = deque()
        self.asleep = False
        self._added_bytes = 0
        """Of all entries that ever came; counted by the event loop alone."""
        self._written_bytes = 0
        """Of those that were written; counted by the thread alone."""
        self._asked = 0
        self._suspected = False
        self._closing = False
        self._changed = threading.Condition(threading.RLock())
        # The rest is the thread's own.
        self._database: Database | None = None
        self._stored: set[DocumentKey] = set()
        """The documents that have a row, or had one when the file could be opened last."""
        self._stored_unended: set[DocumentKey] = set()
        self._seen: AbstractSet[DocumentKey] = set()
        """The keys without an end when the last group was taken."""
        self._opened = False
        self._batch = Batch()
        self._retention = Retention(options.limits, journal.wall_clock, time.monotonic)
        self._untended_bytes = 0
        self._state = JournalState()
        # A daemon thread: a disk that hangs for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    # For the event loop.

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        return self._added_bytes - self._written_bytes

    def add(self, entry: EventRow | Span) -> bool:
        """Queue an entry, the end of what is `unended` under its key; False without room."""
        added_bytes = self._added_bytes + entry.size_bytes
        if added_bytes - self._written_bytes > QUEUE_BYTES:
            return False
        self._added_bytes = added_bytes
        self._entries.append(entry)
        if self.asleep:
            self.wake()
        return True

    def wake(self) -> None:
        """Wake the thread; called after adding to the journal's `unended` while it sleeps."""
        with self._changed:
            self.asleep = False  # once is enough, though it may take a while until it runs
            self._changed.notify()

    def keep(self, key: DocumentKey, revision: int, body: bytes | None) -> None:
        """Queue the newest form of a document, in place of the one that waits."""
        with self._changed:
            if body is None:
                self._delete(key)
            else:
                self._pending.documents[key] = (revision, body)
            self._changed.notify()

    @contextlib.contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Have all documents kept in the block, as one group, in place of those in the file."""
        with self._changed:  # held all the time: half of them must not be the whole
            self._pending.has_all = True
            yield
            self._changed.notify()

    def ask(self) -> int:
        """Make all that was queued durable soon; returns the ticket that the state will have."""
        with self._changed:
            self._asked += 1
            self._pending.ticket = self._asked
            self._changed.notify()
            return self._asked

    def suspect(self) -> None:
        """Set the file aside: a reader found it damaged."""
        with self._changed:
            self._suspected = True
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, if the disk takes it, and end; the journal is told then."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    # In the thread.

    def _run(self) -> None:
        try:
            self._try(self._tend)
            while self._work():
                pass
            if self._database is not None:
                self._database.close()
        except Exception:  # whatever it is: the daemon goes on, and has to know that this does not
            log.exception("the journal's thread ended")
            self._tell(problem="a mistake in stdiod ended the journal's thread; its log has more")
        finally:
            self._call(self._journal.take_closed)

    def _work(self) -> bool:
        """Wait for work and do it; returns False at the end."""
        failing = self._state.problem is not None
        self._collect(failing=failing)
        if self._suspected:
            self._suspected = False
            well = self._try(lambda: self._open("a reader found it damaged"))
        elif self._batch or failing or self._batch.unended.keys() != self._stored_unended:
            well = self._try(self._write)
        else:
            if self._seen == self._stored_unended:  # else it comes back for that in a moment
                self._untended_bytes = TEND_BYTES
            well = True
        if well and self._untended_bytes >= TEND_BYTES and not self._closing:
            well = self._try(self._tend)
        # At the end a disk that fails is not waited for; one that does not gets all there is.
        return not self._closing or (well and (bool(self._pending) or bool(self._entries)))

    def _collect(self, *, failing: bool) -> None:
        """Wait for a group and take it into `_batch`; a group that failed is written first."""
        with self._changed:
            if failing:
                self._changed.wait_for(lambda: self._closing, self._retry_s)
            elif not self._batch and self._sleep():
                self._changed.wait_for(self._is_urgent, GROUP_S)
            if self._batch:
                return
            self._batch, self._pending = self._pending, Batch()
        self._take()

    def _sleep(self) -> bool:
        due = self._changed.wait_for(self._is_due_or_sleeps, TEND_S)
        self.asleep = False
        return due

    def _is_due_or_sleeps(self) -> bool:
        # Set before the look: whatever comes after that look wakes this up.
        self.asleep = True
        return self._is_due()

    def _take(self) -> None:
        """Take what the event loop adds to without a lock, in the order of the docstring above."""
        batch, entries = self._batch, self._entries
        unended = self._unended.copy()
        former, self._seen = self._seen, unended.keys()
        batch.entries += [entries.popleft() for _ in range(len(entries))]
        for one in batch.entries:
            if one.key is not None:
                unended.pop(one.key, None)
            batch.size_bytes += one.size_bytes
        if not (batch.ticket or self._closing):
            known = former | self._stored_unended
            unended = {key: one for key, one in unended.items() if key in known}
        batch.unended = unended

    def _delete(self, key: DocumentKey) -> None:
        # In this order: the batch's documents are in `_stored` before the batch is dropped.
        if key in self._batch.documents or key in self._stored:
            self._pending.documents[key] = (0, None)
        else:
            # A document that comes and goes within a group, as most do, was never anywhere else;
            # while the disk is full it would pile up.
            self._pending.documents.pop(key, None)

    def _is_due(self) -> bool:
        return (
            bool(self._entries)
            or bool(self._pending)
            or self._unended.keys() != self._stored_unended
            or self._is_urgent()
        )

    def _is_urgent(self) -> bool:
        return self._closing or self._suspected or self._pending.ticket > 0

    def _try(self, work: Callable[[], object]) -> bool:
        """Run `work`; a failure is reported, and what waits is kept.

        Returns whether it succeeded.
        """
        try:
            with self._threads.naming("writing the journal"):
                work()
        except FAILURES as error:
            if is_damage(error) and self._database is not None:
                why = in_words(error)
                return self._try(lambda: self._open(why))
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        # Opened again at the next try: whatever became of the file, `seq` goes on from what it has.
        self._close()
        problem = f"{self._journal.path}: {in_words(error)}"
        if problem != self._state.problem:
            log.warning("the journal cannot be written", problem=problem)
        self._tell(problem=problem)

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def _open(self, damaged: str | None = None) -> Database:
        """Return the open file; with `damaged`, it is set aside and another one begun."""
        if damaged is not None:
            self._close()
        if self._database is not None:
            return self._database
        journal, before = self._journal, self._state
        self._database = database = open_database(
            journal.path,
            power=self._options.power,
            now=journal.wall_clock(),
            life=journal.life,
            after_seq=before.last_seq,
            damaged=damaged,
        )
        self._stored = database.stored
        self._stored_unended = {key for key in self._stored if key[0] in UNENDED}
        asides = before.asides
        if database.aside is not None:
            asides += (database.aside,)
            path, why = database.aside.path, database.aside.why
            log.warning(
                "the journal was set aside", path=path, why=why, how_to_read=how_to_read(path)
            )
        if database.set_back is not None:
            log.warning("the journal was set back", path=str(journal.path), why=database.set_back)
        # A file that opens may still refuse writes: the failed group is tried first.
        self._tell(
            problem=before.problem,
            asides=asides,
            set_back=database.set_back or before.set_back,
            renewed=before.journal not in ("", database.journal),
        )
        restored, database.restored = database.restored, Restored()
        if not self._opened:
            self._opened = True
            self._call(journal.take_opened, restored)
        return database

    def _write(self) -> None:
        database, batch = self._open(), self._batch
        if not database.is_in_place():
            raise OSError("it was removed or replaced")
        documents = batch.documents | self._newly_unended(batch.unended)
        if batch.entries or documents or batch.has_all:
            with transaction(database.connection):
                insert_entries(database.connection, batch.entries, database.last_seq)
                if batch.has_all:
                    remove_documents(database.connection)
                store_documents(database.connection, documents)
            database.last_seq += len(batch.entries)
            if batch.has_all:
                self._stored = {key for key in self._stored if key[0] in UNENDED}
            gone = {key for key, (_, body) in documents.items() if body is None}
            self._stored -= gone
            self._stored |= documents.keys() - gone
            database.note_last()
        self._stored_unended = set(batch.unended)
        self._batch = Batch()
        self._untended_bytes += batch.size_bytes
        self._written_bytes += batch.size_bytes
        self._tell(ticket=batch.ticket)

    def _newly_unended(
        self, unended: dict[DocumentKey, Unended]
    ) -> dict[DocumentKey, tuple[int, Unended | None]]:
        """Return the documents without an end that the disk does not have yet: mostly very few."""
        before = self._stored_unended
        changed: dict[DocumentKey, tuple[int, Unended | None]] = {
            key: (0, one.in_flight() if type(one) is Span else one)
            for key, one in unended.items()
            if key not in before
        }
        return changed | dict.fromkeys(before - unended.keys(), (0, None))

    def _tend(self) -> None:
        """Remove old and surplus entries, giving way to what waits after each step."""
        database = self._open()
        self._untended_bytes = 0
        self._retention.begin()
        while self._retention.step(database):
            with self._changed:
                due = self._is_due()
            if due:
                self._untended_bytes = TEND_BYTES  # go on after the next group
                break
        self._tell()

    def _tell(self, *, ticket: int = 0, renewed: bool = False, **changes: Any) -> None:
        """Tell the journal its state; `renewed` says that its file is another one than before."""
        database, before = self._database, self._state
        known = {}
        if database is not None:
            known = {
                "journal": database.journal,
                "last_seq": database.last_seq,
                "events": database.events,
            }
        self._state = msgspec.structs.replace(
            before,
            ticket=max(ticket, before.ticket),
            used_bytes=self._retention.used_bytes,
            **{"problem": None, **known, **changes},
        )
        self._report(renewed=renewed)

    def _report(self, *, renewed: bool) -> None:
        self._call(self._journal.take_state, self._state, renewed)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        """Have the event loop call a function of the journal."""
        with contextlib.suppress(trio.RunFinishedError):  # the event loop has ended
            self._loop.run_sync_soon(function, *args)
