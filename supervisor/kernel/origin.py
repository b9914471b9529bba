"""Where something comes from: an invocation in whose course it was made, or a module itself."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """An invocation, as those see it who take what it produces; without an id it is of none."""

    module: str
    op: str
    request_id: str | None
    session_id: str | None = None
    span_id: str | None = None
