"""The table of routes: what each asks of the daemon, and how its answer is told.

Routing (`api`) and the OpenAPI document (`openapi`) are made of it, and of the schemas that the ops
have anyway. A route names an op; its args come from the path, the query, the body and what the
route fixes. Whether they are good, and whether somebody may, is decided where the op is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from protocol.errors import Failure, Reason
from protocol.response import Response
from supervisor.faces.http.exchange import (
    Gathered,
    Tagged,
    Tell,
    Told,
    logged,
    numbered,
    tell_answer,
    tell_failure,
    tell_module_protocol,
    tell_response,
    tell_result,
)

API = "/api/v1"

ENTRIES = 1000
"""Of the journal in one body, unless somebody asks for more."""

NOTHING: Mapping[str, Any] = {}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path; `{name}` in it is a segment."""

    method: str
    path: str
    summary: str
    op: str = ""
    """Of the daemon; of a module if `of_module`; none for what is a document."""
    of_module: bool = False
    """Whether what is asked for is asked of the module that the path names."""
    query: tuple[str, ...] = ()
    """The args that may stand in the query."""
    fixed: Mapping[str, Any] = NOTHING
    """Args of what is no stream, if nothing else is said."""
    takes_body: bool = False
    """Whether the members of the body are args."""
    body_is: str | None = None
    """The arg that the whole body is, in place of that."""
    media: str = "application/json"
    """The type of the body."""
    tell: Tell = tell_result
    status: int = 200
    gather: Gathered | None = None
    streamed: Mapping[str, Any] | None = None
    """The args that make a stream of it, None if it cannot be one."""
    is_content: bool = False
    """Whether the body is the bytes of an asset."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the segments that vary."""
        return tuple(one[1:-1] for one in self.path.split("/") if one.startswith("{"))


def _modules(result: Any) -> Any:
    return {"modules": result["modules"], "quarantined": result["quarantined"]}


def _of_kind(kind: str, result: Any) -> Any:
    return {f"{kind}s": [one for one in result["modules"] if one["kind"] == kind]}


def _info(result: Any) -> Any:
    known = {name: result[name] for name in ("name", "version", "features")}
    return {**known, "api_version": "v1", "ops": list(result["inputs"])}


def _state(result: Any) -> Any:
    return Tagged(result["state"], f'"{result["revision"]}"')


def _history(result: Any) -> Any:
    return {name: result[name] for name in ("session_id", "invocations", "history")}


def _patched(result: Any) -> Any:
    return Tagged(result, f'"{result["revision"]}"')


def tell_patched(response: Response) -> Told:
    """Say what a patch led to; that another one was faster is a failed precondition."""
    outcome = response.outcome
    if isinstance(outcome, Failure) and outcome.details.get("reason") == Reason.REVISION_CONFLICT:
        return tell_failure(outcome, status=412)
    return tell_result(response, _patched)


def _own(method: str, path: str, op: str, summary: str, **more: Any) -> Route:
    return Route(method=method, path=API + path, op=op, summary=summary, **more)


def _of_module(operation: str, tell: Tell, summary: str, **more: Any) -> Route:
    path = f"/modules/{{module}}/{operation}"
    asked: dict[str, Any] = {"op": operation, "of_module": True, "tell": tell, **more}
    return Route(method="POST", path=path, summary=summary, **asked)


