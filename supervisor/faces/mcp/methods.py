"""The requests that an MCP client may make, and what each asks of the daemon.

A table: a method that is not in it, or not of the client's era, is not found. What a list shows is
made of the op `offers`, and kept as long as nothing has changed; whether somebody may call what it
shows is decided where the call is served.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from protocol.dialects.mcp.greeting import DISCOVER, INITIALIZE, META, Era
from protocol.dialects.mcp.inquiries import ASK
from protocol.dialects.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
    RpcId,
)
from protocol.errors import Failure, Outcome
from protocol.host_events import RegisteredAsset
from protocol.mcp_server.client import MISSING_CAPABILITY, REVISIONS, McpClient
from protocol.mcp_server.headers import param_problem
from protocol.mcp_server.names import Names
from protocol.mcp_server.results import (
    ASSET_SCHEME,
    EmbeddedAsset,
    contents,
    embedded,
    own_error,
    tool_result,
)
from protocol.problem import described, did_you_mean, quoted
from protocol.version import VERSION
from supervisor.faces.mcp.call import FILE_BYTES, Answered, Call, Channel, File, FileRead
from supervisor.faces.mcp.questions import CAPABILITIES as ASKED_FOR
from supervisor.faces.mcp.questions import (
    COLLECT_S,
    ELICIT,
    Inquiry,
    ParkingPlace,
    decision_of,
    form_of,
)
from supervisor.faces.mcp.table import Table, make_table
from supervisor.kernel.daemon import Daemon
from supervisor.kernel.parties import DAEMON, OutcomeOnly, Party
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.deadlines import Timer

SERVER = {"name": "stdiod", "title": "stdiod", "version": VERSION}

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

PAGE = 500
"""Entries of a list in one answer."""

TABLES = 256
"""So many tables are kept, for as many views and principals."""

TTL_MS = 0
"""A change is told of at once; a list may be another one the next moment."""

LISTS: Mapping[str, Callable[[Table], Mapping[str, dict[str, Any]]]] = {
    "tools": lambda table: table.tools,
    "prompts": lambda table: table.prompts,
    "resources": lambda table: table.resources,
    "resourceTemplates": lambda table: table.templates,
}
"""The lists that there are, by the field that an answer has them in."""

Given = dict[str, Mapping[str, dict[str, Any]]]
"""What a client knows of each list."""


class ClientRequest(msgspec.Struct, frozen=True):
    """A request of a client."""

    rpc_id: RpcId
    method: str
    params: dict[str, Any]
    client: McpClient
    party: Party
    view: View
    given: Given
    headers: Mapping[str, str] | None = None
    """Over HTTP, in the newer era: those that say args again are held to them."""

    @property
    def token(self) -> RpcId | None:
        """The token for progress, if it wants that."""
        meta = self.params.get("_meta")
        found = meta.get("progressToken") if isinstance(meta, dict) else None
        return found if isinstance(found, str) or type(found) is int else None

    @property
    def traceparent(self) -> dict[str, Any]:
        """The trace that it belongs to, as an invocation takes it."""
        meta = self.params.get("_meta")
        found = meta.get("traceparent") if isinstance(meta, dict) else None
        return {} if found is None else {"traceparent": found}


_SERVERS: WeakKeyDictionary[Daemon, McpServer] = WeakKeyDictionary()


class McpServer:
    """What the clients of one daemon share."""

    @classmethod
    def of(cls, daemon: Daemon) -> McpServer:
        """Return the one of a daemon."""
        found = _SERVERS.get(daemon)
        if found is None:
            found = _SERVERS[daemon] = cls(daemon)
        return found

    def __init__(self, daemon: Daemon) -> None:
        self.begin = daemon.requests.begin
        self._catalogue = daemon.catalogue
        self.deadlines = daemon.requests.deadlines
        self.parked = ParkingPlace(self.deadlines)
        self._tables: dict[tuple[View, Principal], Table] = {}
        self._names: dict[tuple[View, Principal], Names] = {}

    def serve(self, asked: ClientRequest, told: Channel) -> Request:
        """Begin a request, or go on with one that waited for its client; `told` is told of it."""
        request = Request(self, asked, told)
        if asked.client.is_modern and request.comes_back:
            return request.resumed()
        method = METHODS.get(asked.method)
        if method is None or asked.client.era not in method.eras:
            words = f"there is no method {quoted(asked.method)}"
            if method is not None:
                words += f" in the revision {asked.client.revision}"
            request.finish(RpcError(METHOD_NOT_FOUND, words))
        else:
            method.serve(request)
        return request

    def kept(self, view: View, principal: Principal, *, wait: bool) -> Table | None:
        """Return a table that nothing has changed since; for those who `wait`, one that waited."""
        table = self._tables.get((view, principal))
        if table is None or table.version != self._catalogue.version:
            return None
        return table if table.has_waited or not wait else None

    def keep(self, view: View, principal: Principal, table: Table) -> None:
        """Keep a table."""
        key = (view, principal)
        self._tables.pop(key, None)
        while len(self._tables) >= TABLES:
            oldest = next(iter(self._tables))
            del self._tables[oldest], self._names[oldest]
        self._tables[key] = table
        self._names.setdefault(key, Names()).replace(table.names)

    def meaning(self, view: View, principal: Principal, name: str) -> tuple[str, str] | None:
        """Return the op that a tool's name means, or meant."""
        names = self._names.get((view, principal))
        return None if names is None else names.find(name)


