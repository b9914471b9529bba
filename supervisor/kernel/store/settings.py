"""The operator's options about the journal, and documents without an end: plain values, no SQLite.

A process that invokes one module and ends (`invoke --descriptor`) imports this and no database.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import msgspec

IN_FLIGHT = "in_flight"
"""The kind of `InFlight` documents."""

OPEN_QUESTION = "open_question"
"""The kind of `OpenQuestion` documents."""

UNENDED = frozenset({IN_FLIGHT, OPEN_QUESTION})
"""Kinds of documents that are kept until their end is recorded, under a name from `new_span`."""


class JournalLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The age and the size up to which entries are kept."""

    days: float = 30.0
    size_bytes: int = 512 << 20


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    limits: JournalLimits = JournalLimits()
    power: bool = False
    """Whether acknowledged changes survive a power cut, and not only `kill -9`."""


class InFlight(msgspec.Struct, frozen=True, omit_defaults=True):
    """An accepted invocation, as it is kept until its end; `ts` is Unix time (s)."""

    ts: float
    module: str
    op: str
    request_id: str
    session_id: str | None = None
    parent_span_id: str | None = None
    by: Any = None
    """The principal (`Principal.by`); read again it is an object: `Raw | None` would take only
    null."""


DocumentKey = tuple[str, str]
"""The kind and the name of a document."""

NAME_CHARS = 200
"""Characters kept of the name of a module, an op or a session, which others chose."""


@final
class Span(msgspec.Struct, kw_only=True, gc=False):
    """An invocation on its way into the journal: in flight, until its end is written in it.

    One object for both, which the writing thread turns into the rows.
    """

    key: DocumentKey
    """The key of its document while it is in flight; its name is the span's id."""
    began: float
    """Unix time (s)."""
    module: str
    op: str
    request_id: str
    session_id: str | None = None
    parent: str | None = None
    by: msgspec.Raw
    """Who asked."""
    ended: float = 0.0
    duration_ms: int = 0
    size_bytes: ClassVar[int] = 400
    """The cost of its end while it waits, and more than its entry on disk."""

    def in_flight(self) -> InFlight:
        """Return the document that is kept until its end."""
        session_id = self.session_id
        return InFlight(
            self.began,
            self.module[:NAME_CHARS],
            self.op[:NAME_CHARS],
            self.request_id,
            None if session_id is None else session_id[:NAME_CHARS],
            self.parent,
            self.by,
        )


class OpenQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that waits for a person, as it is kept until its decision."""

    id: str
    module: str
    request_id: str | None
    session_id: str | None = None
    span_id: str | None = None
    by: Any = None
    """As in `InFlight`."""