_CREATED = partial(tell_result, status=201)
_FOLLOW = {"follow": True}

ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=f"{API}/openapi.json",
        summary="This description",
    ),
    _own("GET", "/health", "health", "Whether the daemon is well"),
    _own(
        "GET",
        "/info",
        "describe",
        "What the daemon is, and which ops it has",
        tell=partial(tell_result, view=_info),
    ),
    _own("GET", "/status", "status", "What runs, and what does not and why", query=("histogram",)),
    _own("GET", "/modules", "status", "All modules", tell=partial(tell_result, view=_modules)),
    _own("GET", "/modules/{module}", "status", "One module", query=("histogram",)),
    Route(
        method="POST",
        path=f"{API}/modules/{{module}}/invoke",
        op="invoke",
        of_module=True,
        summary="Call an op of a module",
        takes_body=True,
        tell=tell_response,
        streamed=NOTHING,
    ),
    _own("POST", "/modules/{module}/start", "start", "Start a module; answers when it is ready"),
    _own("POST", "/modules/{module}/stop", "stop", "Stop a module; it stays down"),
    _own("POST", "/modules/{module}/restart", "restart", "Replace the process of a module"),
    _own(
        "GET",
        "/modules/{module}/logs",
        "logs",
        "The last lines of a module's log, or a stream of them and what follows",
        query=("lines",),
        gather=logged,
        streamed=_FOLLOW,
    ),
    _own(
        "GET",
        "/tools",
        "status",
        "Modules of the kind tool",
        tell=partial(tell_result, view=partial(_of_kind, "tool")),
    ),
    _own(
        "GET",
        "/agents",
        "status",
        "Modules of the kind agent",
        tell=partial(tell_result, view=partial(_of_kind, "agent")),
    ),
    _own("POST", "/reload", "reload", "Apply what changed in the descriptors", takes_body=True),
    _own(
        "GET",
        "/sessions",
        "session.list",
        "The sessions, the newest first",
        query=("limit", "after", "ended"),
    ),
    _own(
        "POST",
        "/sessions",
        "session.new",
        "Begin a session",
        takes_body=True,
        tell=_CREATED,
        status=201,
    ),
    _own("GET", "/sessions/{session_id}", "session.show", "One session, with state and history"),
    _own("DELETE", "/sessions/{session_id}", "session.end", "End a session, and what it does"),
    _own(
        "POST",
        "/sessions/{session_id}/fork",
        "session.fork",
        "Begin a session with the state of another",
        takes_body=True,
        tell=_CREATED,
        status=201,
    ),
    _own(
        "GET",
        "/sessions/{session_id}/state",
        "session.show",
        "The state of a session; its ETag is the revision",
        tell=partial(tell_result, view=_state),
    ),
    _own(
        "PATCH",
        "/sessions/{session_id}/state",
        "session.patch",
        "Change the state by a JSON Merge Patch; with If-Match only that revision of it",
        body_is="patch",
        media="application/merge-patch+json",
        tell=tell_patched,
    ),
    _own(
        "GET",
        "/sessions/{session_id}/history",
        "session.show",
        "The last invocations of a session",
        tell=partial(tell_result, view=_history),
    ),
    _own(
        "POST",
        "/sessions/{session_id}/cancel",
        "session.cancel",
        "Cancel the prompts of a session",
        takes_body=True,
    ),
    _own(
        "GET",
        "/assets",
        "asset.list",
        "The files that modules handed over",
        query=("session_id", "module", "request_id"),
    ),
    _own("GET", "/assets/{asset}", "asset.show", "All that is known of one"),
    _own(
        "GET",
        "/assets/{asset}/content",
        "asset.content",
        "Its bytes, or a range of them",
        is_content=True,
    ),
    _own(
        "GET",
        "/events",
        "events",
        "Entries of the journal, or a stream of them and what follows",
        query=("since", "last", "limit", "event", "module", "session_id", "journal"),
        gather=numbered,
        fixed={"limit": ENTRIES},
        streamed=_FOLLOW,
    ),
    _own(
        "GET",
        "/approvals",
        "approvals",
        "The questions that wait for a person, or a stream of what becomes of them",
        streamed=_FOLLOW,
    ),
    _own("POST", "/approvals/{id}", "approve", "Answer a question", takes_body=True),
    _of_module("health", tell_answer, "Module Protocol v1: whether a module is well"),
    _of_module("describe", tell_answer, "Module Protocol v1: what a module is"),
    _of_module("invoke", tell_module_protocol, "Module Protocol v1: call an op", takes_body=True),
)