class Request:
    """One request, whatever serves it at the moment."""

    def __init__(self, server: McpServer, asked: ClientRequest, told: Channel) -> None:
        self.server = server
        self.asked = asked
        self.told = told
        self.ended = False
        self._call: Call | FileRead | _Awaiting | None = None
        self._inquiries: dict[str, Inquiry] = {}
        """What the client is to be asked, in the newer era."""
        self._given: Mapping[str, Any] = {}
        """Its answers, before the questions."""
        self._withdraw: dict[str, Callable[[], None]] = {}
        self._round: Timer | None = None
        self._needed: dict[str, dict[str, Any]] = {}

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Answer it; in the newer era with what each result has there."""
        self.ended = True
        self._call = None
        if self._round is not None:
            self._round.cancel()
        if self._needed and self.asked.client.is_modern and _is_error(outcome):
            words = f"the client has to be able to do this: {', '.join(self._needed)}"
            data = {"requiredCapabilities": self._needed}
            outcome = RpcError(MISSING_CAPABILITY, words, data)
        if not isinstance(outcome, RpcError) and self.asked.client.is_modern:
            meta = {f"{META}serverInfo": SERVER, **outcome.get("_meta", {})}
            outcome = {"resultType": "complete", **outcome, "_meta": meta}
        self.told.finish(outcome)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell something in its course."""
        self.told.notify(method, params)

    def congested(self) -> Congestion:
        """Whether nothing should come faster for now."""
        return self.told.congested()

    def cancel(self, stopped: Stopped) -> None:
        """Give it up; idempotent."""
        if self._call is not None:
            self._call.cancel(stopped)

    def resume(self) -> None:
        """Have it go on: the client may have room again."""
        if self._call is not None:
            self._call.resume()

    # What its client is asked (faces.mcp.call.Asking).

    @property
    def whose(self) -> tuple[Principal, str, str]:
        """Who may come back to it, and with what."""
        asked = self.asked
        named = str(asked.params.get("name", asked.params.get("uri")))
        return asked.party.principal, asked.method, named

    @property
    def comes_back(self) -> bool:
        """Whether its client says that it was asked something, and brings answers."""
        return any(name in self.asked.params for name in ("requestState", "inputResponses"))

    def resumed(self) -> Request:
        """Return the request that goes on with the answers: one that waited, or itself."""
        params = self.asked.params
        answers = params.get("inputResponses", {})
        if not isinstance(answers, dict):
            words = f'"inputResponses" is {described(answers)}, it must be an object'
            self.finish(RpcError(INVALID_PARAMS, words))
        elif "requestState" not in params:
            self._given = answers
            METHODS[self.asked.method].serve(self)
        else:
            waited = self.server.parked.take(params["requestState"], self.whose)
            if isinstance(waited, Request):
                waited.go_on(self.asked, self.told, answers)
                return waited
            self.finish(waited)
        return self

    def go_on(self, asked: ClientRequest, told: Channel, answers: Mapping[str, Any]) -> None:
        """Go on for a client that has come back; what it did not answer is asked again."""
        left, self.asked, self.told = self.told, asked, told
        if isinstance(left, Absent) and left.outcome is not None:
            told.finish(left.outcome)
            return
        for key in tuple(self._inquiries):
            if isinstance(answers.get(key), dict):
                self._inquiries.pop(key).answered(answers[key])
        self._begin_round()

    def may_be_asked(self, method: str) -> bool:
        """Whether its client says that it can answer that."""
        return ASKED_FOR[method] in self.asked.client.capabilities

    def was_needed(self, method: str) -> None:
        """Take note that nobody else could answer it."""
        if not self.may_be_asked(method):
            self._needed[ASKED_FOR[method]] = {}

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Ask its client; returns what withdraws that."""
        if not self.asked.client.is_modern:
            return self.told.ask(method, params, answered)
        given = self._given.get(key)
        if isinstance(given, dict):
            self._given = {one: value for one, value in self._given.items() if one != key}
            answered(given)
            return lambda: None
        self._inquiries[key] = Inquiry(method, params, answered)
        self._begin_round()

        def withdraw() -> None:
            self._inquiries.pop(key, None)

        return withdraw

    def ask_person(self, question: Mapping[str, Any]) -> None:
        """Put a question of the daemon's to its client, if that can be asked."""
        if not self.may_be_asked(ASK):
            return  # somebody else may answer it: `stdiod approve`

        def answered(answer: dict[str, Any] | RpcError) -> None:
            def decided(outcome: Outcome) -> None:
                if isinstance(outcome, Failure) and not self.ended:
                    self.ask_person(question)  # it does not fit

            decision = decision_of(question, answer)
            _Awaiting(decided).begin(self.server, self.asked.party, "approve", decision)

        key = str(question.get("call_id", question["id"]))
        self._withdraw[question["id"]] = self.ask(key, ELICIT, form_of(question), answered)

    def person_answered(self, approval: str) -> None:
        """Withdraw that: somebody has answered, or the time is over."""
        withdraw = self._withdraw.pop(approval, None)
        if withdraw is not None:
            withdraw()

    def _begin_round(self) -> None:
        if self._round is None:
            self._round = self.server.deadlines.after(COLLECT_S, self._end_round)

    def _end_round(self) -> None:
        """Have the client answer what has been collected."""
        self._round = None
        if not self._inquiries or self.ended or isinstance(self.told, Absent):
            return
        requests = {
            key: {"method": one.method, "params": one.params}
            for key, one in self._inquiries.items()
        }
        told, self.told = self.told, Absent()
        told.finish(
            {
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": self.server.parked.park(self),
                "_meta": {f"{META}serverInfo": SERVER},
            }
        )

    # For the methods.

    def text(self, name: str) -> str | None:
        """Return a param that has to be a string; None if it was refused."""
        value = self.asked.params.get(name)
        if isinstance(value, str):
            return value
        found = f"is {described(value)}" if name in self.asked.params else "is missing"
        self.finish(RpcError(INVALID_PARAMS, f'"{name}" {found}, it must be a string'))
        return None

    def given(self, *names: str) -> dict[str, Any]:
        """Return those params of these names that there are."""
        return {name: self.asked.params[name] for name in names if name in self.asked.params}

    def meaning(self, name: str) -> tuple[str, str] | None:
        """Return the op that a tool's name means, or meant."""
        return self.server.meaning(self.asked.view, self.asked.party.principal, name)

    def with_table(
        self, then: Callable[[Table], None], *, anew: bool = False, wait: bool = True
    ) -> None:
        """Call `then` with what there is; those who `wait` have modules that are starting, too.

        What the daemon refuses is the answer.
        """
        asked = self.asked
        principal = asked.party.principal
        kept = None if anew else self.server.kept(asked.view, principal, wait=wait)
        if kept is not None:
            then(kept)
            return

        def answered(outcome: Outcome) -> None:
            self._call = None
            if isinstance(outcome, Failure):
                self.finish(own_error(outcome))
                return
            offers = outcome.result
            version, offered = offers["version"], offers["modules"]
            table = make_table(version, asked.view, principal, offered, has_waited=wait)
            self.server.keep(asked.view, principal, table)
            then(table)

        awaiting = self._call = _Awaiting(answered)
        awaiting.begin(self.server, asked.party, "offers", {"wait": wait})

    def invoke(self, module: str, op: str, args: dict[str, Any], answered: Answered) -> None:
        """Have an op asked; `answered` goes on with what it came to."""
        asked = self.asked
        call = self._call = Call(self.server.begin, asked, self, self, answered)
        call.invoke(module, op, args, **asked.traceparent)

    def read(self, asset: str, answered: Callable[[File | Failure], None]) -> None:
        """Have a file read."""
        reading = self._call = FileRead(self.server.begin, self.asked.party, answered)
        reading.read(asset)

    def finish_with(self, result: Mapping[str, Any], assets: Mapping[str, RegisteredAsset]) -> None:
        """Answer with a result in which the bytes of some files belong."""
        if not any(one.asset_id in assets for one in embedded(result)):
            self.finish(result)
            return
        whole = copy.deepcopy(dict(result))  # others hold the result, too
        self._fill(whole, [one for one in embedded(whole) if one.asset_id in assets], assets, 0)

    def _fill(
        self,
        result: dict[str, Any],
        places: list[EmbeddedAsset],
        assets: Mapping[str, RegisteredAsset],
        size: int,
    ) -> None:
        if not places:
            self.finish(result)
            return
        place, *others = places
        registered = assets[place.asset_id].registered
        if size + registered.bytes > FILE_BYTES:
            place.leave_out(f"the files of an answer take at most {FILE_BYTES} bytes")
            self._fill(result, others, assets, size)
            return

        def read(found: File | Failure) -> None:
            if isinstance(found, Failure):
                place.leave_out(found.message)
            else:
                place.put(found.data)
            self._fill(result, others, assets, size + registered.bytes)

        self.read(registered.id, read)


