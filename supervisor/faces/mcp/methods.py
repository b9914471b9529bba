"""The requests of an MCP client, and the daemon's ops for each.

A table: a method that is not in it, or not of the client's era, is not found. Lists are made from
the op `offers`, and kept until modules change; a call's permission is checked when it is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from protocol.dialects.mcp.greeting import DISCOVER, INITIALIZE, Era
from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
)
from protocol.errors import Failure, Outcome
from protocol.frames import encode
from protocol.host_call import UNENCODABLE
from protocol.host_events import RegisteredAsset
from protocol.mcp_server.client import REVISIONS
from protocol.mcp_server.headers import param_problem
from protocol.mcp_server.mending import definition_for
from protocol.mcp_server.names import Op
from protocol.mcp_server.results import (
    ASSET_SCHEME,
    contents,
    module_of_uri,
    own_error,
    own_uri,
    renamed_contents,
    servers_own_error,
    tool_result,
)
from protocol.problem import described, did_you_mean, quoted
from supervisor.faces.mcp.call import File
from supervisor.faces.mcp.request import SERVER, ClientRequest, McpRequest
from supervisor.faces.mcp.set_aside import SCHEME as SET_ASIDE
from supervisor.faces.mcp.table import Table

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

PAGE_BYTES = 1 << 20
"""A page of a list has entries up to this length: many clients read no second page."""

TTL_MS = 0
"""Changes are notified at once; a list may change at any moment."""

LISTS: Mapping[str, Callable[[Table], Mapping[str, dict[str, Any]]]] = {
    "tools": lambda table: table.tools,
    "prompts": lambda table: table.prompts,
    "resources": lambda table: table.resources,
    "resourceTemplates": lambda table: table.templates,
}
"""The lists, by their fields in an answer."""


class Method(msgspec.Struct, frozen=True):
    """The function that serves a method, and the eras that have the method."""

    serve: Callable[[McpRequest], None]
    eras: frozenset[Era] = frozenset(Era)


# Of a client and what there is.


def _greet(request: McpRequest) -> None:
    def told(table: Table) -> None:
        client = request.asked.client
        found: dict[str, Any] = {"capabilities": {**CAPABILITIES, **table.extras}}
        if table.instructions is not None:
            found["instructions"] = table.instructions
        if client.is_modern:
            found |= {"supportedVersions": list(REVISIONS), "ttlMs": TTL_MS}
            found["cacheScope"] = "private"
        else:
            found |= {"protocolVersion": client.revision, "serverInfo": SERVER}
        request.finish(found)

    request.with_table(told, wait=False)


def _ping(request: McpRequest) -> None:
    request.finish({})


def _lister(field: str) -> Method:
    def serve(request: McpRequest) -> None:
        def listed(table: Table) -> None:
            entries = request.asked.given[field] = LISTS[field](table)
            level = request.asked.client.wants("warn")
            if field == "tools" and table.missing is not None and level is not None:
                told = {"level": level, "logger": SERVER["name"], "data": table.missing}
                request.notify("notifications/message", told)
            request.finish(_page(field, entries, table, request.asked))

        request.with_table(listed)

    return Method(serve)


def _page(
    field: str, entries: Mapping[str, dict[str, Any]], table: Table, asked: ClientRequest
) -> dict[str, Any] | RpcError:
    names, cursor = list(entries), asked.params.get("cursor")
    at = 0
    if cursor is not None:
        if not isinstance(cursor, str) or cursor not in entries:
            words = f"the cursor {described(cursor)} is of a list that has changed; begin anew"
            return RpcError(INVALID_PARAMS, words)
        at = names.index(cursor) + 1
    problem = table.problem or table.unlisted.get(field)
    if not names and problem is not None:
        return RpcError(INTERNAL_ERROR, f"there is nothing to list: {problem}")
    revision, size = asked.client.revision, 0
    page: list[msgspec.Raw] = []
    try:
        for name in names[at:]:
            encoded = encode(definition_for(revision, entries[name]))
            size += len(encoded)
            if page and size > PAGE_BYTES:
                break
            page.append(msgspec.Raw(encoded))
    except UNENCODABLE as error:
        words = f"the {field} cannot be passed on: {type(error).__name__}"
        return RpcError(INTERNAL_ERROR, words)
    found: dict[str, Any] = {field: page}
    at += len(page)
    if at < len(names):
        found["nextCursor"] = names[at - 1]
    return _cacheable(found, asked)


def _cacheable(found: dict[str, Any], asked: ClientRequest) -> dict[str, Any]:
    if not asked.client.is_modern:
        return found
    return {**found, "ttlMs": TTL_MS, "cacheScope": "private"}


# Tools.


def _call_tool(request: McpRequest) -> None:
    name = request.text("name")
    if name is None:
        return
    args = request.given("arguments").get("arguments", {})
    if not isinstance(args, dict):
        words = f'"arguments" is {described(args)}, it must be an object'
        request.finish(RpcError(INVALID_PARAMS, words))
        return

    def call(table: Table) -> None:
        op = request.meaning(name) or _down_module(request, name, table)
        if op is None:
            return
        tool = table.tools.get(name, {})
        headers, schema = request.asked.headers, tool.get("inputSchema", {})
        problem = None if headers is None else param_problem(schema, args, headers)
        if problem is not None:
            request.finish(problem)
            return
        structured = request.has_output_schema = "outputSchema" in tool

        def answered(outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
            found = tool_result(outcome, list(assets.values()), structured=structured)
            if isinstance(found, RpcError):
                request.finish(found)
            else:
                request.finish_with(_taken(found, request), assets)

        request.invoke(*op, args, answered)

    def found(table: Table) -> None:
        if name in table.tools:
            call(table)
        else:
            # It may be of a module of which nothing was known a moment ago, or new.
            request.with_table(call, look_again=table.may_have(name, request.asked.view))

    request.with_table(found)


def _down_module(request: McpRequest, name: str, table: Table) -> Op | None:
    """Return the op of a module that is down, of which nothing is known; else refuse.

    The call starts the module, or says why not.
    """
    op = request.unlisted(name)
    if op is not None and not request.server.serves(op[0]):
        return op
    near = [one for one in table.tools if op is None or table.names[one][0] == op[0]]
    words = f"there is no tool {quoted(name)}{did_you_mean(name, near)}"
    if table.missing is not None and not request.asked.view.prefix:
        words += f"; {table.missing}"
    request.finish(RpcError(INVALID_PARAMS, words))
    return None


def _taken(result: dict[str, Any], request: McpRequest) -> dict[str, Any]:
    """Return a result without `structuredContent`.

    SDKs of the older era hold an error to the output schema.
    """
    modern = request.asked.client.is_modern
    if modern or not request.has_output_schema or result.get("isError") is not True:
        return result
    return {key: value for key, value in result.items() if key != "structuredContent"}


# Prompts, resources and completion: what a module answers is passed on.


def _passed_on(outcome: Outcome) -> Mapping[str, Any] | RpcError:
    if isinstance(outcome, Failure):
        return own_error(outcome)
    result = outcome.result
    if isinstance(result, dict):
        return result
    return RpcError(INTERNAL_ERROR, f"the module answered with {described(result)}, no object")


def _pass_on(request: McpRequest, outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
    found = _passed_on(outcome)
    if isinstance(found, RpcError):
        request.finish(found)
    else:
        request.finish_with(found, assets)


def _get_prompt(request: McpRequest) -> None:
    name = request.text("name")
    if name is None:
        return

    def found(table: Table) -> None:
        op = table.prompt_names.get(name)
        if op is None:
            near = did_you_mean(name, table.prompts)
            request.finish(RpcError(INVALID_PARAMS, f"there is no prompt {quoted(name)}{near}"))
            return
        args = {"name": op[1], **request.given("arguments")}
        request.invoke(op[0], "prompts/get", args, partial(_pass_on, request))

    request.with_table(found)


def _read_resource(request: McpRequest) -> None:
    uri = request.text("uri")
    if uri is None:
        return
    if uri.startswith(ASSET_SCHEME):
        _read_asset(request, uri)
        return
    if uri.startswith(SET_ASIDE):
        _read_set_aside(request, uri)
        return
    request.with_table(lambda table: _read_of(request, uri, table))


def _read_of(request: McpRequest, uri: str, table: Table) -> None:
    """Ask the modules that list the resource, one after the other, until one has it."""
    modules, own = table.readers_of(uri), own_uri(uri)
    near = "" if modules else did_you_mean(uri, table.resources)

    def ask(left: Sequence[str], why: str) -> None:
        if not left:
            words = f"there is no resource {quoted(uri)}{why}"
            request.finish(RpcError(INVALID_PARAMS, words, {"uri": uri}))
            return
        module, *others = left

        def answered(outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
            servers_own = servers_own_error(outcome) if isinstance(outcome, Failure) else None
            found = _passed_on(outcome)
            if servers_own is not None and len(modules) == 1:
                request.finish(servers_own)  # nobody else was asked: it is the answer
            elif isinstance(found, RpcError):
                ask(others, f": {found.message}")
            elif not found.get("contents"):
                ask(others, why)
            else:
                told = renamed_contents(found, uri.removesuffix(own))
                request.finish_with(_cacheable(told, request.asked), assets)

        request.invoke(module, "resources/read", {"uri": own}, answered)

    ask(modules, near)


def _read_asset(request: McpRequest, uri: str) -> None:
    def read(found: File | Failure) -> None:
        if isinstance(found, Failure):
            request.finish(own_error(found, uri))
        else:
            told = {"contents": [contents(uri, found.media_type, found.data)]}
            request.finish(_cacheable(told, request.asked))

    request.read(uri.removeprefix(ASSET_SCHEME), read)


def _read_set_aside(request: McpRequest, uri: str) -> None:
    data = request.server.set_aside.find(uri, request.asked.party.principal)
    if data is None:
        words = f"there is no result {quoted(uri)} (any more)"
        request.finish(RpcError(INVALID_PARAMS, words, {"uri": uri}))
    else:
        told = {"contents": [contents(uri, "application/json", data)]}
        request.finish(_cacheable(told, request.asked))


def _complete(request: McpRequest) -> None:
    ref = request.asked.params.get("ref")
    if not isinstance(ref, dict):
        words = f'"ref" is {described(ref)}, it must be an object'
        request.finish(RpcError(INVALID_PARAMS, words))
        return

    def found(table: Table) -> None:
        module, name = _referred(table, ref)
        if module is None:
            words = f"nothing can be completed for {described(ref.get('name', ref.get('uri')))}"
            words += ": it is not a prompt or template here"
            request.finish(RpcError(INVALID_PARAMS, words))
        elif module not in table.completing:
            request.finish(RpcError(METHOD_NOT_FOUND, f"{module} completes nothing"))
        else:
            named = {**ref, "name" if ref.get("type") == "ref/prompt" else "uri": name}
            args = {"ref": named, **request.given("argument", "context")}
            request.invoke(module, "completion/complete", args, partial(_pass_on, request))

    request.with_table(found)


def _referred(table: Table, ref: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the module of a reference, and the module's own name for the prompt or template."""
    if ref.get("type") == "ref/prompt":
        return table.prompt_names.get(str(ref.get("name")), (None, None))
    uri = str(ref.get("uri"))
    of_module = module_of_uri(uri)
    if of_module is not None:
        return of_module if of_module[0] in table.readers else (None, None)
    return table.owners.get(uri), uri


_NEWER, _OLDER = frozenset({Era.MODERN}), frozenset({Era.LEGACY})

METHODS: Mapping[str, Method] = {
    DISCOVER: Method(_greet, _NEWER),
    INITIALIZE: Method(_greet, _OLDER),
    "ping": Method(_ping, _OLDER),
    "tools/list": _lister("tools"),
    "tools/call": Method(_call_tool),
    "prompts/list": _lister("prompts"),
    "prompts/get": Method(_get_prompt),
    "resources/list": _lister("resources"),
    "resources/templates/list": _lister("resourceTemplates"),
    "resources/read": Method(_read_resource),
    "completion/complete": Method(_complete),
}
"""The other methods are of a connection: `faces.mcp.session`."""
