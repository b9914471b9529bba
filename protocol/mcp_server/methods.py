"""The methods of MCP: each is one function, from the client's request to its result.

A method that is not in the table, or not of the client's era, is not found. Lists are those of
`offered`; the daemon checks a call's permission when it serves it. A function returns the result,
or raises `McpRequestError`; `ClientRequest.finish` mends the answer and sends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.client import ClientQuestion, QuestionWithdrawn, RequestEvent
from protocol.dialects.mcp.catalogue import LISTS
from protocol.dialects.mcp.vocabulary import (
    ASK,
    DISCOVER,
    INITIALIZE,
    LISTEN,
    META,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Era,
)
from protocol.errors import Failure, Outcome
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.host_events import RegisteredAsset
from protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from protocol.mcp_server.client import (
    LEVELS,
    REVISIONS,
    McpRequestError,
    check_param_headers,
    refused,
)
from protocol.mcp_server.daemon_link import RequestEnd, document_of, fields_of, pause_of
from protocol.mcp_server.mending import definition_for
from protocol.mcp_server.offered import CHANGING, ListWatch
from protocol.mcp_server.request import (
    CLIENT_CAPABILITIES,
    SERVER,
    ClientRequest,
)
from protocol.mcp_server.results import (
    ASSET_SCHEME,
    RESULT_SCHEME,
    contents,
    filled,
    own_error,
    read_file,
    renamed_contents,
    servers_own_error,
    tool_result,
)
from protocol.mcp_server.table import Op, Table, module_of_uri, own_uri
from protocol.mcp_server.tasks import Pending
from protocol.problem import EXCERPT_CHARS, described, did_you_mean, printable, quoted

if TYPE_CHECKING:
    from protocol.mcp_server.server import McpServer

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

GREET_S = 2.0
"""How long a client that says hello waits for the daemon, of which the instructions are; then it is
answered without them."""

PAGE_BYTES = 1 << 20
"""A page of a list has entries up to this length: many clients read no second page."""

TTL_MS = 0
"""Changes are notified at once; a list may change at any moment."""


RESOURCE_UPDATED = "notifications/resources/updated"

SUBSCRIPTIONS = 1024
"""Per client."""

URI_CHARS = 2048


# Tools.


async def call_tool(request: ClientRequest) -> Mapping[str, Any]:
    """Call the op that a tool's name stands for, and return the result for the client.

    The lists lead from the name to a module. What the module tells before its end goes on to the
    client at once: progress, logs, questions. Its outcome becomes a result, into which the bytes
    of its files are put.
    """
    server, name = request.server, request.text("name")
    args = request.params_of("arguments").get("arguments", {})
    if not isinstance(args, dict):
        words = f'"arguments" is {described(args)}, it must be an object'
        raise refused(INVALID_PARAMS, words)
    table = await server.offered.table(use_kept=True)
    if name not in table.names:
        # It may be of a module of which nothing was known a moment ago, or new.
        may_have = table.may_have(name, server.daemon.view)
        table = await server.offered.table(look_again=may_have)
    module, op = server.offered.known.meaning(name) or op_of_down_module(server, name, table)
    tool = table.lists["tools"].get(name, {})
    if request.headers is not None and request.client.is_modern:
        check_param_headers(tool.get("inputSchema", {}), args, request.headers)
    structured = request.has_output_schema = "outputSchema" in tool
    outcome, assets = await call_module(request, module, op, args)
    result = tool_result(outcome, list(assets.values()), structured=structured)
    if structured and not request.client.is_modern and result.get("isError") is True:
        # SDKs of the older era hold an error to the output schema.
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    return await filled(request, result, assets)


def op_of_down_module(server: McpServer, name: str, table: Table) -> Op:
    """Return the op of a module that is down, of which nothing is known; else refuse.

    The call starts the module, or says why not.
    """
    known = server.offered.known
    op = known.unlisted(name) if server.daemon.view.prefix else None
    if op is not None and not known.serves(op[0]):
        return op
    near = [one for one in table.names if op is None or table.names[one][0] == op[0]]
    words = f"there is no tool {quoted(name)}{did_you_mean(name, near)}"
    if table.missing is not None and not server.daemon.view.prefix:
        words += f"; {table.missing}"
    raise refused(INVALID_PARAMS, words)


async def call_module(
    request: ClientRequest, module: str, op: str, args: dict[str, Any]
) -> tuple[Outcome, dict[str, RegisteredAsset]]:
    """Call an op by the daemon; what comes before its end is passed on to the client.

    Returns the outcome, and the files that the call handed over, by the module's own ids.
    """
    assets: dict[str, RegisteredAsset] = {}
    content = {"op": op, "args": args, **request.traceparent}
    call = request.server.daemon.open(module, "invoke", content, asks=request.can_answer)
    try:
        with call:
            while not isinstance(event := await call.next(), RequestEnd):
                match event:
                    case ClientQuestion():
                        request.ask(event)
                    case QuestionWithdrawn():
                        request.withdraw(event.call_id)
                    case RequestEvent():
                        pass_on(request, module, document_of(event), assets)
    finally:
        request.withdraw()
    request.gather(event.size_bytes)
    lacking = (one for one in event.needed if one not in request.can_answer)
    request.needed = {CLIENT_CAPABILITIES[one]: {} for one in lacking}
    return event.outcome, assets


def pass_on(
    request: ClientRequest,
    module: str,
    document: dict[str, Any],
    assets: dict[str, RegisteredAsset],
) -> None:
    """Pass an event of a call on to the client, as far as it has a form in MCP; files are kept."""
    match document:
        case {"type": "log", "level": str(level), "message": message}:
            fields = document.get("fields")
            logger = fields.get("logger", module) if isinstance(fields, dict) else module
            request.log(level, str(logger), message)
        case {"type": "asset", "registered": dict()}:
            asset = msgspec.convert(document, RegisteredAsset)
            assets[asset.asset_id] = asset
        case {"type": "ui_event", "approval": str(), "event": "approval.request"}:
            if ASK not in request.can_answer:
                question = document["payload"]
                words = printable(str(question.get("prompt", "a person is asked")), EXCERPT_CHARS)
                words += f" (this client can't ask: type `stdiod approve {question['id']}`, or"
                words += " --deny with it; `stdiod approvals` shows the whole question)"
                request.say(words, module)
        case {"type": "ui_event", "event": "progress", "payload": dict(payload)}:
            request.progress(payload)


# Prompts, resources and completion: what a module answers is passed on.


async def get_prompt(request: ClientRequest) -> Mapping[str, Any]:
    name = request.text("name")
    table = await request.server.offered.table(use_kept=True)
    op = table.prompt_names.get(name)
    if op is None:
        near = did_you_mean(name, table.lists["prompts"])
        raise refused(INVALID_PARAMS, f"there is no prompt {quoted(name)}{near}")
    args = {"name": op[1], **request.params_of("arguments")}
    outcome, assets = await call_module(request, op[0], "prompts/get", args)
    return await filled(request, own_result(outcome), assets)


async def read_resource(request: ClientRequest) -> Mapping[str, Any]:
    uri, server = request.text("uri"), request.server
    if uri.startswith(ASSET_SCHEME):
        file = await read_file(request, uri.removeprefix(ASSET_SCHEME))
        if isinstance(file, Failure):
            raise McpRequestError(own_error(file, uri))
        return cacheable({"contents": [contents(uri, *file)]}, request)
    if uri.startswith(RESULT_SCHEME):
        data = server.kept_result(uri)
        if data is None:
            words = f"there is no result {quoted(uri)} (any more)"
            raise refused(INVALID_PARAMS, words, {"uri": uri})
        return cacheable({"contents": [contents(uri, "application/json", data)]}, request)
    table = await server.offered.table(use_kept=True)
    modules, own = table.readers_of(uri), own_uri(uri)
    why = "" if modules else did_you_mean(uri, table.lists["resources"])
    for module in modules:  # those that list the resource, until one has it
        outcome, assets = await call_module(request, module, "resources/read", {"uri": own})
        if isinstance(outcome, Failure) and len(modules) == 1:
            error = servers_own_error(outcome)
            if error is not None:  # nobody else was asked: it is the answer
                raise McpRequestError(error)
        try:
            result = own_result(outcome)
        except McpRequestError as refusal:
            why = f": {refusal.error.message}"
            continue
        if result.get("contents"):
            result = renamed_contents(result, uri.removesuffix(own))
            return await filled(request, cacheable(result, request), assets)
    raise refused(INVALID_PARAMS, f"there is no resource {quoted(uri)}{why}", {"uri": uri})


async def complete(request: ClientRequest) -> Mapping[str, Any]:
    ref = request.params.get("ref")
    if not isinstance(ref, dict):
        raise refused(INVALID_PARAMS, f'"ref" is {described(ref)}, it must be an object')
    table = await request.server.offered.table(use_kept=True)
    uri, module, named = str(ref.get("uri")), None, {**ref}
    if ref.get("type") == "ref/prompt":
        module, named["name"] = table.prompt_names.get(str(ref.get("name")), (None, None))
    elif (of_module := module_of_uri(uri)) is not None:
        module, named["uri"] = of_module if of_module[0] in table.readers else (None, None)
    else:
        module, named["uri"] = table.owners.get(uri), uri
    if module is None:
        words = f"nothing can be completed for {described(ref.get('name', ref.get('uri')))}"
        raise refused(INVALID_PARAMS, f"{words}: it is not a prompt or template here")
    if module not in table.completing:
        raise refused(METHOD_NOT_FOUND, f"{module} completes nothing")
    args = {"ref": named, **request.params_of("argument", "context")}
    outcome, assets = await call_module(request, module, "completion/complete", args)
    return await filled(request, own_result(outcome), assets)


def own_result(outcome: Outcome) -> dict[str, Any]:
    """Return the result that a module gave in MCP's own form; raises `McpRequestError`."""
    if isinstance(outcome, Failure):
        raise McpRequestError(own_error(outcome))
    if not isinstance(outcome.result, dict):
        words = f"the module answered with {described(outcome.result)}, no object"
        raise refused(INTERNAL_ERROR, words)
    return outcome.result


