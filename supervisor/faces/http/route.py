"""A route: its op, its args, and how its answer is made."""

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
    """The name of the schema of its answer (`openapi_schemas`); "" if that is no JSON of ours."""
    item: str = ""
    """The name of the schema of a stream's items."""
    op: str = ""
    """An op of the daemon; of a module if `of_module`; "" for a document."""
    of_module: bool = False
    """Whether the op is one of the module that the path names."""
    query: tuple[str, ...] = ()
    """The args that may stand in the query."""
    fixed: Mapping[str, Any] = NOTHING
    """Default args of an answer that is no stream."""
    takes_body: bool = False
    """Whether the members of the body are args."""
    body_is: str | None = None
    """The arg that the whole body is, in place of that."""
    media: str = "application/json"
    tell: Tell = tell_result
    status: int = 200
    gather: Gathered | None = None
    streamed: Mapping[str, Any] | None = None
    """The args that make a stream of it, None if it cannot be one."""
    streams_as: str | None = None
    """The default type of the stream."""
    form: FormOf = Entries
    """The form of a stream's items."""
    own: Mapping[str, Any] = NOTHING
    """Schemas of args that the face itself takes, in `query` or else in the body."""
    read: Read | None = None
    """Makes args of AMCP's names in the body."""
    renamed: Mapping[str, Any] = NOTHING
    """Schemas of AMCP's names."""
    is_mcp: bool = False
    """Whether it is MCP's (`faces.mcp.endpoint`)."""
    is_content: bool = False
    """Whether the body is the bytes of an asset."""
    is_metrics: bool = False
    """Whether the body is text, in the form that `Accept` asks for."""
    is_socket: bool = False
    """Whether it switches to WebSocket."""
    is_page: bool = False
    """Whether it is a file of the page, which needs no token (`page_files`)."""
    is_login: bool = False
    """Whether a browser logs in or out by it (`page_login`)."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's variable segments."""
        return tuple(one[1:-1] for one in self.path.split("/") if one.startswith("{"))

    def schema(self, arg: str) -> Mapping[str, Any]:
        """Return the schema of an arg; {} for anything."""
        of_op: Mapping[str, Any] = INPUTS.get(self.op, {}).get("properties", {})
        found: Mapping[str, Any] = self.own.get(arg) or self.renamed.get(arg) or of_op.get(arg, {})
        return found
