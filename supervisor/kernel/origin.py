"""Where an event comes from: the invocation in whose course it was made."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """An invocation, as those see it who take what it produces."""

    module: str
    op: str
    request_id: str
    session_id: str | None = None
    span_id: str | None = None
