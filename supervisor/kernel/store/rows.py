"""The rows of the journal: a group on its way to the disk.

Entries and documents that are written together are one transaction. Python hands the interpreter
over at each statement, and may wait for it up to 5 ms when the event loop is busy. So a group costs
few statements: rows go in chunks, the largest that fit first.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from supervisor.kernel.recorder import Unended
from supervisor.kernel.store.settings import NAME_CHARS, UNENDED, DocumentKey, Span

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
    has_all: bool = False
    """Whether `documents` are all there are: others in the file, but for `unended` ones, go."""

    def __bool__(self) -> bool:
        """Whether there is anything to write, or to report."""
        return bool(self.entries or self.documents or self.ticket or self.has_all)


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
    connection: sqlite3.Connection, documents: dict[DocumentKey, tuple[int, Unended | None]]
) -> None:
    """Write documents, each with its revision, and delete those that are None."""
    kept = [
        (*key, revision, body if isinstance(body, bytes) else msgspec.json.encode(body))
        for key, (revision, body) in documents.items()
        if body is not None
    ]
    gone = [key for key, (_, body) in documents.items() if body is None]
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


def remove_documents(connection: sqlite3.Connection) -> None:
    """Delete all documents but for those without an end."""
    connection.execute("DELETE FROM documents WHERE kind NOT IN (?, ?)", [*UNENDED])


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    at = 0
    for size in CHUNKS:
        while len(rows) - at >= size:
            yield rows[at : at + size]
            at += size
