"""The writer of lines to a server, in the form of the agreed revision."""

from __future__ import annotations

from typing import Any

from protocol.connection import Request
from protocol.dialects.mcp.greeting import INITIALIZE, META, Agreed, Era, modern_meta
from protocol.dialects.mcp.rpc import RpcId, answer_line, notification_line, request_line
from protocol.errors import Outcome
from protocol.framing import Outgoing

REQUEST_ID = "stdiod/requestId"
"""The host's id of a request, in its `_meta`: transcripts are read by it."""

LOG_LEVEL = "info"
"""The level asked of a server of the newer era; one of the older era chooses itself."""


class Speaker:
    """Our side of the conversation with one process.

    Ids are numbers, counted from 1: many servers read them into an integer, and those that cannot
    read an id answer 0.
    """

    def __init__(self, client: dict[str, Any]) -> None:
        """`client` is the client capabilities."""
        self.outgoing = Outgoing()
        self.agreed: Agreed | None = None
        self.last_id = 0
        self._client = client

    @property
    def is_modern(self) -> bool:
        return self.agreed is not None and self.agreed.era is Era.MODERN

    def ask_own(self, method: str, params: dict[str, Any]) -> int:
        """Ask a question of the connection's own; returns its id."""
        self.last_id += 1
        line = request_line(self.last_id, method, self._with_meta(method, params, {}))
        self.outgoing.add(line)
        return self.last_id

    def ask(self, request: Request, method: str, params: dict[str, Any]) -> int:
        """Write a request of the host.

        Returns the id of the line, which is the token of its progress. Raises one of `UNENCODABLE`,
        and then writes nothing.
        """
        rpc_id = self.last_id + 1
        meta: dict[str, Any] = {"progressToken": rpc_id, REQUEST_ID: request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        line = request_line(rpc_id, method, self._with_meta(method, params, meta))
        self.outgoing.add(line, request.request_id)
        self.last_id = rpc_id
        return rpc_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.outgoing.add(notification_line(method, params))

    def answer(self, rpc_id: RpcId, outcome: Outcome) -> None:
        self.outgoing.add(answer_line(rpc_id, outcome))

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {**meta, **modern_meta(self._client)}
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params
