"""What the operator decides about the journal, and what has no end yet: plain values, no SQLite.

A process that invokes one module and ends (`invoke --descriptor`) imports this and no database.
"""

from __future__ import annotations

from typing import Any

import msgspec

IN_FLIGHT = "in_flight"
"""The kind of `InFlight` documents."""

OPEN_QUESTION = "open_question"
"""The kind of `OpenQuestion` documents."""

UNENDED = frozenset({IN_FLIGHT, OPEN_QUESTION})
"""What is kept until its end is recorded in place of it, under a name from `new_span`."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long entries are kept, and how much of them."""

    days: float = 30.0
    size_bytes: int = 512 << 20


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decides."""

    limits: Limits = Limits()
    power: bool = False
    """Whether what is acknowledged is to survive a power cut, and not only `kill -9`."""


class InFlight(msgspec.Struct, frozen=True, omit_defaults=True):
    """An accepted invocation, as it is kept until its end; `ts` is Unix time (s)."""

    ts: float
    module: str
    op: str
    request_id: str
    session_id: str | None = None
    parent_span_id: str | None = None
    by: Any = None
    """Who asked (`Principal.by`); read again it is an object: `Raw | None` would take only null."""


class OpenQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that waits for a person, as it is kept until its decision."""

    id: str
    module: str
    request_id: str | None
    session_id: str | None = None
    span_id: str | None = None
    by: Any = None
    """As in `InFlight`."""