# The client, and lists.


async def greet(request: ClientRequest) -> Mapping[str, Any]:
    table, client = await request.server.offered.table_within(GREET_S), request.client
    result: dict[str, Any] = {"capabilities": {**CAPABILITIES, **(table.extras if table else {})}}
    if table is not None and table.instructions is not None:
        result["instructions"] = table.instructions
    if client.is_modern:
        return cacheable({**result, "supportedVersions": list(REVISIONS)}, request)
    return {**result, "protocolVersion": client.revision, "serverInfo": SERVER}


async def ping(request: ClientRequest) -> Mapping[str, Any]:
    del request
    return {}


async def set_level(request: ClientRequest) -> Mapping[str, Any]:
    level, client = request.params.get("level"), request.server.client
    if level not in LEVELS or client is None:
        words = f'"level" is {described(level)}, it must be one of {", ".join(LEVELS)}'
        raise refused(INVALID_PARAMS, words)
    request.server.client = msgspec.structs.replace(client, log_level=level)
    return {}


async def list_entries(request: ClientRequest) -> Mapping[str, Any]:
    """Return a page of a list: as much as fits from where its cursor points."""
    field = LISTS[request.method].field
    try:
        table = await request.server.offered.table()
    except McpRequestError:
        # An error stands for an empty list. So its client is told of a change once there is
        # something to list: it would not ask again by itself.
        request.lists.setdefault(field, {})
        raise
    if field == "tools" and table.missing is not None:
        request.log("warn", SERVER["name"], table.missing)
    entries = request.lists[field] = table.lists[field]
    names, cursor = list(entries), request.params.get("cursor")
    at = 0
    if cursor is not None:
        if not isinstance(cursor, str) or cursor not in entries:
            words = f"the cursor {described(cursor)} is of a list that has changed; begin anew"
            raise refused(INVALID_PARAMS, words)
        at = names.index(cursor) + 1
    problem = table.problem or table.unlisted.get(field)
    if not names and problem is not None:
        raise refused(INTERNAL_ERROR, f"there is nothing to list: {problem}")
    size = 0
    shown: list[msgspec.Raw] = []
    try:
        for name in names[at:]:
            encoded = encode(definition_for(request.client.revision, entries[name]))
            size += len(encoded)
            if shown and size > PAGE_BYTES:
                break
            shown.append(msgspec.Raw(encoded))
    except UNENCODABLE as error:
        words = f"the {field} cannot be passed on: {type(error).__name__}"
        raise refused(INTERNAL_ERROR, words) from None
    page: dict[str, Any] = {field: shown}
    at += len(shown)
    if at < len(names):
        page["nextCursor"] = names[at - 1]
    return cacheable(page, request)


