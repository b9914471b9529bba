r"""The notifications of a server of the newer era: one `subscriptions/listen` for all of them.

    wanted otherwise --> listen again --acknowledged--> the one before is cancelled
                                \--refused--> the one before goes on

So nothing is missed between the two, and there are two at the most: further wishes wait until the
newer one is acknowledged. Requests of the host follow resources (`resources/subscribe`); they are
answered when the server has acknowledged the resource.

A server of the older era notifies of its lists unasked, and has a request for each resource.
"""

from __future__ import annotations

from typing import Any

from protocol.connection import Answered, Logged, Received, Request, Unanswered
from protocol.dialects.mcp.requests import McpRequests, OwnQuestion
from protocol.dialects.mcp.vocabulary import EXTRAS, LISTEN, META, SUBSCRIBE
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log
from protocol.json_line import Fault
from protocol.jsonrpc import RpcError, RpcReply, meant_id
from protocol.problem import quoted


class Subscriptions:
    def __init__(self, requests: McpRequests, events: list[Received]) -> None:
        self._requests = requests
        self._events = events
        self._lists: dict[str, bool] = {}
        self._resources: dict[str, None] = {}
        self._waiting: dict[str, str] = {}
        """The resources that requests of the host wait for, by their ids."""
        self._open: list[OwnQuestion] = []
        """The open `subscriptions/listen`, the newest last."""
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

    def ask(self, request: Request) -> None:
        uri = request.args["uri"]
        if request.op == SUBSCRIBE:
            self._resources[uri] = None
            self._waiting[request.request_id] = uri
        else:
            self._resources.pop(uri, None)
            self._events.append(Answered(request.request_id, Success({})))
        if self._acknowledged:
            self._listen()
        else:
            self._outdated = True

    def cancel(self, request_id: str) -> None:
        uri = self._waiting.pop(request_id, None)
        if uri is not None and uri not in self._waiting.values():
            self._resources.pop(uri, None)

    def exited(self) -> None:
        self._events += map(Unanswered, self._waiting)
        self._waiting.clear()
        self._open.clear()

    # Answers and notifications of the server.

    @property
    def is_open(self) -> bool:
        """Whether a `subscriptions/listen` is open; it is answered when it ends."""
        return bool(self._open)

    def is_of(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification belongs to a subscription of ours."""
        return self._named(params) is not None

    def is_of_lists(self, params: dict[str, Any]) -> bool:
        """Tell whether a notification is about the server's lists as they are now.

        A server that refuses to be listened to, or names no subscription, may notify all the same.
        """
        meta = params.get("_meta")
        names_none = not isinstance(meta, dict) or f"{META}subscriptionId" not in meta
        return names_none or not self._open or self.is_of(params)

    def _named(self, params: dict[str, Any]) -> OwnQuestion | None:
        meta = params.get("_meta")
        named = meta.get(f"{META}subscriptionId") if isinstance(meta, dict) else None
        rpc_id = meant_id(named)
        return next((one for one in self._open if one.rpc_id == rpc_id), None)

    def acknowledged(self, params: dict[str, Any]) -> bool:
        """Take an acknowledgement; False if it is not of the newest subscription."""
        if self._acknowledged or not self._open or self._named(params) is not self._open[-1]:
            return False
        *former, newest = self._open
        for one in former:
            self._requests.cancel(one.rpc_id)
        self._open = [newest]
        told = params.get("notifications")
        resources = told.get("resourceSubscriptions") if isinstance(told, dict) else None
        known = resources if isinstance(resources, list) else []
        words = "the server will not tell when that resource changes"
        self._settle(known, Failure.because(Reason.INVALID_ARGS, words))
        return True

    def _ended(self, subscription: OwnQuestion, reply: RpcReply) -> None:
        """Take the end of a subscription: no more notifications come because of it."""
        is_newest = self._open[-1] is subscription
        self._open.remove(subscription)
        words = f"the server has ended {LISTEN}"
        if isinstance(reply, RpcError | Fault):
            words = f"{LISTEN} was refused: {quoted(reply.message)}"
            self._events.append(Logged(Log(version="0", level="warn", message=words)))
        if is_newest:
            self._settle([], Failure.because(Reason.INVALID_ARGS, words))

    def _listen(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        newest = self._requests.ask_own(LISTEN, {"notifications": wanted}, self._ended)
        self._open = [*self._open[-1:], newest]
        self._acknowledged = False

    def _settle(self, known: list[Any], refusal: Failure) -> None:
        """Answer the requests that wait for a resource, and subscribe to resources wanted since."""
        self._acknowledged = True
        for request_id, uri in tuple(self._waiting.items()):
            if self._outdated and uri not in known:
                continue  # it was perhaps not asked for yet
            del self._waiting[request_id]
            outcome: Outcome = Success({}) if uri in known else refusal
            if isinstance(outcome, Failure):
                self._resources.pop(uri, None)
            self._events.append(Answered(request_id, outcome))
        if self._outdated:
            self._outdated = False
            self._listen()
