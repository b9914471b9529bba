"""The response that ends every request (docs/protocol.md)."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import Notice
from protocol.errors import Failure, Outcome, Success


class Response(msgspec.Struct, frozen=True, gc=False):
    """One terminal answer; of an op of the daemon itself, no more than the outcome.

    `duration_ms` counts from acceptance.
    """

    outcome: Outcome
    request_id: str = ""
    """The daemon's own id of an invocation."""
    module: str = ""
    op: str = ""
    duration_ms: int = 0
    session_id: str | None = None
    notices: tuple[Notice, ...] = ()
    injected: tuple[dict[str, Any], ...] = ()
    """What hooks want in the context: `content`, `role`, and two flags (docs/protocol.md)."""

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return isinstance(self.outcome, Success)

    def document(self, *, built: bool = True, **content: Any) -> dict[str, Any]:
        """Return it as docs/protocol.md shows it; an absent summary or session is left out.

        For who only encodes it, the result need not be `built`; it stands after `content`.
        """
        outcome = self.outcome
        if type(outcome) is Failure:  # `isinstance` of a msgspec type is slow to say no
            content["ok"] = False
            content["error"] = {
                "code": outcome.code,
                "message": outcome.message,
                "details": outcome.details,
            }
        else:
            content["ok"] = True
            content["result"] = outcome.result if built else outcome.said
        if outcome.summary is not None:
            content["summary"] = outcome.summary
        if not self.request_id:
            return content
        content["request_id"] = self.request_id
        content["module"] = self.module
        content["op"] = self.op
        if self.session_id is not None:
            content["session_id"] = self.session_id
        content["duration_ms"] = self.duration_ms
        content["warnings"] = list(map(msgspec.to_builtins, self.notices))
        if self.injected:
            content["injected"] = list(self.injected)
        return content