def cacheable(result: dict[str, Any], request: ClientRequest) -> dict[str, Any]:
    if not request.client.is_modern:
        return result
    return {**result, "ttlMs": TTL_MS, "cacheScope": "private"}


# Changes of resources and lists.


async def subscribe(request: ClientRequest) -> Mapping[str, Any]:
    server = request.server
    uri: Any = request.params.get("uri")
    check_uris('"uri"', [uri], len(server.followed))
    followed = server.followed.get(uri)
    if followed is None:
        followed = server.followed[uri] = FollowedResource(
            server, uri, lambda one: server.tell(RESOURCE_UPDATED, {"uri": one})
        )
    is_followed = False
    try:
        error = await followed.problem
        is_followed = error is None
    finally:
        if not is_followed and server.followed.get(uri) is followed:
            del server.followed[uri]
            followed.close()
    if error is not None:
        raise McpRequestError(error)
    return {}


async def unsubscribe(request: ClientRequest) -> Mapping[str, Any]:
    followed = request.server.followed.pop(str(request.params.get("uri")), None)
    if followed is not None:
        followed.close()
    return {}


async def listen(request: ClientRequest) -> Mapping[str, Any]:
    """Tell of changes for as long as the request is open.

    It is acknowledged when it is known which of the resources can be followed; nothing is told
    before that.
    """
    wished = request.params.get("notifications")
    if not isinstance(wished, dict):
        words = f'"notifications" is {described(wished)}, it must be an object'
        raise refused(INVALID_PARAMS, words)
    uris = wished.get("resourceSubscriptions", [])
    check_uris('"resourceSubscriptions" in "notifications"', uris)
    wanted = [one for one in CHANGING if wished.get(f"{one}ListChanged") is True]
    own_meta = {f"{META}subscriptionId": request.rpc_id}
    is_acknowledged = False

    def tell(method: str, params: dict[str, Any]) -> None:
        said = params.get("_meta")
        meta = {**(said if isinstance(said, dict) else {}), **own_meta}
        request.notify(method, {**params, "_meta": meta})

    def updated(uri: str) -> None:
        if is_acknowledged:
            tell(RESOURCE_UPDATED, {"uri": uri})

    followed = [FollowedResource(request.server, one, updated) for one in dict.fromkeys(uris)]
    try:
        known = [one.uri for one in followed if await one.problem is None]
        told: dict[str, Any] = {f"{one}ListChanged": True for one in wanted}
        if known:
            told["resourceSubscriptions"] = known
        tell("notifications/subscriptions/acknowledged", {"notifications": told})
        is_acknowledged = True
        watch = ListWatch(request.lists, tell, wanted, takes_present=True)
        await request.server.offered.watch(watch)
    finally:
        for one in followed:
            one.close()
    return {}


