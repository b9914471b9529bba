"""MCP clients of a daemon within the test's own process, for tests that need its inside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel
from supervisor.policy.principals import Principal
from tests.faces.in_process import connected
from tests.faces.lines import request
from tests.faces.mcp.clients import McpClient, fixtures_document
from tests.principals import ADA


def fixtures(folder: Path) -> Descriptor:
    """Return the descriptor of the module that has all that MCP has."""
    return parse_descriptor(json.dumps(fixtures_document()).encode(), str(folder / "fixtures.json"))


def in_flight(daemon: Kernel, module: str) -> int:
    """Return how many calls the only worker of a module serves."""
    life = daemon.fleet.modules[module].workers[0].life
    return 0 if life is None else life.load


@asynccontextmanager
async def mcp_client(
    daemon: Kernel, view: str | None = None, principal: Principal = ADA
) -> AsyncIterator[McpClient]:
    """Serve one client on lines."""
    async with connected(daemon, principal=principal) as client:
        args = {} if view is None else {"view": view}
        await client.send(request("mcp", "supervisor", op="mcp", args=args))
        assert (await client.done())["ok"]
        yield McpClient(client)
