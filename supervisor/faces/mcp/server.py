"""The state that the MCP clients of one daemon share: the lists made for them, parked requests."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import structlog

from protocol.dialects.mcp.rpc import (
    METHOD_NOT_FOUND,
    RpcError,
)
from protocol.mcp_server.names import Names, Op, op_of
from protocol.problem import quoted
from supervisor.faces.mcp.call import Channel
from supervisor.faces.mcp.methods import METHODS
from supervisor.faces.mcp.questions import (
    ParkingPlace,
)
from supervisor.faces.mcp.request import ClientRequest, McpRequest
from supervisor.faces.mcp.set_aside import SetAside
from supervisor.faces.mcp.table import TOOL, Table
from supervisor.kernel.kernel import Kernel
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal

TABLES = 256
"""The number of kept tables, for as many views and principals."""

log = structlog.get_logger()

_SERVERS: WeakKeyDictionary[Kernel, McpServer] = WeakKeyDictionary()


class McpServer:
    @classmethod
    def of(cls, daemon: Kernel) -> McpServer:
        found = _SERVERS.get(daemon)
        if found is None:
            found = _SERVERS[daemon] = cls(daemon)
        return found

    def __init__(self, daemon: Kernel) -> None:
        self.begin = daemon.requests.begin
        self._catalogue = daemon.catalogue
        self.deadlines = daemon.requests.deadlines
        self.parked = ParkingPlace(self.deadlines)
        self.set_aside = SetAside(self.deadlines, daemon.facts.ledger)
        self._tables: dict[tuple[View, Principal], Table] = {}
        self._names: dict[tuple[View, Principal], Names] = {}
        self._had: dict[tuple[View, Principal], Table] = {}
        """The last tables that waited for starting modules."""

    def serve(self, asked: ClientRequest, told: Channel) -> McpRequest:
        """Begin a request, or continue a parked one; `told` gets the answer."""
        request = McpRequest(self, asked, told)
        if asked.client.is_modern and request.comes_back:
            return request.resumed()
        self.start(request)
        return request

    def start(self, request: McpRequest) -> None:
        """Serve a request by its method, if the client's era has that."""
        asked = request.asked
        method = METHODS.get(asked.method)
        if method is None or asked.client.era not in method.eras:
            words = f"there is no method {quoted(asked.method)}"
            if method is not None:
                words += f" in the revision {asked.client.revision}"
            request.finish(RpcError(METHOD_NOT_FOUND, words))
        else:
            method.serve(request)

    def kept(self, view: View, principal: Principal, *, wait: bool) -> Table | None:
        """Return a table that is up to date; with `wait`, one that waited for starting modules."""
        table = self._tables.get((view, principal))
        if table is None or table.version != self._catalogue.version:
            return None
        return table if table.has_waited or not wait else None

    def keep(self, view: View, principal: Principal, table: Table) -> None:
        key = (view, principal)
        former = self._tables.pop(key, None)
        while len(self._tables) >= TABLES:
            oldest = next(iter(self._tables))
            del self._tables[oldest], self._names[oldest]
            self._had.pop(oldest, None)
        self._tables[key] = table
        if table.has_waited:
            self._had[key] = table
        for module, uris in table.renamed.items():
            if former is None or former.renamed.get(module) != uris:
                words = "resources are listed under the name of their module: another has them"
                log.warning(words, module=module, uris=uris[:8], count=len(uris))
        self._names.setdefault(key, Names()).replace(table.names)

    def had(self, view: View, principal: Principal) -> Mapping[str, str]:
        """Return the module of each URI so far."""
        table = self._had.get((view, principal))
        return {} if table is None else table.owners

    def meaning(self, view: View, principal: Principal, name: str) -> tuple[str, str] | None:
        """Return the op of a tool's present or former name."""
        names = self._names.get((view, principal))
        return None if names is None else names.find(name)

    def unlisted(self, view: View, principal: Principal, name: str) -> Op | None:
        """Return module and op of a name that no list has, if a module of the view is called so."""
        if not view.prefix:
            return None
        found = [
            (one.name, op)
            for one in self._catalogue.shown(principal)
            if (view.modules is not None or one.kind == TOOL) and (op := op_of(name, one.name))
        ]
        return max(found, key=lambda each: len(each[0]), default=None)

    def serves(self, module: str) -> bool:
        return self._catalogue.serves(module)
