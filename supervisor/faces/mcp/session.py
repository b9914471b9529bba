"""A client that is notified of changes: in the older era from `initialize` on, else on request.

older   initialize -> initialized -> all lists that change, unasked; and resources that were
        subscribed to
newer   subscriptions/listen -> acknowledged -> the lists in its filter, until it is cancelled

A list has changed when it differs from the one that the client was given: not when modules come
whose tools the client knows already, or a crashed module is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from protocol.dialects.mcp.greeting import INITIALIZE, META
from protocol.dialects.mcp.rpc import INVALID_PARAMS, INVALID_REQUEST, RpcError, RpcId
from protocol.errors import Reason
from protocol.events import Log, Progress
from protocol.mcp_server.client import LEVELS, LISTEN, McpClient, legacy_client, modern_client
from protocol.problem import described
from protocol.response import Response
from supervisor.faces.mcp.call import Channel
from supervisor.faces.mcp.methods import LISTS
from supervisor.faces.mcp.request import Absent, ClientRequest, Given, McpRequest
from supervisor.faces.mcp.server import McpServer
from supervisor.faces.mcp.table import Table
from supervisor.faces.mcp.updates import RESOURCE_UPDATED, FollowedResource
from supervisor.kernel.parties import DAEMON, Client, Handle, Party
from supervisor.kernel.resource_updates import URI_CHARS
from supervisor.policy.mcp_views import View
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion

CANCELLED = "notifications/cancelled"

SUBSCRIPTIONS = 1024
"""Per client."""

Notify = Callable[[str, dict[str, Any]], None]
"""Takes a notification: its method and params."""

OwnMethod = Callable[[Mapping[str, Any], Channel], None]
"""Takes the params of a request of the session alone, and the channel for its answer."""

GONE = Stopped(Reason.DISCONNECT, "the client is gone")


class Whose(msgspec.Struct, frozen=True):
    """A client's connection and its view of the modules."""

    server: McpServer
    party: Party
    view: View
    given: Given = msgspec.field(default_factory=dict)
    """The lists as the client knows them; over HTTP each request of the newer era is on its own."""

    def asked(
        self,
        rpc_id: RpcId,
        method: str,
        params: dict[str, Any],
        client: McpClient,
        headers: Mapping[str, str] | None = None,
    ) -> ClientRequest:
        party, view, given = self.party, self.view, self.given
        return ClientRequest(rpc_id, method, params, client, party, view, given, headers)

    def followed(
        self, uri: str, client: McpClient, updated: Callable[[str], None]
    ) -> FollowedResource:
        asked = self.asked(0, LISTEN, {}, client)
        return FollowedResource(self.server, asked, uri, updated)


def serve_modern(
    whose: Whose,
    rpc_id: RpcId,
    method: str,
    params: dict[str, Any],
    told: Channel,
    *,
    headers: Mapping[str, str] | None = None,
) -> Serving | None:
    """Begin a request of the newer era; None if it has ended at once."""
    client = modern_client(params)
    if isinstance(client, RpcError):
        told.finish(client)
        return None
    asked = whose.asked(rpc_id, method, params, client, headers)
    serve: Callable[[ClientRequest, Channel], Serving] = whose.server.serve
    if method == LISTEN:
        serve = partial(Listening, whose)
    serving = serve(asked, told)
    return None if serving.ended else serving


