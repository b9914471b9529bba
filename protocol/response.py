"""The response that ends every request (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.connection import Notice
from protocol.errors import Failure, Outcome, Pieces, Success
from protocol.frames import one_line

_encode = msgspec.json.Encoder().encode


class Response(msgspec.Struct, frozen=True, gc=False):
    """The one terminal answer of a request; an op of the daemon fills outcome and warnings only.

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
    """Texts of hooks for the context: `content`, `role`, and two flags (docs/protocol.md)."""
    whole: bool = False
    """Whether the result is the whole answer of an MCP server."""
    needed: tuple[str, ...] = ()
    """The methods that only the client could have answered; for an MCP client."""

    @property
    def ok(self) -> bool:
        return isinstance(self.outcome, Success)

    def for_mcp(self, needed: Sequence[str]) -> Response:
        """Return it as an MCP client needs it; `needed` is what only that could have answered."""
        outcome, whole = self.outcome, False
        if isinstance(outcome, Success) and outcome.whole is not None:
            outcome, whole = Success(outcome.whole, outcome.summary), True
        return msgspec.structs.replace(self, outcome=outcome, whole=whole, needed=tuple(needed))

    def document(self, *, built: bool = True) -> dict[str, Any]:
        """Return the document of docs/protocol.md; an absent summary or session is left out.

        For encoding alone, the result need not be `built`.
        """
        shown = self.shown()
        values = ((name, getattr(shown, name)) for name in _FIELDS)
        document = {name: value for name, value in values if value is not UNSET}
        if built and isinstance(self.outcome, Success):
            document["result"] = self.outcome.result
        if "warnings" in document:
            document["warnings"] = list(map(msgspec.to_builtins, self.notices))
        return document

    def shown(
        self,
        version: str | UnsetType = UNSET,
        type_: str | UnsetType = UNSET,
        named: str | UnsetType = UNSET,
        action: str | UnsetType = UNSET,
    ) -> _Shown:
        """Return a struct that encodes to the same document, after the face's own members."""
        outcome = self.outcome
        summary = UNSET if outcome.summary is None else outcome.summary
        ok = type(outcome) is not Failure  # `isinstance` of a msgspec type is slow to say no
        result: Any = UNSET
        error: dict[str, Any] | UnsetType = UNSET
        if type(outcome) is Failure:
            error = {"code": outcome.code, "message": outcome.message, "details": outcome.details}
        else:
            result = outcome.said
            if type(result) is Pieces:
                result = result.together()
        if not self.request_id:
            notices = self.notices or UNSET
            return _Shown(
                version, type_, named, action, ok, result, error, summary, warnings=notices
            )
        return _Shown(
            version,
            type_,
            named,
            action,
            ok,
            result,
            error,
            summary,
            self.request_id,
            self.module,
            self.op,
            UNSET if self.session_id is None else self.session_id,
            self.duration_ms,
            self.notices,
            list(self.injected) if self.injected else UNSET,
            True if self.whole else UNSET,
            self.needed or UNSET,
        )

    def done_line(self, request_id: str | None) -> bytes:
        """Encode the `done` event that ends a client's request of that id.

        Raises what an encoder does: a module's value may be too deep for it.
        """
        named = UNSET if request_id is None else request_id
        line = _encode(self.shown("0", "done", named))
        return (line if line.isascii() else one_line(line)) + b"\n"

    def done_pieces(self, request_id: str | None) -> list[bytes]:
        """Encode a response whose result is bytes, without joining them."""
        assert isinstance(self.outcome, Success)  # noqa: S101 - it has a result
        said = self.outcome.said
        parts = said.parts if type(said) is Pieces else [bytes(said)]
        around = msgspec.structs.replace(self, outcome=Success(_PLACE, self.outcome.summary))
        before, _, behind = around.done_line(request_id).partition(_PLACE)
        return [before, *parts, behind]


@final
class _Shown(msgspec.Struct, frozen=True, gc=False):
    """The fields of a response, in this order.

    The first three fields are those of an event, `action` is that of a WebSocket's message.
    """

    version: str | UnsetType
    type: str | UnsetType
    requestId: str | UnsetType  # noqa: N815 - that of the client
    action: str | UnsetType
    ok: bool
    result: Any
    error: dict[str, Any] | UnsetType
    summary: str | UnsetType
    request_id: str | UnsetType = UNSET
    """This and the following are fields of invocations only."""
    module: str | UnsetType = UNSET
    op: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    warnings: tuple[Notice, ...] | UnsetType = UNSET
    injected: list[dict[str, Any]] | UnsetType = UNSET
    whole: bool | UnsetType = UNSET
    needed: tuple[str, ...] | UnsetType = UNSET


_PLACE = msgspec.Raw(b'{"result":"pieces"}')
"""The place of the pieces in the line: only strings precede them, in which its quotes are escaped.
"""

_FIELDS = _Shown.__struct_fields__
