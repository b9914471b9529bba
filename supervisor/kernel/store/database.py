"""Open the journal's file: make it, migrate it, or set aside what is not ours and begin anew.

What the daemon before kept is read then. Invocations that were in flight when it ended, and
questions that were open, get their entry here: the one place that knows that they were not
answered.

    events      what happened, in the order of `seq`, which has no gaps but for what was removed
    documents   the newest form of what there is, such as a session; (kind, name) names one
    facts       the journal's own id, and how many entries there were at some `seq`

`user_version` is the number of the schema, `application_id` says whose file it is.

Damage never heals, so a damaged file is set aside; everything else (a full disk, a read-only file
system, a lock of another program) may be over the next time, so entries that wait are kept and
retried.

A file may also have been set back: a copy was put in its place, its write-ahead log was lost
(SQLite takes a damaged frame for its end), or it was cut to nothing. So a second, small file has
the journal's id and the number of its newest entry, written after each commit and not synced. If
the first file ends before that, it is another journal from then on, also if it was another one
before: followers that know the old one get all there is. Numbers go on behind those that were
given, so the small file stays where it is when the first one is set aside.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import re
import shlex
import sqlite3
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from protocol.errors import Failure, Reason
from protocol.journal_event import JournalEvent
from supervisor.kernel.recorder import CutShort, Restored
from supervisor.kernel.store.rows import EventRow, insert_entries
from supervisor.kernel.store.settings import (
    IN_FLIGHT,
    OPEN_QUESTION,
    UNENDED,
    DocumentKey,
    InFlight,
    OpenQuestion,
)
from supervisor.runtime.files.directory import shown

T = TypeVar("T")

_PRIMARY = 0xFF
"""Extended result codes carry the primary one in their lowest byte (sqlite.org/rescode.html)."""

_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        # The statements are fixed and fit the schema: a missing table was taken away.
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
    }
)


FAILURES = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What using the file may raise; the last one if SQLite's own words quote a damaged schema."""


class UnusableError(Exception):
    """A file is not our journal, or not one that this version can read; the message says why."""


def is_damage(error: Exception) -> bool:
    """Return whether a failure says that the file's content is not what was written."""
    if isinstance(error, UnusableError | UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & _PRIMARY in _DAMAGE


def in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode(errors="replace")
    words = str(error) or type(error).__name__
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & _PRIMARY == sqlite3.SQLITE_IOERR:
        # SQLite says only "disk I/O error"; the name tells at least what it was doing.
        words += f" ({getattr(error, 'sqlite_errorname', code)})"
    return words


MARK = ".set-aside-"
"""The text between the name of the journal and the time when it was set aside."""

LAST = "-last"
"""The ending of the file that says what the newest entry is."""

COMPANIONS = ("-wal", "-shm")
"""The endings of the files that belong to one journal, and are set aside with it."""

_LAST = re.compile(rb"[0-9a-f]{32} (\d{20})\n")

_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK  # whatever is there does not hold up who opens it

_QUERY = "SELECT CAST(body AS TEXT) FROM events"


def how_to_read(path: str) -> str:
    """Return the commands for a damaged journal, in words.

    `.recover` also finds rows that no table leads to any more, but not every build of `sqlite3` has
    it.
    """
    file = shlex.quote(path)
    return (
        f"of a damaged one, `sqlite3 {file} '{_QUERY}'` shows the entries before the damage, with"
        f" `ORDER BY seq DESC` those behind it; `sqlite3 {file} .recover` finds more, if it can"
    )


def kept_aside(journal: Path) -> Iterator[Path]:
    """Yield the files that were set aside for a journal, the oldest first."""
    for one in sorted(journal.parent.glob(f"{journal.name}{MARK}*")):
        if not one.name.endswith(COMPANIONS):
            yield one


APPLICATION_ID = 0x7374646A
"""`stdj`; how `file` and a later stdiod know whose database it is (sqlite.org/pragma.html)."""

BUSY_S = 1.0
"""How long another program, such as `sqlite3`, may hold the file locked."""

WAL_BYTES = 16 << 20
"""A write-ahead log that a flood has grown is cut back to this."""

CHECKPOINT_PAGES = WAL_BYTES // 4096
"""Pages collected there: moving them into the file syncs both, and a disk may take a while."""

MAGIC = b"SQLite format 3\0"

FORMATS = frozenset({1, 2})
"""Of the header's bytes 18 and 19 (sqlite.org/fileformat.html); others SQLite calls read-only."""

MOST = 1 << 62
"""All numbers of the journal are far below; beyond twice that SQLite has none."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY, ts REAL NOT NULL, event TEXT NOT NULL,
            module TEXT, session_id TEXT, revision INTEGER, body BLOB NOT NULL)""",
        """CREATE INDEX events_of_sessions ON events (session_id, seq)
            WHERE session_id IS NOT NULL""",
        """CREATE INDEX patches ON events (session_id, revision)
            WHERE event = 'session:patch'""",
        """CREATE TABLE documents (
            kind TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (kind, name))""",
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
        "INSERT INTO facts VALUES ('journal', ''), ('counted_at', 0), ('counted', 0)",
    ),
)
"""The steps from each schema to the next one; the last schema is this version's."""