class McpSession:
    """A client of the older era."""

    def __init__(
        self,
        whose: Whose,
        tell: Notify,
        congested: Callable[[], Congestion] = lambda: Congestion.NONE,
    ) -> None:
        """`tell` writes notifications; fewer come while the client is `congested`."""
        self.client: McpClient | None = None
        """The client's `initialize`, once it has come."""
        self._whose = whose
        self._tell = tell
        self._congested = congested
        self._follows: Follow | None = None
        self._resources: dict[str, FollowedResource] = {}
        self._own: Mapping[str, OwnMethod] = {
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def serve(
        self, rpc_id: RpcId, method: str, params: dict[str, Any], told: Channel
    ) -> Serving | None:
        """Begin a request; None if it has ended at once."""
        client = self.client
        if method == INITIALIZE:
            client = self._initialize(params, told)
        elif client is None and method == "ping":
            told.finish({})
        elif client is None:
            words = f'"{INITIALIZE}" comes first, or each request says "{META}protocolVersion"'
            told.finish(RpcError(INVALID_REQUEST, f"{words} in its _meta"))
        if client is None:
            return None
        own = self._own.get(method)
        if own is not None:
            own(params, told)
            return None
        serving = self._whose.server.serve(self._whose.asked(rpc_id, method, params, client), told)
        return None if serving.ended else serving

    def notified(self, method: str) -> None:
        if method == "notifications/initialized" and self.client and not self._follows:
            told = (self._changed, self._tell, self._congested)
            self._follows = Follow(self._whose, self.client, *told)
            self._follows.begin()

    def resume(self) -> None:
        if self._follows is not None:
            self._follows.resume()

    def close(self) -> None:
        """The client is gone; idempotent."""
        if self._follows is not None:
            self._follows.cancel(GONE)
        while self._resources:
            self._resources.popitem()[1].cancel(GONE)

    def _initialize(self, params: dict[str, Any], told: Channel) -> McpClient | None:
        found = legacy_client(params)
        if self.client is not None:
            found = RpcError(INVALID_REQUEST, f'"{INITIALIZE}" was said before')
        if isinstance(found, RpcError):
            told.finish(found)
            return None
        self.client = found
        return found

    def _changed(self, what: str) -> None:
        self._tell(_notification(what), {})

    def _set_level(self, params: Mapping[str, Any], told: Channel) -> None:
        level = params.get("level")
        if level not in LEVELS or self.client is None:
            words = f'"level" is {described(level)}, it must be one of {", ".join(LEVELS)}'
            told.finish(RpcError(INVALID_PARAMS, words))
            return
        self.client = msgspec.structs.replace(self.client, log_level=level)
        told.finish({})

    def _subscribe(self, params: Mapping[str, Any], told: Channel) -> None:
        uri = params.get("uri")
        problem = _problem_of_resources([uri], len(self._resources))
        if problem is not None or not isinstance(uri, str) or self.client is None:
            told.finish(RpcError(INVALID_PARAMS, f'"uri": {problem}'))
            return

        def settled(problem: RpcError | None) -> None:
            if problem is not None:
                self._resources.pop(uri, None)
            told.finish({} if problem is None else problem)

        known = self._resources.get(uri)
        if known is not None:
            known.when_settled(settled)
            return
        followed = self._resources[uri] = self._whose.followed(uri, self.client, self._updated)
        followed.when_settled(settled)
        followed.begin()

    def _unsubscribe(self, params: Mapping[str, Any], told: Channel) -> None:
        followed = self._resources.pop(str(params.get("uri")), None)
        if followed is not None:
            followed.cancel(GONE)
        told.finish({})

    def _updated(self, uri: str) -> None:
        self._tell(RESOURCE_UPDATED, {"uri": uri})


def _problem_of_resources(uris: Any, known: int = 0) -> str | None:
    """Return the fault in the URIs of resources to follow; None if there is none."""
    if not isinstance(uris, list):
        return f"{described(uris)} is no list of strings"
    for uri in uris:
        if not isinstance(uri, str) or not 0 < len(uri) <= URI_CHARS:
            return f"{described(uri)} is no string of 1 to {URI_CHARS} characters"
    if known + len(uris) > SUBSCRIPTIONS:
        return f"a client may follow at most {SUBSCRIPTIONS} resources"
    return None


class Listening:
    """A request of the newer era to be told of changes, for as long as it is open.

    It is acknowledged when it is known which of the resources can be followed; nothing is told
    before that.
    """

    def __init__(self, whose: Whose, asked: ClientRequest, told: Channel) -> None:
        self.ended = False
        self._told = told
        self._meta = {f"{META}subscriptionId": asked.rpc_id}
        self._wanted: list[str] = []
        self._resources: list[FollowedResource] = []
        self._unsettled: set[str] = set()
        self._follow = Follow(whose, asked.client, self._changed, self._notified, told.congested)
        filter_ = asked.params.get("notifications")
        if not isinstance(filter_, dict):
            words = f'"notifications" is {described(filter_)}, it must be an object'
            self._finish(RpcError(INVALID_PARAMS, words))
            return
        uris = filter_.get("resourceSubscriptions", [])
        problem = _problem_of_resources(uris)
        if problem is not None:
            words = f'"resourceSubscriptions" in "notifications": {problem}'
            self._finish(RpcError(INVALID_PARAMS, words))
            return
        self._wanted = [what for what in CHANGING if filter_.get(f"{what}ListChanged") is True]
        followed = [whose.followed(one, asked.client, self._updated) for one in dict.fromkeys(uris)]
        self._unsettled = {one.uri for one in followed}
        for one in followed:
            one.when_settled(partial(self._settled, one))
            one.begin()
        if not followed:
            self._acknowledge()

    def cancel(self, stopped: Stopped) -> None:
        """Idempotent."""
        if not self.ended:
            self._follow.cancel(stopped)
            for one in self._resources:
                one.cancel(stopped)
            self._finish({"resultType": "complete", "_meta": self._meta})

    def resume(self) -> None:
        self._follow.resume()

    def _settled(self, resource: FollowedResource, problem: RpcError | None) -> None:
        if self.ended:
            resource.cancel(GONE)
            return
        if problem is None:
            self._resources.append(resource)
        self._unsettled.discard(resource.uri)
        if not self._unsettled:
            self._acknowledge()

    def _acknowledge(self) -> None:
        wanted: dict[str, Any] = {f"{what}ListChanged": True for what in self._wanted}
        if self._resources:
            wanted["resourceSubscriptions"] = [one.uri for one in self._resources]
        acknowledged = {"notifications": wanted, "_meta": self._meta}
        self._told.notify("notifications/subscriptions/acknowledged", acknowledged)
        self._follow.begin(baseline=True)

    def _changed(self, what: str) -> None:
        if what in self._wanted:
            self._told.notify(_notification(what), {"_meta": self._meta})

    def _updated(self, uri: str) -> None:
        if not self.ended and not self._unsettled:
            self._told.notify(RESOURCE_UPDATED, {"uri": uri, "_meta": self._meta})

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        meta = params.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), **self._meta}
        self._told.notify(method, {**params, "_meta": meta})

    def _finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        self.ended = True
        self._told.finish(outcome)


