"""Read the journal in pages, beside the writer: committed entries in the order of `seq`.

A page is bounded in entries, in bytes and in entries examined, so that no reader holds the write-
ahead log for long, and a filter that nothing fits costs the others nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sized
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from protocol.journal_event import REGISTRY
from supervisor.kernel.store.database import check_regular

PAGE_ENTRIES = 256
PAGE_BYTES = 1 << 20
"""A page ends with the entry that passes this."""

PAGE_SPAN = 20_000
"""Entries that are examined for one page; some 20 ms."""


BODY = "coalesce(CAST(body AS BLOB), x'')"
"""Bytes, also where damage has changed their type."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a request; None is for all."""

    events: tuple[str, ...] | None = None
    """Names of the registry."""
    own_events: str | None = None
    """A pattern for names that modules made up, beside `events`."""
    module: str | None = None
    session_id: str | None = None
    since_ts: float | None = None
    sees: Callable[[bytes], bool] | None = None
    """Whether the principal may see an entry."""


class Page(NamedTuple):
    """Entries as (seq, Event v1 as JSON); those up to `cursor` have been examined."""

    entries: list[tuple[int, bytes]]
    cursor: int


class Reader:
    """A read-only connection, opened at the first page; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def page(self, wanted: Filter, after: int, last: int) -> Page:
        """Return the entries with `after` < seq <= `last` that fit, or the first of them.

        Raises `sqlite3.Error` and `OSError`.
        """
        connection = self._open(wanted)
        (first,) = connection.execute(
            "SELECT min(seq) FROM events WHERE seq > ?", [after]
        ).fetchone()
        if first is None or first > last:
            return Page([], last)
        upto = min(last, first + PAGE_SPAN - 1)
        where, values = _conditions(wanted)
        found: list[tuple[int, bytes]] = []
        size = 0
        rows = connection.execute(
            f"SELECT seq, {BODY} FROM events WHERE seq BETWEEN ? AND ?{where} ORDER BY seq",  # noqa: S608 - fixed words
            [first, upto, *values],
        )
        with contextlib.closing(rows):
            for seq, body in rows:
                found.append((seq, body))
                size += len(body)
                if len(found) >= PAGE_ENTRIES or size >= PAGE_BYTES:
                    return Page(found, seq)
        return Page(found, upto)

    def begin_of_last(self, wanted: Filter, count: int, before: int) -> tuple[int, int]:
        """Return how many of `count` are found in the span that ends at `before`, and its begin.

        The second figure is the cursor (a seq to read after) from which they follow.
        """
        begin = max(0, before - PAGE_SPAN)
        where, values = _conditions(wanted)
        rows = self._open(wanted).execute(
            f"SELECT seq FROM events WHERE seq BETWEEN ? AND ?{where} "  # noqa: S608 - fixed words
            "ORDER BY seq DESC LIMIT ?",
            [begin + 1, before, *values, count],
        )
        found = [seq for (seq,) in rows]
        return len(found), found[-1] - 1 if len(found) == count and found else begin

    def first_seq(self) -> int | None:
        """Return the oldest entry's number, None if there is no entry."""
        (first,) = self._open().execute("SELECT min(seq) FROM events").fetchone()
        return None if first is None else int(first)

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, wanted: Filter | None = None) -> sqlite3.Connection:
        if self._connection is None:
            check_regular(self._path)
            # Never made here: a missing journal is a failure.
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1.0
            )
            self._connection.create_function("fits", 2, fnmatchcase, deterministic=True)
        if wanted is not None and wanted.sees is not None:
            self._connection.create_function("seen", 1, wanted.sees)
        return self._connection


def _conditions(wanted: Filter) -> tuple[str, list[str | float]]:
    words = ""
    values: list[str | float] = []
    if wanted.since_ts is not None:
        words += " AND ts >= ?"
        values.append(wanted.since_ts)
    if wanted.events is not None:
        named = f"event IN ({_places(wanted.events)})"
        values += wanted.events
        if wanted.own_events is not None:
            # Not GLOB, which takes a time that a pattern of many "*" makes long.
            named += f" OR (event NOT IN ({_places(REGISTRY)}) AND fits(event, ?))"
            values += [*REGISTRY, wanted.own_events]
        words += f" AND ({named})"
    for column, value in (("module", wanted.module), ("session_id", wanted.session_id)):
        if value is not None:
            words += f" AND {column} = ?"
            values.append(value)
    if wanted.sees is not None:
        words += f" AND seen({BODY})"
    return words, values


def _places(values: Sized) -> str:
    return ",".join("?" * len(values))