class Absent:
    """In the place of a client that is to come back."""

    def __init__(self) -> None:
        self.outcome: Mapping[str, Any] | RpcError | None = None

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Keep nothing."""

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        """Keep the answer."""
        self.outcome = outcome

    def congested(self) -> Congestion:
        """Return none: nothing is kept."""
        return Congestion.NONE

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[dict[str, Any] | RpcError], None],
    ) -> Callable[[], None]:
        """Ask nobody: it is for the older era, whose clients stay."""
        del method, params, answered
        return lambda: None


def _is_error(outcome: Mapping[str, Any] | RpcError) -> bool:
    return isinstance(outcome, RpcError) or outcome.get("isError") is True


class _Awaiting:
    """A request to the daemon itself."""

    def __init__(self, then: Callable[[Outcome], None]) -> None:
        self._then = then
        self._handle: Any = None

    def begin(self, server: McpServer, party: Party, op: str, args: dict[str, Any]) -> None:
        """Ask."""
        content = {"op": op, "args": args}
        client = OutcomeOnly(lambda response: self._then(response.outcome))
        self._handle = server.begin(party, DAEMON, "invoke", content, client)

    def cancel(self, stopped: Stopped) -> None:
        """Give it up."""
        if self._handle is not None:
            self._handle.cancel(stopped)

    def resume(self) -> None:
        """Do nothing: there are no events."""


class Method(msgspec.Struct, frozen=True):
    """A method: what serves it, and in which era."""

    serve: Callable[[Request], None]
    eras: frozenset[Era] = frozenset(Era)


# Of a client and what there is.


def _greet(request: Request) -> None:
    def told(table: Table) -> None:
        client = request.asked.client
        found: dict[str, Any] = {"capabilities": CAPABILITIES}
        if table.instructions is not None:
            found["instructions"] = table.instructions
        if client.is_modern:
            found |= {"supportedVersions": list(REVISIONS), "ttlMs": TTL_MS}
            found["cacheScope"] = "private"
        else:
            found |= {"protocolVersion": client.revision, "serverInfo": SERVER}
        request.finish(found)

    request.with_table(told, wait=False)


def _ping(request: Request) -> None:
    request.finish({})


def _lister(field: str) -> Method:
    def serve(request: Request) -> None:
        def listed(table: Table) -> None:
            entries = request.asked.given[field] = LISTS[field](table)
            request.finish(_page(field, entries, table, request.asked))

        request.with_table(listed)

    return Method(serve)


def _page(
    field: str, entries: Mapping[str, dict[str, Any]], table: Table, asked: ClientRequest
) -> dict[str, Any] | RpcError:
    names, cursor = list(entries), asked.params.get("cursor")
    at = 0
    if cursor is not None:
        if cursor not in entries:
            words = f"the cursor {described(cursor)} is of a list that has changed; begin anew"
            return RpcError(INVALID_PARAMS, words)
        at = names.index(cursor) + 1
    if not names and table.problem is not None:
        return RpcError(INTERNAL_ERROR, f"there is nothing to list: {table.problem}")
    page = names[at : at + PAGE]
    found: dict[str, Any] = {field: [entries[name] for name in page]}
    if at + PAGE < len(names):
        found["nextCursor"] = page[-1]
    return _cacheable(found, asked)


def _cacheable(found: dict[str, Any], asked: ClientRequest) -> dict[str, Any]:
    if not asked.client.is_modern:
        return found
    return {**found, "ttlMs": TTL_MS, "cacheScope": "private"}


# Tools.


def _call_tool(request: Request) -> None:
    name = request.text("name")
    if name is None:
        return
    args = request.asked.params.get("arguments", {})
    if not isinstance(args, dict):
        words = f'"arguments" is {described(args)}, it must be an object'
        request.finish(RpcError(INVALID_PARAMS, words))
        return

    def call(table: Table) -> None:
        op = request.meaning(name)
        if op is None:
            words = f"there is no tool {quoted(name)}{did_you_mean(name, table.tools)}"
            request.finish(RpcError(INVALID_PARAMS, words))
            return
        tool = table.tools.get(name, {})
        headers, schema = request.asked.headers, tool.get("inputSchema", {})
        problem = None if headers is None else param_problem(schema, args, headers)
        if problem is not None:
            request.finish(problem)
            return
        structured = "outputSchema" in tool

        def answered(outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
            found = tool_result(outcome, list(assets.values()), structured=structured)
            if isinstance(found, RpcError):
                request.finish(found)
            else:
                request.finish_with(found, assets)

        request.invoke(*op, args, answered)

    def found(table: Table) -> None:
        if name in table.tools:
            call(table)
        else:
            # It may be of a module of which nothing was known a moment ago.
            request.with_table(call, anew=True)

    request.with_table(found)


# Prompts, resources and completion: what a module answers is passed on.


def _passed_on(outcome: Outcome) -> Mapping[str, Any] | RpcError:
    if isinstance(outcome, Failure):
        return own_error(outcome)
    result = outcome.result
    if isinstance(result, dict):
        return result
    return RpcError(INTERNAL_ERROR, f"the module answered with {described(result)}, no object")


def _pass_on(request: Request, outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
    found = _passed_on(outcome)
    if isinstance(found, RpcError):
        request.finish(found)
    else:
        request.finish_with(found, assets)


def _get_prompt(request: Request) -> None:
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


def _read_resource(request: Request) -> None:
    uri = request.text("uri")
    if uri is None:
        return
    if uri.startswith(ASSET_SCHEME):
        _read_asset(request, uri)
        return
    request.with_table(lambda table: _read_of(request, uri, table.readers_of(uri)))


def _read_of(request: Request, uri: str, modules: Sequence[str], why: str = "") -> None:
    """Ask one module after the other, until one knows the resource."""
    if not modules:
        words = f"there is no resource {quoted(uri)}{why}"
        request.finish(RpcError(INVALID_PARAMS, words, {"uri": uri}))
        return
    module, *others = modules

    def answered(outcome: Outcome, assets: Mapping[str, RegisteredAsset]) -> None:
        found = _passed_on(outcome)
        if isinstance(found, RpcError):
            _read_of(request, uri, others, f": {found.message}")
        elif not found.get("contents"):
            _read_of(request, uri, others, why)
        else:
            request.finish_with(_cacheable({**found}, request.asked), assets)

    request.invoke(module, "resources/read", {"uri": uri}, answered)


def _read_asset(request: Request, uri: str) -> None:
    def read(found: File | Failure) -> None:
        if isinstance(found, Failure):
            request.finish(own_error(found, uri))
        else:
            told = {"contents": [contents(uri, found.media_type, found.data)]}
            request.finish(_cacheable(told, request.asked))

    request.read(uri.removeprefix(ASSET_SCHEME), read)


def _complete(request: Request) -> None:
    ref = request.asked.params.get("ref")
    if not isinstance(ref, dict):
        words = f'"ref" is {described(ref)}, it must be an object'
        request.finish(RpcError(INVALID_PARAMS, words))
        return

    def found(table: Table) -> None:
        module, name = _referred(table, ref)
        if module is None:
            words = f"nothing can be completed for {described(ref.get('name', ref.get('uri')))}"
            request.finish(RpcError(INVALID_PARAMS, f"{words}: it is no prompt or template here"))
        elif module not in table.completing:
            request.finish({"completion": {"values": [], "total": 0, "hasMore": False}})
        else:
            named = {**ref, "name": name} if name is not None else ref
            args = {"ref": named, **request.given("argument", "context")}
            request.invoke(module, "completion/complete", args, partial(_pass_on, request))

    request.with_table(found)


def _referred(table: Table, ref: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the module that a reference is to, and its own name for a prompt."""
    if ref.get("type") == "ref/prompt":
        return table.prompt_names.get(str(ref.get("name")), (None, None))
    owners = {**table.owners, **dict(table.template_owners)}
    return owners.get(str(ref.get("uri"))), None


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
"""What else there is is of a connection: `faces.mcp.subscriptions`."""