class Aside(msgspec.Struct, frozen=True):
    path: str
    why: str


class Database(msgspec.Struct, kw_only=True):
    """The open file; `last_seq` is that of the newest entry, or of the one before the first."""

    connection: sqlite3.Connection
    journal: str
    """The id of this journal: another one has other entries under the same numbers."""
    last_seq: int
    counted_at: int
    counted: int
    path: Path
    inode: tuple[int, int]
    restored: Restored = msgspec.field(default_factory=Restored)
    stored: set[DocumentKey] = msgspec.field(default_factory=set)
    """The keys of all documents that have a row."""
    aside: Aside | None = None
    set_back: str | None = None
    """How much is missing, if it was set back."""
    last_file: int | None = None
    """The descriptor that `note_last` writes to, once it is open."""

    @property
    def events(self) -> int:
        """The count of entries; `seq` has no gaps since they were last counted."""
        return self.counted + self.last_seq - self.counted_at

    def is_in_place(self) -> bool:
        """Whether the file is still the one of that name: SQLite would write to a removed one."""
        try:
            return _inode(self.path) == self.inode
        except FileNotFoundError:
            return False

    def note_last(self) -> None:
        """Write down beside the file what its newest entry is."""
        # A failure costs no more than that a loss may not be noticed.
        with contextlib.suppress(OSError):
            if self.last_file is None:
                path = _beside(self.path, LAST)
                self.last_file = os.open(path, _FLAGS | os.O_WRONLY | os.O_CREAT, 0o600)
            os.pwrite(self.last_file, f"{self.journal} {self.last_seq:020}\n".encode(), 0)

    def close(self) -> None:
        if self.last_file is not None:
            with contextlib.suppress(OSError):  # as above; it is closed all the same
                os.close(self.last_file)
            self.last_file = None
        self.connection.close()


def open_database(
    path: Path,
    *,
    power: bool,
    now: float,
    life: str = "",
    after_seq: int = 0,
    damaged: str | None = None,
) -> Database:
    """Open or make the journal; with `power`, each commit is synced to the disk.

    A file that is no journal, is damaged, or is newer than this version is set aside, and any file
    if `damaged` says why. The new one begins after `after_seq`, or what is known of the old one.
    `now` is Unix time (s), `life` the beginning of the ids that this run of the daemon gives: what
    has another one, and no end, gets it. Raises `OSError` and `sqlite3.Error` if the place cannot
    be used.
    """
    after_seq = max(after_seq, _read_last(path))
    if damaged is None:
        try:
            return _open(path, power=power, now=now, life=life, after_seq=after_seq)
        except (UnusableError, UnicodeDecodeError, sqlite3.Error) as error:
            if not is_damage(error):
                raise
            damaged = in_words(error)
    aside = Aside(shown(set_aside(path, now)), damaged)
    database = _open(path, power=power, now=now, life=life, after_seq=after_seq)
    database.aside, database.set_back = aside, None
    return database


def set_aside(path: Path, now: float) -> Path:
    """Rename the file and its companions, overwriting nothing; returns the new path."""
    stamp = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    number, aside = 1, path.with_name(f"{path.name}{MARK}{stamp}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}{MARK}{stamp}-{number}")
    path.rename(aside)
    for ending in COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            _beside(path, ending).rename(_beside(aside, ending))
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _read_last(path: Path) -> int:
    """Return the number of the newest entry that was written here, in whatever journal."""
    try:
        file = os.open(_beside(path, LAST), _FLAGS | os.O_RDONLY)
    except OSError:
        return 0
    try:
        found = _LAST.fullmatch(os.read(file, 64))
    except OSError:
        return 0
    finally:
        os.close(file)
    if found is None or int(found[1]) >= MOST:
        return 0
    return int(found[1])