def check_uris(label: str, uris: Any, known: int = 0) -> None:
    """Raise `McpRequestError` unless a client that follows `known` resources may follow these."""
    if not isinstance(uris, list):
        raise refused(INVALID_PARAMS, f"{label}: {described(uris)} is no list of strings")
    for uri in uris:
        if not isinstance(uri, str) or not 0 < len(uri) <= URI_CHARS:
            words = f"{label}: {described(uri)} is no string of 1 to {URI_CHARS} characters"
            raise refused(INVALID_PARAMS, words)
    if known + len(uris) > SUBSCRIPTIONS:
        words = f"{label}: a client may follow at most {SUBSCRIPTIONS} resources"
        raise refused(INVALID_PARAMS, words)


class FollowedResource:
    """A resource that a client follows: from finding its module to each of its updates."""

    def __init__(self, server: McpServer, uri: str, updated: Callable[[str], None]) -> None:
        """Call `updated` with the URI of each update."""
        self.uri = uri
        self.problem: Pending[RpcError | None] = Pending(server.tasks)
        """Why it is not followed; None if it is from now on."""
        self._server = server
        self._updated = updated
        self._is_followed = False
        self._task = server.tasks.spawn(self._follow())

    def close(self) -> None:
        """Idempotent."""
        self._task.cancel()
        self.problem.set(self._refusal(": its client has unsubscribed meanwhile"))

    async def _follow(self) -> None:
        """Follow it, and again after its module or the daemon was away."""
        error = self._refusal(": it failed here")
        try:
            while True:
                changed = self._server.offered.changed  # before: a change may come before the end
                error, pause_s = await self._follow_once()
                if not self._is_followed:
                    break
                if pause_s is None:
                    await changed
                else:
                    await self._server.tasks.sleep(pause_s)
        finally:
            self.problem.set(error)

    async def _follow_once(self) -> tuple[RpcError, float | None]:
        """Follow it for as long as that lasts.

        Returns why it ended, or never began, and the time until it may be followed again: None if
        that takes a change of the lists.
        """
        try:
            table = await self._server.offered.table(use_kept=True, is_patient=self._is_followed)
        except McpRequestError as refusal:
            return refusal.error, None
        why, pause_s = ": no module here has it", None
        for module in table.readers_of(self.uri):
            args = {"module": module, "uri": own_uri(self.uri)}
            with self._server.daemon.read("resource.follow", args) as request:
                while not isinstance(event := await request.next(), RequestEnd):
                    if isinstance(event, RequestEvent):
                        self._take_update(event)
            pause_s = pause_of(event.outcome)
            if isinstance(event.outcome, Failure):
                why = f": {event.outcome.message}"
            if self._is_followed:
                break
        return self._refusal(why), pause_s

    def _take_update(self, event: RequestEvent) -> None:
        """Take an update; the first event says that it is followed, and so does one without URI."""
        fields, prefix = fields_of(event), self.uri.removesuffix(own_uri(self.uri))
        if "uri" in fields:
            self._updated(prefix + fields["uri"])
        elif self._is_followed:
            self._updated(self.uri)  # it may have changed while the daemon was away
        self._is_followed = True
        self.problem.set(None)

    def _refusal(self, why: str) -> RpcError:
        words = f"the resource {quoted(self.uri)} cannot be followed"
        return RpcError(INVALID_PARAMS, words + why, {"uri": self.uri})


class Method(msgspec.Struct, frozen=True):
    """The function that serves a method, and the eras that have the method."""

    serve: Callable[[ClientRequest], Awaitable[Mapping[str, Any]]]
    eras: frozenset[Era] = frozenset(Era)


_NEWER, _OLDER = frozenset({Era.MODERN}), frozenset({Era.LEGACY})

METHODS: Mapping[str, Method] = {
    DISCOVER: Method(greet, _NEWER),
    INITIALIZE: Method(greet, _OLDER),
    "ping": Method(ping, _OLDER),
    **dict.fromkeys(LISTS, Method(list_entries)),
    "tools/call": Method(call_tool),
    "prompts/get": Method(get_prompt),
    "resources/read": Method(read_resource),
    SUBSCRIBE: Method(subscribe, _OLDER),
    UNSUBSCRIBE: Method(unsubscribe, _OLDER),
    LISTEN: Method(listen, _NEWER),
    "completion/complete": Method(complete),
    "logging/setLevel": Method(set_level, _OLDER),
}
