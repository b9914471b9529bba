"""The table of routes: what each asks of the daemon, and how its answer is told.

A route names an op, and its args come from the path, the query, the body and the route's fixed
ones; the op checks the args and the permission. One with an `endpoint` is served by that instead.
Routing (`app`) and the OpenAPI document (`openapi`) are made of the table, and of the schemas that
the daemon tells of its ops' args.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from protocol.amcp import Vocabulary
from protocol.frames import encode
from supervisor.edge.http import openapi, page
from supervisor.edge.http.answers import (
    Tell,
    gathered,
    history,
    info,
    metrics,
    module_answer,
    module_protocol,
    modules,
    of_kind,
    one_of,
    prompt,
    response,
    result,
    session,
    sessions,
    state,
    tagged,
)
from supervisor.edge.http.content import send_content
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.mcp import serve_mcp
from supervisor.edge.http.messages import (
    JSON,
    NDJSON,
    OPENMETRICS,
    SSE,
)
from supervisor.edge.http.sse import EVENT_TYPES, LogForm, PromptForm, SessionForm, StreamForm
from supervisor.edge.http.tools import ARGS, execute_tool
from supervisor.edge.http.websocket import serve_websocket

API = "/api/v1"

ENTRIES = 1000
"""The default number of journal entries in one body."""

NOTHING: Mapping[str, Any] = {}

Endpoint = Callable[[Exchange, dict[str, Any]], Awaitable[None]]
"""Serves a request whose head was checked, with its args."""


class Route(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path; `{name}` in it is a segment."""

    method: str
    path: str
    summary: str
    op: str = ""
    """An op of the daemon; of a module if `of_module`."""
    of_module: bool = False
    """Whether the op is one of the module that the path names."""
    endpoint: Endpoint | None = None
    is_open: bool = False
    """Whether no token is needed: the page's files are no secret, a code is one."""

    # Args.
    query: tuple[str, ...] = ()
    """The args that may stand in the query."""
    takes_body: bool = False
    """Whether the members of the body are args."""
    body_is: str | None = None
    """The arg that the whole body is, in place of that."""
    is_raw: bool = False
    """Whether the endpoint reads the body itself."""
    media: str = "application/json"
    fixed: Mapping[str, Any] = NOTHING
    """Default args of an answer that is no stream."""
    own: Mapping[str, Any] = NOTHING
    """Schemas of args that the gateway itself takes, in `query` or else in the body."""
    renamed: Mapping[str, Any] = NOTHING
    """Schemas of AMCP's names in the body."""
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Makes args of AMCP's names."""

    # Its answer.
    tell: Tell = result()
    gathers: bool = False
    """Whether the events are a part of the answer."""
    answer: str = ""
    """The name of the schema of its answer (`openapi`); "" if that is no JSON of ours."""
    status: int = 200
    is_partial: bool = False
    """Whether it may be a part of the whole (206)."""
    content: tuple[str, ...] = ()
    """The types of an answer that is not JSON."""

    # Its stream.
    streamed: Mapping[str, Any] | None = None
    """The args that make a stream of it, None if it cannot be one."""
    streams_as: str | None = None
    """The default type of the stream."""
    form: type[StreamForm] = LogForm
    """The form of its items, and the name of their schema."""
    item: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's variable segments."""
        return tuple(one[1:-1] for one in self.path.split("/") if one.startswith("{"))

    def schema(self, arg: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema of an arg, {} for anything; `inputs` are those of the ops."""
        of_op = inputs.get(self.op, NOTHING).get("properties", NOTHING)
        found: Mapping[str, Any] = self.own.get(arg) or self.renamed.get(arg) or of_op.get(arg, {})
        return found

    def body(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema of the body."""
        if self.body_is is not None:
            return self.schema(self.body_is, inputs)
        if self.is_raw:
            return {"type": "object"}
        if not self.takes_body:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        schema = inputs.get(self.op, NOTHING)
        apart = {*self.parameters, *self.fixed, *self.query}
        properties = {**schema.get("properties", NOTHING), **self.renamed, **self.own}
        return {
            "type": "object",
            "properties": {name: one for name, one in properties.items() if name not in apart},
            "required": [name for name in schema.get("required", ()) if name not in apart],
            "additionalProperties": False,
        }


# Rows.


def _route(line: str, summary: str, **more: Any) -> Route:
    """`line` has the method, and the path with the args that may stand in the query."""
    method, target = line.split()
    path, _, query = target.partition("?")
    known = tuple(query.split("&")) if query else ()
    return Route(method=method, path=path, query=known, summary=summary, **more)


def _own(line: str, summary: str, **more: Any) -> Route:
    """`line` has the same with the path below `API`, the op, and the schema of its answer."""
    method, path, op, answer = line.split()
    return _route(f"{method} {API}{path}", summary, op=op, answer=answer, **more)


def _page(path: str, summary: str) -> Route:
    return _route(f"GET {path}", summary, endpoint=page.send_file, is_open=True, content=_ANY)


def _module_protocol(op: str, answer: str, summary: str, **more: Any) -> Route:
    asked: dict[str, Any] = {"op": op, "of_module": True, "tell": module_answer, **more}
    line = f"POST /modules/{{module}}/{op}"
    return _route(line, f"Module Protocol v1: {summary}", answer=answer, **asked)


def _mcp(path: str) -> Iterable[Route]:
    for method, summary in (
        ("POST", "A message of an MCP client"),
        ("GET", "Notifications of an MCP session of the older era, as a stream"),
        ("DELETE", "End an MCP session of the older era"),
    ):
        yield _route(f"{method} {path}", summary, endpoint=serve_mcp, is_raw=True, answer="Rpc")


async def _send_document(exchange: Exchange, args: dict[str, Any]) -> None:
    del args
    document = openapi.document(ROUTES, exchange.daemon.inputs)
    await exchange.respond(200, [JSON], encode(document))


def _agent_role(args: dict[str, Any]) -> dict[str, Any]:
    """Take `agent_name` for the session's agent."""
    name, roles = args.pop("agent_name", None), args.get("roles", {})
    if name is not None and isinstance(roles, dict):
        args["roles"] = {"agent": name, **roles}
    return args


_ANY = ("*/*",)
_FOLLOW = {"follow": True}
_VOCABULARY = {
    "vocabulary": {
        "enum": [str(one) for one in Vocabulary],
        "default": str(Vocabulary.DEPLOYED),
        "description": "the words of NDJSON; SSE has the documented ones",
    }
}
_STREAM = {"stream": {"type": "boolean", "description": "whether the answer is to be a stream"}}

_LOGIN: dict[str, Any] = {"is_open": True, "content": _ANY}
_INVOCATION: dict[str, Any] = {
    "takes_body": True,
    "streamed": NOTHING,
    "form": StreamForm,
    "item": "WireEvent",
}
_PROMPT: dict[str, Any] = {
    "takes_body": True,
    "own": {**_VOCABULARY, **_STREAM},
    "tell": prompt,
    "streamed": NOTHING,
    "form": PromptForm,
    "item": "SessionEvent",
}
_CREATED: dict[str, Any] = {"takes_body": True, "tell": result(session, 201), "status": 201}
_INPUTS = {"inputs": True}

_SESSION = "/sessions/{session_id}"

ROUTES: tuple[Route, ...] = (
    _page("/", "The page to look at in a browser"),
    _page("/page/{file}", "A file of the page"),
    _page("/page/views/{file}", "A script of one of its views"),
    _route(
        "GET /login?code",
        "Log a browser in, with a code of `stdiod page`",
        endpoint=page.log_in_by_code,
        own={"code": {"type": "string", "description": "it works once"}},
        status=303,
        **_LOGIN,
    ),
    _route(
        "POST /login",
        "Log a browser in, with a token, over TLS or at loopback",
        endpoint=page.log_in_by_token,
        takes_body=True,
        own={"token": {"type": "string"}},
        **_LOGIN,
    ),
    _route("POST /logout", "Log a browser out", endpoint=page.log_out, content=_ANY),
    _route(f"GET {API}/openapi.json", "This description", endpoint=_send_document),
    _route(
        "GET /metrics",
        "What runs in figures, for Prometheus or as OpenMetrics",
        op="metrics",
        tell=metrics,
        content=("text/plain", OPENMETRICS),
    ),
    *_mcp("/mcp"),
    *_mcp("/mcp/{view}"),
    _own("GET /health health Health", "Whether the daemon is well"),
    _own("GET /info describe Info", "What the daemon is, and which ops it has", tell=result(info)),
    _own("GET /status?histogram status Status", "What runs, and what does not and why"),
    _own("GET /modules status Modules", "All modules", tell=result(modules)),
    _own("GET /modules/{module}?histogram status ModuleStatus", "One module"),
    _own(
        "POST /modules/{module}/invoke invoke InvokeResponse",
        "Call an op of a module",
        of_module=True,
        tell=response,
        **_INVOCATION,
    ),
    _own(
        "POST /modules/{module}/start start ModuleStatus",
        "Start a module; answers when it is ready",
    ),
    _own("POST /modules/{module}/stop stop ModuleStatus", "Stop a module; it stays down"),
    _own("POST /modules/{module}/restart restart ModuleStatus", "Replace the process of a module"),
    _own(
        "GET /modules/{module}/logs?lines logs LogLines",
        "The last lines of a module's log, or a stream of them and what follows",
        gathers=True,
        tell=gathered("lines"),
        streamed=_FOLLOW,
        item="LogItem",
    ),
    _own("GET /tools status Tools", "Modules of the kind tool", tell=result(of_kind("tool"))),
    _own(
        "GET /tools/{module} status ModuleStatus",
        "One module of the kind tool, with the schemas of its ops",
        tell=one_of("tool"),
        fixed=_INPUTS,
    ),
    _route(
        f"POST {API}/tools/{{module}}/execute",
        "Call a tool as AMCP has it",
        answer="ExecutedTool",
        endpoint=execute_tool,
        takes_body=True,
        own=ARGS,
    ),
    _own("GET /agents status Agents", "Modules of the kind agent", tell=result(of_kind("agent"))),
    _own(
        "GET /agents/{module} status ModuleStatus",
        "One module of the kind agent, with the schemas of its ops",
        tell=one_of("agent"),
        fixed=_INPUTS,
    ),
    _own("POST /reload reload Reload", "Apply what changed in the descriptors", takes_body=True),
    _own(
        "GET /sessions?limit&after&ended session.list Sessions",
        "The sessions, the newest first",
        tell=result(sessions),
    ),
    _own(
        "POST /sessions session.new Session",
        "Begin a session",
        read=_agent_role,
        renamed={"agent_name": {"type": "string", "description": "as `agent` of the roles"}},
        **_CREATED,
    ),
    _own(
        f"GET {_SESSION} session.show WholeSession",
        "One session, with state and history",
        tell=result(session),
    ),
    _own(
        f"DELETE {_SESSION} session.end EndedSession",
        "End a session, and what it does",
        tell=result(session),
    ),
    _own(
        f"POST {_SESSION}/fork session.fork Session",
        "Begin a session with the state of another",
        **_CREATED,
    ),
    _own(
        f"GET {_SESSION}/state session.show SessionState",
        "The state of a session; its ETag is the revision",
        tell=tagged(state),
    ),
    _own(
        f"PATCH {_SESSION}/state session.patch PatchedState",
        "Change the state by a JSON Merge Patch; with If-Match only that revision of it",
        tell=tagged(),
        body_is="patch",
        media="application/merge-patch+json",
    ),
    _own(
        f"GET {_SESSION}/history session.show SessionHistory",
        "The last invocations of a session",
        tell=result(history),
    ),
    _own(
        f"POST {_SESSION}/prompt?vocabulary session.prompt PromptAnswer",
        "Ask a session something, and wait for the answer",
        **_PROMPT,
    ),
    _own(
        f"POST {_SESSION}/prompt/stream?vocabulary session.prompt PromptAnswer",
        "Ask a session something, and get the answer as it comes",
        streams_as=NDJSON,
        **_PROMPT,
    ),
    _route(
        f"GET {API}{_SESSION}/events?vocabulary",
        "What happens to a session, as it happens",
        op="ui.subscribe",
        own=_VOCABULARY,
        streamed={"events": EVENT_TYPES},
        streams_as=SSE,
        form=SessionForm,
        item="SessionEvent",
    ),
    _own(
        f"POST {_SESSION}/cancel session.cancel Cancelled",
        "Cancel the prompts of a session",
        takes_body=True,
    ),
    _own(
        "GET /assets?session_id&module&request_id asset.list Assets",
        "The files that modules handed over",
    ),
    _own("GET /assets/{asset} asset.show WholeAsset", "All that is known of one"),
    _route(
        f"GET {API}/assets/{{asset}}/content",
        "Its bytes, or a range of them",
        op="asset.content",
        endpoint=send_content,
        is_partial=True,
        content=_ANY,
    ),
    _own(
        "GET /events?since&last&limit&event&module&session_id&journal events Journal",
        "Entries of the journal, or a stream of them and what follows",
        fixed={"limit": ENTRIES},
        gathers=True,
        tell=gathered("events", first=1),  # the one before describes them
        streamed=_FOLLOW,
        item="JournalItem",
    ),
    _own(
        "GET /approvals approvals Questions",
        "The questions that wait for a person, or a stream of how they are answered",
        streamed=_FOLLOW,
        item="QuestionItem",
    ),
    _own("POST /approvals/{id} approve Answered", "Answer a question", takes_body=True),
    _route(
        "GET /ws?session_id&vocabulary",
        "Go on with WebSocket, perhaps bound to a session",
        op="ui.subscribe",
        endpoint=serve_websocket,
        own=_VOCABULARY,
        status=101,
    ),
    _module_protocol("health", "HealthReply", "whether a module is well"),
    _module_protocol("describe", "DescribeReply", "what a module is"),
    _module_protocol("invoke", "ModuleReply", "call an op", tell=module_protocol, **_INVOCATION),
)
