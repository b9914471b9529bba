"""The rows of the journal: a group on its way to the disk, and what a daemon finds at its start.

Entries and documents that are written together are one transaction. Python hands the interpreter
over at each statement, and may wait for it up to 5 ms when the event loop is busy. So a group costs
few statements: rows go in chunks, the largest that fit first.

At its start a daemon finds documents, and the patches that came after them. Invocations that were
in flight when the former daemon ended, and questions that were open, get their entry here: the one
place that knows that they were not answered.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from protocol.errors import Failure, Reason
from protocol.journal_event import JournalEvent
from supervisor.kernel.recorder import CutShort, Restored, Unended
from supervisor.kernel.store.database import Database, transaction
from supervisor.kernel.store.settings import (
    IN_FLIGHT,
    NAME_CHARS,
    OPEN_QUESTION,
    UNENDED,
    DocumentKey,
    InFlight,
    OpenQuestion,
    Span,
)

T = TypeVar("T")

CHUNKS = (2048, 256, 32, 4, 1)
"""Rows per statement; seven values each stay below SQLite's 32,766 variables."""


ENTRY_BYTES = 120
"""The cost of a waiting entry beside its body."""

COLUMNS = ("seq", "ts", "event", "module", "session_id", "revision", "body")
"""Of `events`."""

MAY_BE_EMPTY = frozenset({"module", "session_id", "revision"})

_ENCODER = msgspec.json.Encoder()


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """A row of `events` without its `seq`; `body` is the Event v1 document as JSON."""

    ts: float
    event: str
    module: str | None
    session_id: str | None
    revision: int | None
    body: bytes
    key: DocumentKey | None = None
    """The key of the document that it replaces."""

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + len(self.body)


class Batch(msgspec.Struct):
    """What is written at once; of each document, the newest form (None: it is deleted)."""

    entries: list[EventRow | Span] = msgspec.field(default_factory=list)
    documents: dict[DocumentKey, tuple[int, Unended | None]] = msgspec.field(default_factory=dict)
    size_bytes: int = 0
    """Of the entries."""
    unended: dict[DocumentKey, Unended] = msgspec.field(default_factory=dict)
    """All documents without an end yet, once these entries are there."""
    ticket: int = 0
    """The newest request for durability."""

    def __bool__(self) -> bool:
        """Whether there is anything to write, or to report."""
        return bool(self.entries or self.documents or self.ticket)


class _Invoked(msgspec.Struct, frozen=True, gc=False):
    """The entry of an invocation that ended well: a `JournalEvent`, made in less time."""

    id: str
    ts: float
    event: str
    component: str
    module: str
    status: str
    duration_ms: int
    data: dict[str, str]
    request_id: str
    span_id: str
    by: msgspec.Raw


INVOKED = "module:invoke"


def _invoked(span: Span) -> _Invoked:
    span_id = span.key[1]
    return _Invoked(
        f"{span_id}.",
        span.ended,
        INVOKED,
        "supervisor",
        span.module,
        "ok",
        span.duration_ms,
        {"op": span.op[:NAME_CHARS]},
        span.request_id,
        span_id,
        span.by,
    )


def insert_entries(
    connection: sqlite3.Connection, entries: Sequence[EventRow | Span], last_seq: int
) -> None:
    """Add rows after `last_seq`.

    A parameter that is None, or `bytes`, takes sqlite3 1 us: each time it looks for an adapter. So
    columns that are empty in all rows are left out, and bodies are `bytearray`s. Invocations that
    ended well, which are most rows, are encoded all at once.
    """
    spans = [_invoked(one) for one in entries if type(one) is Span]
    bodies = iter(bytearray(_ENCODER.encode_lines(spans)).split(b"\n"))
    numbered = [
        (seq, one.ended, INVOKED, one.module, None, None, next(bodies))
        if type(one) is Span
        else (seq, one.ts, one.event, one.module, one.session_id, one.revision, bytearray(one.body))
        for seq, one in enumerate(entries, last_seq + 1)
    ]
    for chunk in _chunks(numbered):
        columns = zip(COLUMNS, zip(*chunk, strict=True), strict=True)
        filled = [
            (name, cells)
            for name, cells in columns
            if name not in MAY_BE_EMPTY or cells.count(None) < len(chunk)
        ]
        names = ",".join(name for name, _ in filled)
        row = f"({','.join('?' * len(filled))})"
        rows = zip(*(cells for _, cells in filled), strict=True)
        connection.execute(
            f"INSERT INTO events ({names}) VALUES {','.join([row] * len(chunk))}",  # noqa: S608 - names of ours and question marks
            list(itertools.chain.from_iterable(rows)),
        )


def store_documents(
    connection: sqlite3.Connection,
    documents: dict[DocumentKey, tuple[int, Unended | None]],
    stored: set[DocumentKey],
) -> None:
    """Write or delete documents; `stored` names those that have a row, and is kept so.

    A document that came and went since the last group, as most do, costs nothing.
    """
    kept = [
        (*key, revision, body if isinstance(body, bytes) else msgspec.json.encode(body))
        for key, (revision, body) in documents.items()
        if body is not None
    ]
    gone = [key for key, (_, body) in documents.items() if body is None and key in stored]
    for chunk in _chunks(kept):
        rows = ",".join(["(?,?,?,?)"] * len(chunk))
        connection.execute(
            f"INSERT OR REPLACE INTO documents VALUES {rows}",  # noqa: S608 - as above
            list(itertools.chain.from_iterable(chunk)),
        )
    for names in _chunks(gone):
        rows = ",".join(["(?,?)"] * len(names))
        connection.execute(
            f"DELETE FROM documents WHERE (kind, name) IN (VALUES {rows})",  # noqa: S608 - as above
            list(itertools.chain.from_iterable(names)),
        )


def remember_stored(
    documents: dict[DocumentKey, tuple[int, Unended | None]], stored: set[DocumentKey]
) -> None:
    for key, (_, body) in documents.items():
        if body is None:
            stored.discard(key)
        else:
            stored.add(key)


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    at = 0
    for size in CHUNKS:
        while len(rows) - at >= size:
            yield rows[at : at + size]
            at += size


def restore(database: Database, life: str, now: float) -> tuple[Restored, set[DocumentKey]]:
    """Close what had no end before `life`, read the rest; returns its keys too."""
    found = Restored()
    stored: set[DocumentKey] = set()
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
    return found, stored


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
    # No digit of those ids that this life gives by and by (`Journal.new_span`) is an "r".
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
