"""The table of routes: what each asks of the daemon, and how its answer is told.

Routing (`api`) and the OpenAPI document (`openapi`) are made of it, and of the schemas that the ops
have anyway. A route names an op; its args come from the path, the query, the body and the route's
fixed ones. The op checks the args and the permission.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from protocol.amcp import Vocabulary
from supervisor.faces.http import results
from supervisor.faces.http.event_stream import EVENT_TYPES, Lines, Unified, Watched
from supervisor.faces.http.exchange import (
    Tell,
    logged,
    numbered,
    tell_answer,
    tell_metrics,
    tell_module_protocol,
    tell_prompt,
    tell_response,
    tell_result,
)
from supervisor.faces.http.head import NDJSON, SSE
from supervisor.faces.http.route import NOTHING, Route

API = "/api/v1"
LOGIN = "/login"

ENTRIES = 1000
"""The default number of journal entries in one body."""


def _own(method: str, path: str, op: str, answer: str, summary: str, **more: Any) -> Route:
    return Route(method=method, path=API + path, op=op, answer=answer, summary=summary, **more)


def _of_module(operation: str, answer: str, tell: Tell, summary: str, **more: Any) -> Route:
    path = f"/modules/{{module}}/{operation}"
    asked: dict[str, Any] = {"op": operation, "of_module": True, "tell": tell, **more}
    return Route(method="POST", path=path, answer=answer, summary=summary, **asked)


def _mcp(path: str) -> Iterable[Route]:
    summaries = {
        "POST": "A message of an MCP client",
        "GET": "Notifications of an MCP session of the older era, as a stream",
        "DELETE": "End an MCP session of the older era",
    }
    for method, summary in summaries.items():
        yield Route(method=method, path=path, summary=summary, is_mcp=True)


_CREATED = partial(tell_result, view=results.session, status=201)
_SESSION = partial(tell_result, view=results.session)
_FOLLOW = {"follow": True}
_VOCABULARY = {
    "enum": [str(one) for one in Vocabulary],
    "default": str(Vocabulary.DEPLOYED),
    "description": "the words of NDJSON; SSE has the documented ones",
}
_PROMPT: dict[str, Any] = {
    "takes_body": True,
    "query": ("vocabulary",),
    "own": {
        "vocabulary": _VOCABULARY,
        "stream": {"type": "boolean", "description": "whether the answer is to be a stream"},
    },
    "tell": tell_prompt,
    "streamed": NOTHING,
    "form": Unified,
    "item": "SessionEvent",
}

_PAGE = {
    "/": "The page to look at in a browser",
    "/page/{file}": "A file of the page",
    "/page/views/{file}": "A script of one of its views",
}

ROUTES: tuple[Route, ...] = (
    *(Route(method="GET", path=path, summary=_PAGE[path], is_page=True) for path in _PAGE),
    Route(
        method="GET",
        path=LOGIN,
        summary="Log a browser in, with a code of `stdiod page`",
        query=("code",),
        own={"code": {"type": "string", "description": "it works once"}},
        status=303,
        is_login=True,
    ),
    Route(
        method="POST",
        path=LOGIN,
        summary="Log a browser in, with a token, over TLS or at loopback",
        own={"token": {"type": "string"}},
        takes_body=True,
        is_login=True,
    ),
    Route(method="POST", path="/logout", summary="Log a browser out", is_login=True),
    Route(
        method="GET",
        path=f"{API}/openapi.json",
        summary="This description",
    ),
    Route(
        method="GET",
        path="/metrics",
        op="metrics",
        summary="What runs in figures, for Prometheus or as OpenMetrics",
        tell=tell_metrics,
        is_metrics=True,
    ),
    *_mcp("/mcp"),
    *_mcp("/mcp/{view}"),
    _own("GET", "/health", "health", "Health", "Whether the daemon is well"),
    _own(
        "GET",
        "/info",
        "describe",
        "Info",
        "What the daemon is, and which ops it has",
        tell=partial(tell_result, view=results.info),
    ),
    _own(
        "GET",
        "/status",
        "status",
        "Status",
        "What runs, and what does not and why",
        query=("histogram",),
    ),
    _own(
        "GET",
        "/modules",
        "status",
        "Modules",
        "All modules",
        tell=partial(tell_result, view=results.modules),
    ),
    _own("GET", "/modules/{module}", "status", "ModuleStatus", "One module", query=("histogram",)),
    Route(
        method="POST",
        path=f"{API}/modules/{{module}}/invoke",
        op="invoke",
        answer="InvokeResponse",
        of_module=True,
        summary="Call an op of a module",
        takes_body=True,
        tell=tell_response,
        streamed=NOTHING,
        form=Lines,
        item="WireEvent",
    ),
    _own(
        "POST",
        "/modules/{module}/start",
        "start",
        "ModuleStatus",
        "Start a module; answers when it is ready",
    ),
    _own("POST", "/modules/{module}/stop", "stop", "ModuleStatus", "Stop a module; it stays down"),
    _own(
        "POST",
        "/modules/{module}/restart",
        "restart",
        "ModuleStatus",
        "Replace the process of a module",
    ),
    _own(
        "GET",
        "/modules/{module}/logs",
        "logs",
        "LogLines",
        "The last lines of a module's log, or a stream of them and what follows",
        query=("lines",),
        gather=logged,
        streamed=_FOLLOW,
        item="LogItem",
    ),
    _own(
        "GET",
        "/tools",
        "status",
        "Tools",
        "Modules of the kind tool",
        tell=partial(tell_result, view=partial(results.of_kind, "tool")),
    ),
    _own(
        "GET",
        "/agents",
        "status",
        "Agents",
        "Modules of the kind agent",
        tell=partial(tell_result, view=partial(results.of_kind, "agent")),
    ),
    _own(
        "POST",
        "/reload",
        "reload",
        "Reload",
        "Apply what changed in the descriptors",
        takes_body=True,
    ),
    _own(
        "GET",
        "/sessions",
        "session.list",
        "Sessions",
        "The sessions, the newest first",
        query=("limit", "after", "ended"),
        tell=partial(tell_result, view=results.sessions),
    ),
    _own(
        "POST",
        "/sessions",
        "session.new",
        "Session",
        "Begin a session",
        takes_body=True,
        read=results.agent_role,
        renamed={"agent_name": {"type": "string", "description": "as `agent` of the roles"}},
        tell=_CREATED,
        status=201,
    ),
    _own(
        "GET",
        "/sessions/{session_id}",
        "session.show",
        "WholeSession",
        "One session, with state and history",
        tell=_SESSION,
    ),
    _own(
        "DELETE",
        "/sessions/{session_id}",
        "session.end",
        "EndedSession",
        "End a session, and what it does",
        tell=_SESSION,
    ),
    _own(
        "POST",
        "/sessions/{session_id}/fork",
        "session.fork",
        "Session",
        "Begin a session with the state of another",
        takes_body=True,
        tell=_CREATED,
        status=201,
    ),
    _own(
        "GET",
        "/sessions/{session_id}/state",
        "session.show",
        "SessionState",
        "The state of a session; its ETag is the revision",
        tell=partial(tell_result, view=results.state),
    ),
    _own(
        "PATCH",
        "/sessions/{session_id}/state",
        "session.patch",
        "PatchedState",
        "Change the state by a JSON Merge Patch; with If-Match only that revision of it",
        body_is="patch",
        media="application/merge-patch+json",
        tell=results.tell_patched,
    ),
    _own(
        "GET",
        "/sessions/{session_id}/history",
        "session.show",
        "SessionHistory",
        "The last invocations of a session",
        tell=partial(tell_result, view=results.history),
    ),
    _own(
        "POST",
        "/sessions/{session_id}/prompt",
        "session.prompt",
        "PromptAnswer",
        "Ask a session something, and wait for the answer",
        **_PROMPT,
    ),
    _own(
        "POST",
        "/sessions/{session_id}/prompt/stream",
        "session.prompt",
        "PromptAnswer",
        "Ask a session something, and get the answer as it comes",
        streams_as=NDJSON,
        **_PROMPT,
    ),
    _own(
        "GET",
        "/sessions/{session_id}/events",
        "ui.subscribe",
        "",
        "What happens to a session, as it happens",
        query=("vocabulary",),
        own={"vocabulary": _VOCABULARY},
        streamed={"events": EVENT_TYPES},
        streams_as=SSE,
        form=Watched,
        item="SessionEvent",
    ),
    _own(
        "POST",
        "/sessions/{session_id}/cancel",
        "session.cancel",
        "Cancelled",
        "Cancel the prompts of a session",
        takes_body=True,
    ),
    _own(
        "GET",
        "/assets",
        "asset.list",
        "Assets",
        "The files that modules handed over",
        query=("session_id", "module", "request_id"),
    ),
    _own("GET", "/assets/{asset}", "asset.show", "WholeAsset", "All that is known of one"),
    _own(
        "GET",
        "/assets/{asset}/content",
        "asset.content",
        "",
        "Its bytes, or a range of them",
        is_content=True,
    ),
    _own(
        "GET",
        "/events",
        "events",
        "Journal",
        "Entries of the journal, or a stream of them and what follows",
        query=("since", "last", "limit", "event", "module", "session_id", "journal"),
        gather=numbered,
        fixed={"limit": ENTRIES},
        streamed=_FOLLOW,
        item="JournalItem",
    ),
    _own(
        "GET",
        "/approvals",
        "approvals",
        "Questions",
        "The questions that wait for a person, or a stream of how they are answered",
        streamed=_FOLLOW,
        item="QuestionItem",
    ),
    _own("POST", "/approvals/{id}", "approve", "Answered", "Answer a question", takes_body=True),
    Route(
        method="GET",
        path="/ws",
        op="ui.subscribe",
        summary="Go on with WebSocket, perhaps bound to a session",
        query=("session_id", "vocabulary"),
        own={"vocabulary": _VOCABULARY},
        is_socket=True,
    ),
    _of_module(
        "health", "HealthReply", tell_answer, "Module Protocol v1: whether a module is well"
    ),
    _of_module("describe", "DescribeReply", tell_answer, "Module Protocol v1: what a module is"),
    _of_module(
        "invoke",
        "ModuleReply",
        tell_module_protocol,
        "Module Protocol v1: call an op",
        takes_body=True,
        streamed=NOTHING,
        form=Lines,
        item="WireEvent",
    ),
)