Serving = McpRequest | Listening


class Follow(Client):
    """The changes of the lists that a client knows."""

    def __init__(
        self,
        whose: Whose,
        client: McpClient,
        changed: Callable[[str], None],
        notify: Notify,
        congested: Callable[[], Congestion],
    ) -> None:
        """Call `changed` with the one of `CHANGING` that has.

        Pass notifications of extensions to `notify`.
        """
        self._congested = congested
        self._notify = notify
        self._sole: str | None = None
        """The only module behind the view."""
        self._whose = whose
        self._client = client
        self._changed = changed
        self._told: Given = {}
        """Lists known to have changed; the client may not have asked for them yet."""
        self._handle: Handle | None = None

    def begin(self, *, baseline: bool = False) -> None:
        """Begin to follow; with a `baseline`, the present lists count as known to the client."""
        content = {"op": "offers", "args": {"follow": True, "notifications": True}}
        begin, party = self._whose.server.begin, self._whose.party
        self._handle = begin(party, DAEMON, "invoke", content, self)
        self._with_table(self._know, wait=False)
        if baseline:
            self._with_table(self._take, wait=True)

    def cancel(self, stopped: Stopped) -> None:
        """Idempotent."""
        if self._handle is not None:
            self._handle.cancel(stopped)

    def resume(self) -> None:
        if self._handle is not None:
            self._handle.resume()

    def event(self, event: Progress, line: bytes | None) -> None:
        """Report a change of this client's lists; pass on a notification of an extension."""
        del line
        fields = event.fields if isinstance(event, Log) else None
        if not isinstance(fields, dict) or "method" not in fields:
            self._with_table(self._compare, wait=False)
        elif fields["module"] == self._sole:
            self._notify(fields["method"], fields["params"])

    def finished(self, response: Response) -> None:
        del response
        self._handle = None

    def congested(self) -> Congestion:
        return self._congested()

    def _with_table(self, then: Callable[[Table], None], *, wait: bool) -> None:
        asked = self._whose.asked(0, LISTEN, {}, self._client)
        McpRequest(self._whose.server, asked, Absent()).with_table(then, wait=wait)

    def _know(self, table: Table) -> None:
        self._sole = table.sole

    def _take(self, table: Table) -> None:
        for field, pick in LISTS.items():
            self._whose.given.setdefault(field, pick(table))

    def _compare(self, table: Table) -> None:
        self._know(table)
        now = {field: pick(table) for field, pick in LISTS.items()}
        given, told = self._whose.given, self._told
        other = {one for one in given if now[one] not in (given[one], told.get(one))}
        told.update((one, now[one]) for one in other)
        if self._handle is None:
            return  # it is over
        for what, fields in CHANGING.items():
            if not other.isdisjoint(fields):
                self._changed(what)


CHANGING = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "resourceTemplates"),
}
"""The change notifications, and the lists that each is about."""


def _notification(what: str) -> str:
    return f"notifications/{what}/list_changed"
