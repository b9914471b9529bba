r"""The notifications of a server of the newer era: one `subscriptions/listen` for all of them.

    wanted otherwise --> listen again --acknowledged--> the one before is cancelled
                                \--refused--> the one before goes on

So nothing is missed between the two, and there are two at the most: further wishes wait until
the newer one is acknowledged. Requests of the host follow resources (`resources/subscribe`);
they are answered when the server has acknowledged the resource.

A server of the older era notifies of its lists unasked, and has a request for each resource.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import Answered, ModuleLog, Received, Request, Unanswered
from protocol.dialects.mcp.vocabulary import EXTRAS, LISTEN, META, SUBSCRIBE
from protocol.dialects.mcp.writer import McpWriter
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.jsonrpc import RpcError, RpcId, meant_id
from protocol.problem import quoted


class Subscriptions:
    def __init__(self, writer: McpWriter) -> None:
        self._writer = writer
        self._lists: dict[str, bool] = {}
        self._resources: dict[str, None] = {}
        self._waiting: dict[str, str] = {}
        """The resources that requests of the host wait for, by their ids."""
        self._open: list[RpcId] = []
        """The ids of the open `subscriptions/listen`, the newest last."""
        self._acknowledged = True
        """Whether the server has acknowledged the newest one."""
        self._outdated = False

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def begin(self, capabilities: dict[str, Any]) -> None:
        """Subscribe to the lists that may change."""
        self._lists = {
            f"{one}ListChanged": True
            for one in ("tools", "prompts", "resources")
            if isinstance(capabilities.get(one), dict) and capabilities[one].get("listChanged")
        }
        if self._lists or any(one in capabilities for one in EXTRAS):
            self._listen()

    def ask(self, request: Request, received: list[Received]) -> None:
        uri = request.args["uri"]
        if request.op == SUBSCRIBE:
            self._resources[uri] = None
            self._waiting[request.request_id] = uri
        else:
            self._resources.pop(uri, None)
            received.append(Answered(request.request_id, Success({})))
        if self._acknowledged:
            self._listen()
        else:
            self._outdated = True

    def forget(self, request_id: str) -> None:
        uri = self._waiting.pop(request_id, None)
        if uri is not None and uri not in self._waiting.values():
            self._resources.pop(uri, None)

    def exited(self) -> list[Received]:
        left: list[Received] = [Unanswered(one) for one in self._waiting]
        self._waiting.clear()
        self._open.clear()
        return left

    # Answers and notifications of the server.

    @property
    def is_open(self) -> bool:
        """Whether a `subscriptions/listen` is open; it is answered when it ends."""
        return bool(self._open)

    def takes(self, rpc_id: RpcId | None) -> bool:
        return rpc_id in self._open

    def is_of(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification belongs to a subscription of ours."""
        meta = params.get("_meta")
        named = meta.get(f"{META}subscriptionId") if isinstance(meta, dict) else None
        return meant_id(named) in self._open

    def is_of_lists(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification is about the server's lists as they are now.

        A server that refuses to be listened to, or names no subscription, may notify all the same.
        """
        meta = params.get("_meta")
        names_none = not isinstance(meta, dict) or f"{META}subscriptionId" not in meta
        return names_none or not self._open or self.is_of(params)

    def acknowledged(self, params: dict[str, Any], received: list[Received]) -> bool:
        if not self.is_of(params) or self._acknowledged:
            return False
        if meant_id(params["_meta"][f"{META}subscriptionId"]) != self._open[-1]:
            return False
        for former in self._open[:-1]:
            self._writer.cancel(former)
        del self._open[:-1]
        told = params.get("notifications")
        resources = told.get("resourceSubscriptions") if isinstance(told, dict) else None
        known = resources if isinstance(resources, list) else []
        words = "the server will not tell when that resource changes"
        self._settle(known, Failure.because(Reason.INVALID_ARGS, words), received)
        return True

    def answered(
        self, rpc_id: RpcId, outcome: dict[str, Any] | RpcError, received: list[Received]
    ) -> None:
        """Take the end of a `subscriptions/listen`: no more notifications come because of it."""
        newest = self._open[-1] == rpc_id
        self._open.remove(rpc_id)
        if isinstance(outcome, RpcError):
            words = f"{LISTEN} was refused: {quoted(outcome.message)}"
            received.append(ModuleLog(Log(version="0", level="warn", message=words)))
        else:
            words = f"the server has ended {LISTEN}"
        if newest:
            self._settle([], Failure.because(Reason.INVALID_ARGS, words), received)

    def sent(self, rpc_id: RpcId) -> None:
        self._open = [*self._open[-1:], rpc_id]
        self._acknowledged = False

    def _listen(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        self.sent(self._writer.ask_own(LISTEN, {"notifications": wanted}))

    def _settle(self, known: list[Any], refusal: Failure, received: list[Received]) -> None:
        """Answer the requests that wait for a resource, and subscribe to resources wanted since."""
        self._acknowledged = True
        for request_id, uri in tuple(self._waiting.items()):
            if self._outdated and uri not in known:
                continue  # it was perhaps not asked for yet
            del self._waiting[request_id]
            outcome: Outcome = Success({}) if uri in known else refusal
            if isinstance(outcome, Failure):
                self._resources.pop(uri, None)
            received.append(Answered(request_id, outcome))
        if self._outdated:
            self._outdated = False
            self._listen()
