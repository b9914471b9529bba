"""What a route is: what it asks of the daemon, and how its answer is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from supervisor.faces.http.event_stream import Entries, FormOf
from supervisor.faces.http.exchange import Gathered, Tell, tell_result
from supervisor.kernel.operations import INPUTS

NOTHING: Mapping[str, Any] = {}

Read = Callable[[dict[str, Any]], dict[str, Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path; `{name}` in it is a segment."""

    method: str
    path: str
    summary: str
    answer: str = ""
    """The name of the schema of its answer (`openapi_schemas`); none if that is no JSON of ours."""
    item: str = ""
    """The same of what a stream of it is made of."""
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
    streams_as: str | None = None
    """The type of the stream that it is unless something else is said."""
    form: FormOf = Entries
    """What a stream of it is made of."""
    own: Mapping[str, Any] = NOTHING
    """Schemas of what the face itself takes, in `query` or else in the body."""
    read: Read | None = None
    """Makes args of what AMCP calls otherwise, and the body has under those names."""
    renamed: Mapping[str, Any] = NOTHING
    """Schemas of these."""
    is_mcp: bool = False
    """Whether it is MCP's, which has its own way with all of it (`faces.mcp.endpoint`)."""
    is_content: bool = False
    """Whether the body is the bytes of an asset."""
    is_metrics: bool = False
    """Whether the body is text, in the form that `Accept` asks for."""
    is_socket: bool = False
    """Whether it goes on with WebSocket."""
    is_page: bool = False
    """Whether it is a file of the page, for which nobody needs a token (`page_files`)."""
    is_login: bool = False
    """Whether a browser logs in or out by it (`page_login`)."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the segments that vary."""
        return tuple(one[1:-1] for one in self.path.split("/") if one.startswith("{"))

    def schema(self, arg: str) -> Mapping[str, Any]:
        """Return the schema of something that it takes; {} for anything."""
        of_op: Mapping[str, Any] = INPUTS.get(self.op, {}).get("properties", {})
        found: Mapping[str, Any] = self.own.get(arg) or self.renamed.get(arg) or of_op.get(arg, {})
        return found