def _open(path: Path, *, power: bool, now: float, life: str, after_seq: int) -> Database:
    _check_file(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    # One letter that is damaged in a name or a text is to cost no more than that.
    connection.text_factory = readable
    try:
        fresh = _migrate(connection, after_seq)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if power else 'NORMAL'}")
        database = _read_facts(connection, path)
        if fresh and after_seq:
            database.set_back = f"it was gone or empty, and had entries up to {after_seq}"
        elif database.last_seq < after_seq:
            _renew(database, after_seq)
        _restore(database, life, now)
    # Whatever it is goes on to the caller; only the connection is ours to see to.
    except BaseException:
        connection.close()
        raise
    return database


def _renew(database: Database, last_seq: int) -> None:
    """Make a journal that was set back another one, which goes on after `last_seq`."""
    database.set_back = f"it ended at {database.last_seq}, and had entries up to {last_seq}"
    database.counted, database.counted_at = database.events, last_seq
    database.journal, database.last_seq = uuid.uuid4().hex, last_seq
    with transaction(database.connection):
        _set_facts(
            database.connection,
            journal=database.journal,
            counted_at=last_seq,
            counted=database.counted,
        )


def check_regular(path: Path) -> None:
    """Raise `OSError` if the path is something other than a file: SQLite would wait for a FIFO."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a file")


def _check_file(path: Path) -> None:
    # Before SQLite looks; and the mode is to be ours alone.
    check_regular(path)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:
        head = file.read(len(MAGIC) + 4)
    if head and not head.startswith(MAGIC):
        raise UnusableError("it is not an SQLite database")
    if not FORMATS.issuperset(head[18:20]):
        raise UnusableError("its header is damaged")


def _migrate(connection: sqlite3.Connection, after_seq: int) -> bool:
    """Bring the schema up to date; returns whether the file is new."""
    owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    fresh = not (owner or version or objects)
    if not fresh and owner != APPLICATION_ID:
        raise UnusableError("it is the database of another program")
    if version > len(MIGRATIONS):
        raise UnusableError(
            f"a newer stdiod wrote it: its schema is {version}, this version's {len(MIGRATIONS)}"
        )
    if version == len(MIGRATIONS):
        return False
    if fresh:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    with transaction(connection):
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        if fresh:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _set_facts(connection, journal=uuid.uuid4().hex, counted_at=after_seq)
    return fresh


def _set_facts(connection: sqlite3.Connection, **facts: str | int) -> None:
    for name, value in facts.items():
        connection.execute("UPDATE facts SET value = ? WHERE name = ?", (value, name))


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    # Whatever it is goes on to the caller; half of a group must not stay open behind it.
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have rolled it back already
            connection.execute("ROLLBACK")
        raise


def _read_facts(connection: sqlite3.Connection, path: Path) -> Database:
    facts = dict(connection.execute("SELECT name, value FROM facts"))
    # All columns once: a column that is missing has to fail now, not in a later statement.
    connection.execute(
        "SELECT seq, ts, event, module, session_id, revision, body FROM events "
        "ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    connection.execute("SELECT kind, name, revision, body FROM documents LIMIT 1").fetchone()
    (last_seq,) = connection.execute("SELECT max(seq) FROM events").fetchone()
    try:
        counted_at, counted = int(facts["counted_at"]), int(facts["counted"])
        journal = str(facts["journal"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UnusableError("it lacks the facts that every journal has") from None
    if not all(0 <= one < MOST for one in (last_seq or 0, counted_at, counted)):
        raise UnusableError("no journal of ours has such numbers")
    return Database(
        connection=connection,
        journal=journal,
        last_seq=max(counted_at, last_seq or 0),
        counted_at=counted_at,
        counted=counted,
        path=path,
        inode=_inode(path),
    )


def readable(text: bytes) -> str:
    """Return a text of the file, also one that is not UTF-8 any more."""
    return text.decode(errors="replace")


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _restore(database: Database, life: str, now: float) -> None:
    """Close what had no end before `life`, and read the rest."""
    found, stored = database.restored, database.stored
    in_flight: list[tuple[str, bytes]] = []
    questions: list[bytes] = []
    for kind, name, body in database.connection.execute(_DOCUMENTS):
        if kind not in UNENDED:
            found.kinds.setdefault(kind, []).append((name, body))
            stored.add((kind, name))
        elif name.startswith(f"{life}-"):
            stored.add((kind, name))
        elif kind == IN_FLIGHT:
            in_flight.append((name, body))
        else:
            questions.append(body)
    if in_flight or questions:
        found.cut_short = _close(database, in_flight, questions, life, now)
    found.patches = database.connection.execute(_NEWER_PATCHES).fetchall()


_DOCUMENTS = """
SELECT coalesce(CAST(kind AS TEXT), ''), coalesce(CAST(name AS TEXT), ''),
    coalesce(CAST(body AS BLOB), x'')
