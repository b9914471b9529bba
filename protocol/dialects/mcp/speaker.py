"""What is written to a server: each line as the revision wants it that was agreed on."""

from __future__ import annotations

from typing import Any

from protocol.connection import NewId, Request
from protocol.dialects.mcp.greeting import INITIALIZE, META, Agreed, Era, modern_meta
from protocol.dialects.mcp.rpc import RpcId, answer_line, notification_line, request_line
from protocol.errors import Outcome
from protocol.framing import Outgoing

LOG_LEVEL = "info"
"""What a server of the newer era is asked to log; one of the older era chooses itself."""


class Speaker:
    """Our side of the conversation with one process."""

    def __init__(self, client: dict[str, Any], new_id: NewId) -> None:
        """Declare the `client` capabilities with what is asked in the newer era."""
        self.outgoing = Outgoing()
        self.agreed: Agreed | None = None
        """What the handshake came to, once it has."""
        self._client = client
        self._new_id = new_id

    @property
    def is_modern(self) -> bool:
        """Whether the newer era was agreed on."""
        return self.agreed is not None and self.agreed.era is Era.MODERN

    def ask_own(self, method: str, params: dict[str, Any]) -> str:
        """Ask something of the connection's own; returns its id."""
        own = self._new_id()
        self.outgoing.add(request_line(own, method, self._with_meta(method, params, {})))
        return own

    def ask(self, request: Request, rpc_id: str, method: str, params: dict[str, Any]) -> None:
        """Ask something of the host's; raises one of `UNENCODABLE` and then writes nothing."""
        meta = {"progressToken": request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        line = request_line(rpc_id, method, self._with_meta(method, params, meta))
        self.outgoing.add(line, request.request_id)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell something."""
        self.outgoing.add(notification_line(method, params))

    def answer(self, rpc_id: RpcId, outcome: Outcome) -> None:
        """Answer a request of the server's."""
        self.outgoing.add(answer_line(rpc_id, outcome))

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {**meta, **modern_meta(self._client)}
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params
