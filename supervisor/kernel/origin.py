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
    owner: str | None = None
    """Whose it is what comes of it: the session's owner, or else who asked."""
    by: msgspec.Raw | None = None
    """Who asked, for the journal (`policy.principals.Principal.by`)."""

    def document(self) -> dict[str, str]:
        """Return what subscribers are told of it."""
        named = ("module", "op", "request_id", "session_id", "span_id")
        found = {name: getattr(self, name) for name in named}
        return {name: value for name, value in found.items() if value}
