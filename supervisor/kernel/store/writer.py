"""The one thread that writes the journal: it collects a group for a moment, and commits it.

    waiting -> (GROUP_S, or at once for a flush) -> a transaction -> told
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
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

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
    set_aside,
    transaction,
)
from supervisor.kernel.store.retention import Clocks, Retention
from supervisor.kernel.store.rows import (
    Batch,
    EventRow,
    insert_entries,
    remember_stored,
    restore,
    store_documents,
)
from supervisor.kernel.store.settings import UNENDED, DocumentKey, JournalLimits, Span
from supervisor.runtime.files.directory import shown
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


class Told(msgspec.Struct, frozen=True):
    """The state of the journal, after each change."""

    ticket: int = 0
    """All that was to be durable up to this number is."""
    journal: str = ""
    last_seq: int = 0
    events: int = 0
    used_bytes: int = 0
    problem: str | None = None
    """Why nothing can be written at the moment."""
    asides: tuple[Aside, ...] = ()


class Relay:
    """Calls the journal in the event loop with what the writer's thread reports."""

    def __init__(self, journal: Journal, token: trio.lowlevel.TrioToken) -> None:
        self._journal = journal
        self._token = token

    def opened(self, restored: Restored) -> None:
        """Report what was found; called once, when the file could be opened."""
        self._soon(self._journal.take_opened, restored)

    def told(self, told: Told, *, renewed: bool) -> None:
        """Report the state; `renewed` says that a new file was begun while the daemon ran."""
        self._soon(lambda: self._journal.take_told(told, renewed=renewed))

    def closed(self) -> None:
        self._soon(self._journal.take_closed)

    def _soon(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # the event loop has ended
            self._token.run_sync_soon(function, *args)


class WriterOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    life: str
    """The beginning of the ids that this run of the daemon gives."""
    power: bool = False
    limits: JournalLimits = JournalLimits()
    clocks: Clocks = Clocks()
    retry_s: float = RETRY_S


class Writer:
    """The thread, and the queue to it; `add`, `keep`, `ask` and `close` never block."""

    def __init__(
        self,
        options: WriterOptions,
        relay: Relay,
        unended: dict[DocumentKey, Unended],
        threads: Threads,
    ) -> None:
        """`unended` is the caller's, who calls `wake` if he adds to it while the thread sleeps."""
        self._options = options
        self._threads = threads
        self._relay = relay
        self._unended = unended
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
        self._changed = threading.Condition(threading.Lock())
        # The rest is the thread's own.
        self._database: Database | None = None
        self._stored: set[DocumentKey] = set()
        self._stored_unended: set[DocumentKey] = set()
        self._seen: AbstractSet[DocumentKey] = set()
        """The keys without an end when the last group was taken."""
        self._restored = False
        self._batch = Batch()
        self._retention = Retention(options.limits, options.clocks)
        self._untended_bytes = 0
        self._told = Told()
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
        """Wake the thread; called after adding to `unended` while it sleeps."""
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

    def ask(self) -> int:
        """Make all that was queued durable soon; returns the ticket that `told` will show."""
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
        """Write what waits, if the disk takes it, and end; `closed` is called then."""
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
                self._database.connection.close()
        except Exception:  # whatever it is: the daemon goes on, and has to know that this does not
            log.exception("the journal's thread ended")
            self._tell(problem="a mistake in stdiod ended the journal's thread; its log has more")
        finally:
            self._relay.closed()

    def _work(self) -> bool:
        """Wait for work and do it; returns False at the end."""
        failing = self._told.problem is not None
        self._collect(failing=failing)
        if self._suspected:
            self._suspected = False
            well = self._try(lambda: self._begin_anew("a reader found it damaged"))
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
                self._changed.wait_for(lambda: self._closing, self._options.retry_s)
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

    def _try(self, work: Callable[[], None]) -> bool:
        """Run `work`; a failure is reported, and what waits is kept.

        Returns whether it succeeded.
        """
        try:
            with self._threads.naming("writing the journal"):
                work()
        except FAILURES as error:
            if is_damage(error) and self._database is not None:
                why = in_words(error)
                return self._try(lambda: self._begin_anew(why))
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        # Opened again at the next try: whatever became of the file, `seq` goes on from what it has.
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.connection.close()
            self._database = None
        problem = f"{self._options.path}: {in_words(error)}"
        if problem != self._told.problem:
            log.warning("the journal cannot be written", problem=problem)
        self._tell(problem=problem)

    def _open(self) -> Database:
        if self._database is not None:
            return self._database
        try:
            database, restored, stored = self._open_and_restore()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            aside = self._set_aside(in_words(error))
            database, restored, stored = self._open_and_restore()
            database.aside = aside
        self._use(database, stored)
        if not self._restored:
            self._restored = True
            self._relay.opened(restored)
        return database

    def _open_and_restore(self) -> tuple[Database, Restored, set[DocumentKey]]:
        options, now = self._options, self._options.clocks.wall()
        database = open_database(
            options.path, power=options.power, now=now, after_seq=self._told.last_seq
        )
        try:
            return database, *restore(database, options.life, now)
        # Whatever it is goes on to the caller; only the connection is ours to see to.
        except BaseException:
            database.connection.close()
            raise

    def _set_aside(self, why: str) -> Aside:
        now = self._options.clocks.wall()
        return Aside(shown(set_aside(self._options.path, now)), why)

    def _use(self, database: Database, stored: set[DocumentKey]) -> None:
        renewed = self._told.journal not in ("", database.journal)
        self._database, self._stored = database, stored
        self._stored_unended = {key for key in stored if key[0] in UNENDED}
        if database.aside is not None:
            log.warning(
                "the journal was set aside",
                path=database.aside.path,
                why=database.aside.why,
                how_to_read=how_to_read(database.aside.path),
            )
        asides = self._told.asides + ((database.aside,) if database.aside else ())
        # A file that opens may still refuse writes: the failed group is tried first.
        self._tell(problem=self._told.problem, asides=asides, renewed=renewed)

    def _begin_anew(self, why: str) -> None:
        """Set the damaged file aside and go on in a new one."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.connection.close()
            self._database = None
        aside = self._set_aside(why)
        database, _, stored = self._open_and_restore()
        database.aside = aside
        self._use(database, stored)

    def _write(self) -> None:
        database, batch = self._open(), self._batch
        if not database.is_in_place():
            raise OSError("it was removed or replaced")
        documents = batch.documents | self._newly_unended(batch.unended)
        if batch.entries or documents:
            with transaction(database.connection):
                insert_entries(database.connection, batch.entries, database.last_seq)
                store_documents(database.connection, documents, self._stored)
            database.last_seq += len(batch.entries)
            remember_stored(documents, self._stored)
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

    def _tell(
        self,
        *,
        ticket: int = 0,
        problem: str | None = None,
        asides: tuple[Aside, ...] | None = None,
        renewed: bool = False,
    ) -> None:
        database, before = self._database, self._told
        self._told = Told(
            ticket=max(ticket, before.ticket),
            journal=before.journal if database is None else database.journal,
            last_seq=before.last_seq if database is None else database.last_seq,
            events=before.events if database is None else database.events,
            used_bytes=self._retention.used_bytes,
            problem=problem,
            asides=before.asides if asides is None else asides,
        )
        self._relay.told(self._told, renewed=renewed)
