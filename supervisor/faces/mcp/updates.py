"""A resource that a client follows: from finding its module to each of its updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocol.dialects.mcp.rpc import INVALID_PARAMS, RpcError
from protocol.errors import Failure
from protocol.events import Log, Progress
from protocol.mcp_server.results import own_uri
from protocol.problem import quoted
from protocol.response import Response
from supervisor.faces.mcp.request import Absent, ClientRequest, McpRequest
from supervisor.faces.mcp.server import McpServer
from supervisor.faces.mcp.table import Table
from supervisor.kernel.parties import DAEMON, Client, Handle
from supervisor.policy.verdict import Stopped

RESOURCE_UPDATED = "notifications/resources/updated"

Settled = Callable[["RpcError | None"], None]
"""Takes why a resource is not followed; None if it is from now on."""


class FollowedResource(Client):
    """One resource that a client follows (kernel.parties.Client)."""

    def __init__(
        self, server: McpServer, asked: ClientRequest, uri: str, updated: Callable[[str], None]
    ) -> None:
        """Call `updated` for each update; `asked` carries the client."""
        self.uri = uri
        self._server = server
        self._asked = asked
        self._updated = updated
        self._is_followed = self._is_over = False
        self._settled: list[Settled] = []
        self._modules: list[str] = []
        self._why = ""
        self._handle: Handle | None = None

    def begin(self) -> None:
        """Find the resource's module, and follow it there."""
        McpRequest(self._server, self._asked, _Refused(self._settle)).with_table(self._found)

    def when_settled(self, settled: Settled) -> None:
        """Call this once it is followed, or cannot be; perhaps at once."""
        if self._is_followed:
            settled(None)
        else:
            self._settled.append(settled)

    def cancel(self, stopped: Stopped) -> None:
        """Idempotent."""
        self._is_over = True
        if self._handle is not None:
            self._handle.cancel(stopped)

    def event(self, event: Progress, line: bytes | None) -> None:
        """The first event says that it is followed, the others are updates."""
        del line
        if not self._is_followed:
            self._is_followed = True
            self._settle(None)
        elif isinstance(event, Log) and isinstance(event.fields, dict):
            prefix = self.uri.removesuffix(own_uri(self.uri))
            self._updated(prefix + event.fields["uri"])

    def finished(self, response: Response) -> None:
        """Try another module that may have it."""
        self._handle = None
        if not self._is_followed:
            if isinstance(response.outcome, Failure):
                self._why = f": {response.outcome.message}"
            self._try_next()

    def _found(self, table: Table) -> None:
        self._modules = table.readers_of(self.uri)
        self._try_next()

    def _try_next(self) -> None:
        if self._is_over or not self._modules:
            words = f"the resource {quoted(self.uri)} cannot be followed"
            absent = self._why or ": no module here has it"
            why = ": its client has unsubscribed meanwhile" if self._is_over else absent
            self._settle(RpcError(INVALID_PARAMS, words + why, {"uri": self.uri}))
            return
        args = {"module": self._modules.pop(0), "uri": own_uri(self.uri)}
        content = {"op": "resource.follow", "args": args}
        handle = self._server.begin(self._asked.party, DAEMON, "invoke", content, self)
        self._handle = self._handle or handle

    def _settle(self, problem: RpcError | None) -> None:
        settled, self._settled = self._settled, []
        for one in settled:
            one(problem)


class _Refused(Absent):
    """A null client that takes the reason why there is no table."""

    def __init__(self, settle: Settled) -> None:
        super().__init__()
        self._settle = settle

    def finish(self, outcome: Mapping[str, Any] | RpcError) -> None:
        if isinstance(outcome, RpcError):
            self._settle(outcome)