FROM documents ORDER BY kind, name
"""
"""As what they should be: SQLite finds no fault with a type that damage has changed."""

_NEWER_PATCHES = """
SELECT CAST(events.session_id AS TEXT), coalesce(CAST(events.revision AS INTEGER), 0),
    coalesce(CAST(events.body AS BLOB), x'')
FROM documents CROSS JOIN events ON events.session_id = documents.name
WHERE documents.kind = 'session' AND events.event = 'session:patch'
    AND events.revision > documents.revision
ORDER BY events.seq
"""
"""CROSS JOIN keeps SQLite from walking all entries: the index `patches` finds these."""


def _close(
    database: Database,
    in_flight: list[tuple[str, bytes]],
    questions: list[bytes],
    life: str,
    now: float,
) -> list[CutShort]:
    invocation = InFlight(now, "unknown", "unknown", "unknown")
    question = OpenQuestion("unknown", "unknown", "unknown")
    open_ones = [(name, _decoded(body, invocation)) for name, body in in_flight]
    # No digit of those ids that this life gives by and by (`Recorder.new_span`) is an "r".
    ids = (f"{life}-r{number:x}" for number in itertools.count(1))
    entries = [_undecided(_decoded(one, question), next(ids), now) for one in questions]
    entries += [_closing(span_id, was, next(ids), now) for span_id, was in open_ones]
    with transaction(database.connection):
        insert_entries(database.connection, entries, database.last_seq)
        database.connection.execute(
            "DELETE FROM documents WHERE kind IN (?, ?) AND name NOT LIKE ?",
            (IN_FLIGHT, OPEN_QUESTION, f"{life}-%"),
        )
    database.last_seq += len(entries)
    return [
        CutShort(was.session_id, was.request_id, was.module, was.op, _duration_ms(was, now), was.ts)
        for _, was in open_ones
        if was.session_id is not None
    ]


def _decoded(body: bytes, unknown: T) -> T:
    try:
        return msgspec.json.decode(body, type=type(unknown))
    except msgspec.DecodeError:  # of another version: that it ended is known all the same
        return unknown


def _duration_ms(was: InFlight, now: float) -> int:
    # The clock may have been set back since.
    return max(0, round((now - was.ts) * 1000))


def _closing(span_id: str, was: InFlight, entry_id: str, now: float) -> EventRow:
    words = f"the daemon ended while {was.module}.{was.op} was in flight"
    failure = Failure.because(Reason.DAEMON_RESTART, words)
    data = {"op": was.op}
    if was.parent_span_id is not None:
        data["parent_span_id"] = was.parent_span_id
    event = JournalEvent(
        id=entry_id,
        ts=now,
        event="module:invoke",
        component="supervisor",
        module=was.module,
        status="error",
        duration_ms=_duration_ms(was, now),
        data=data,
        error={"code": failure.code, "message": failure.message, "details": failure.details},
        session_id=was.session_id,
        request_id=was.request_id,
        span_id=span_id,
        by=was.by,
    )
    return _entry(event)


def _undecided(was: OpenQuestion, entry_id: str, now: float) -> EventRow:
    event = JournalEvent(
        id=entry_id,
        ts=now,
        event="approval:decision",
        component="supervisor",
        module=was.module,
        status="denied",
        data={"id": was.id, "answer": "deny", "by": str(Reason.DAEMON_RESTART)},
        session_id=was.session_id,
        request_id=was.request_id,
        span_id=was.span_id,
        by=was.by,
    )
    return _entry(event)


def _entry(event: JournalEvent) -> EventRow:
    body = msgspec.json.encode(event)
    return EventRow(event.ts, event.event, event.module, event.session_id, None, body)
