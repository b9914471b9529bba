"""What a daemon finds when it starts: documents, and the patches that came after them.

Invocations that were in flight when the former daemon ended, and questions that were open, get
their entry here: the one place that knows that they were not answered.
"""

from __future__ import annotations

import itertools
from typing import TypeVar

import msgspec

from protocol.errors import Failure, Reason
from protocol.journal_event import JournalEvent
from supervisor.kernel.recorder import CutShort, Restored, RestoredDocument, RestoredPatch
from supervisor.kernel.store.batch import Entry, insert_entries
from supervisor.kernel.store.database import Database, transaction
from supervisor.kernel.store.settings import (
    IN_FLIGHT,
    OPEN_QUESTION,
    UNENDED,
    DocumentKey,
    InFlight,
    OpenQuestion,
)

T = TypeVar("T")


def restore(database: Database, life: str, now: float) -> tuple[Restored, set[DocumentKey]]:
    """Close what had no end before `life`, read the rest; returns its keys too."""
    found = Restored()
    stored: set[DocumentKey] = set()
    in_flight: list[RestoredDocument] = []
    questions: list[RestoredDocument] = []
    for kind, name, revision, body in database.connection.execute(_DOCUMENTS):
        document = RestoredDocument(name, revision, body)
        if kind not in UNENDED:
            found.kinds.setdefault(kind, []).append(document)
            stored.add((kind, name))
        elif name.startswith(f"{life}-"):
            stored.add((kind, name))
        else:
            (in_flight if kind == IN_FLIGHT else questions).append(document)
    if in_flight or questions:
        found.cut_short = _close(database, in_flight, questions, life, now)
    found.patches = [
        RestoredPatch(session_id, revision, body)
        for session_id, revision, body in database.connection.execute(_NEWER_PATCHES)
    ]
    return found, stored


_DOCUMENTS = """
SELECT coalesce(CAST(kind AS TEXT), ''), coalesce(CAST(name AS TEXT), ''),
    coalesce(CAST(revision AS INTEGER), 0), coalesce(CAST(body AS BLOB), x'')
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
    in_flight: list[RestoredDocument],
    questions: list[RestoredDocument],
    life: str,
    now: float,
) -> list[CutShort]:
    invocation = InFlight(now, "unknown", "unknown", "unknown")
    question = OpenQuestion("unknown", "unknown", "unknown")
    open_ones = [(one.name, _decoded(one, invocation)) for one in in_flight]
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


def _decoded(leftover: RestoredDocument, unknown: T) -> T:
    try:
        return msgspec.json.decode(leftover.body, type=type(unknown))
    except msgspec.DecodeError:  # of another version: that it ended is known all the same
        return unknown


def _duration_ms(was: InFlight, now: float) -> int:
    # The clock may have been set back since.
    return max(0, round((now - was.ts) * 1000))


def _closing(span_id: str, was: InFlight, entry_id: str, now: float) -> Entry:
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


def _undecided(was: OpenQuestion, entry_id: str, now: float) -> Entry:
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


def _entry(event: JournalEvent) -> Entry:
    body = msgspec.json.encode(event)
    return Entry(event.ts, event.event, event.module, event.session_id, None, body)
