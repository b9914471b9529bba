"""The open requests of a connection: which ids stand for what, and the form of their lines.

    id of                     owner         closed by
    a request of the host     OpenCall      its answer or its cancel; after an answer that wants
                                            input it goes on under another id (`calls`)
    the connection's own      OwnQuestion   its answer, or when nobody wants the answer any more
    a request of the server   -             the host's answer

Lines are in the form of the agreed revision; before that, each question is in that of its own era.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.connection import Request
from protocol.dialects.mcp.server_requests import Round
from protocol.dialects.mcp.vocabulary import INITIALIZE, LISTEN, META, MODERN, Era
from protocol.framing import Outgoing
from protocol.jsonrpc import RpcId, RpcReply, RpcRequests
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


class OpenCall(msgspec.Struct, gc=False):
    request: Request
    method: str
    params: dict[str, Any]
    rpc_id: RpcId = 0
    progress: float | None = None
    rounds: int = 0
    round: Round | None = None
    """The input that the server waits for before it goes on."""

    @property
    def is_waiting(self) -> bool:
        """Whether its line has to be answered."""
        return self.round is None


class OwnQuestion(msgspec.Struct, eq=False):
    method: str
    then: Callable[[OwnQuestion, RpcReply], None]
    """Takes the answer."""
    rpc_id: RpcId = 0

    @property
    def is_waiting(self) -> bool:
        """Whether its line has to be answered; the answer to a subscription is its end."""
        return self.method != LISTEN


class McpRequests(RpcRequests[OpenCall | OwnQuestion]):
    def __init__(self, client: dict[str, Any], outgoing: Outgoing) -> None:
        """`client` is the client capabilities."""
        super().__init__(outgoing)
        self.client = client
        self.agreed: Agreed | None = None
        self.is_modern = False

    def follow(self, agreed: Agreed) -> None:
        """Write in this form from now on."""
        self.agreed = agreed
        self.is_modern = agreed.era is Era.MODERN

    @property
    def waiting(self) -> list[RpcId]:
        """The ids of the lines that have to be answered."""
        return [rpc_id for rpc_id, owner in self.open.items() if owner.is_waiting]

    def owner(self, rpc_id: RpcId | None) -> OpenCall | OwnQuestion | None:
        """Return the owner of a line that may be answered."""
        owner = None if rpc_id is None else self.open.get(rpc_id)
        return None if isinstance(owner, OpenCall) and owner.round is not None else owner

    def ask_for(self, call: OpenCall, params: dict[str, Any]) -> None:
        """Write a request of the host; its id is the token of its progress."""
        request = call.request
        meta: dict[str, Any] = {"progressToken": self.last_id + 1, REQUEST_ID: request.request_id}
        if request.traceparent is not None:
            meta["traceparent"] = request.traceparent
        params = self._with_meta(call.method, params, meta)
        rpc_id = self.ask(call.method, params, call, request.request_id)
        self.close(call.rpc_id)
        call.rpc_id = rpc_id

    def ask_own(
        self, method: str, params: dict[str, Any], then: Callable[[OwnQuestion, RpcReply], None]
    ) -> OwnQuestion:
        question = OwnQuestion(method, then)
        question.rpc_id = self.ask(method, self._with_meta(method, params, {}), question)
        return question

    def asks(self, method: str) -> bool:
        """Tell whether the answer to an own question is still to come."""
        return any(
            isinstance(owner, OwnQuestion) and owner.method == method
            for owner in self.open.values()
        )

    def forget(self, method: str | None = None) -> None:
        """Close the own questions with a method, or all: a late answer means nothing."""
        for owner in tuple(self.open.values()):
            if isinstance(owner, OwnQuestion) and method in (None, owner.method):
                self.close(owner.rpc_id)

    def cancel(self, rpc_id: RpcId) -> None:
        self.close(rpc_id)
        self.notify("notifications/cancelled", {"requestId": rpc_id})

    def _with_meta(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        if self.is_modern or (self.agreed is None and method != INITIALIZE):
            meta = {
                **meta,
                f"{META}protocolVersion": MODERN,
                f"{META}clientInfo": CLIENT,
                f"{META}clientCapabilities": self.client,
            }
            if self.agreed is not None and "logging" in self.agreed.capabilities:
                meta[f"{META}logLevel"] = LOG_LEVEL
        return {**params, "_meta": meta} if meta else params
