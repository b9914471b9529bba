"""The writer of lines to a server, in the form of the agreed revision."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import Request
from protocol.dialects.mcp.vocabulary import INITIALIZE, META, MODERN, Era
from protocol.framing import Outgoing
from protocol.jsonrpc import RpcId, RpcRequests
from protocol.version import VERSION

CLIENT = {"name": "stdiod", "version": VERSION}

REQUEST_ID = "stdiod/requestId"
"""The host's id of a request, in its `_meta`: a replay finds the request of a line by it."""

LOG_LEVEL = "info"
"""The level asked of a server of the newer era; one of the older era chooses itself."""


class Agreed(msgspec.Struct, frozen=True):
    era: Era
    revision: str
    capabilities: dict[str, Any]
    server: dict[str, Any]
    instructions: str | None


class McpWriter(RpcRequests):
    def __init__(self, client: dict[str, Any], outgoing: Outgoing) -> None:
        """`client` is the client capabilities."""
        super().__init__(outgoing)
        self.agreed: Agreed | None = None
        self._client = client

    @property
    def is_modern(self) -> bool:
        return self.agreed is not None and self.agreed.era is Era.MODERN

    def follow(self, agreed: Agreed) -> None:
        """Write in this form from now on."""
        self.agreed = agreed

    def ask_own(self, method: str, params: dict[str, Any]) -> int:
        """Ask a question of the connection's own; returns its id."""
        return self.ask(method, self._with_meta(method, params, {}))

    def ask_for(self, request: Request, method: str, params: dict[str, Any]) -> int:
        """Write a request of the host, as `ask` does; its id is the token of its progress."""
        meta: dict[str, Any] = {"progressToken": self.last_id + 1, REQUEST_ID: request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        return self.ask(method, self._with_meta(method, params, meta), request.request_id)

    def cancel(self, rpc_id: RpcId) -> None:
        self.notify("notifications/cancelled", {"requestId": rpc_id})

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {
                **meta,
                f"{META}protocolVersion": MODERN,
                f"{META}clientInfo": CLIENT,
                f"{META}clientCapabilities": self._client,
            }
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params
