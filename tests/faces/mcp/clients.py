"""An MCP client of a daemon: on lines, in either era."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from protocol.descriptor.model import Descriptor
from supervisor.kernel.daemon import Daemon
from supervisor.policy.principals import Principal
from tests.faces.conftest import Client, connected, request
from tests.factories import PYTHON, descriptor
from tests.principals import ADA

META = "io.modelcontextprotocol/"
VERSION, CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"

FIXTURES = Path(__file__).parents[2] / "conformance" / "mcp" / "fixtures.py"


def fixtures(folder: Path) -> Descriptor:
    """Make the descriptor of the module that has all that MCP has."""
    capabilities = ["user.ask", "model.sample", "roots.list"]
    made = descriptor(
        folder,
        [*PYTHON, str(FIXTURES)],
        name="fixtures",
        capabilities=capabilities,
        supervision={"concurrency": 16},
    )
    return replace(made, description="what a client is shown")


def modern(**capabilities: Any) -> dict[str, Any]:
    return {VERSION: "2026-07-28", CAPABILITIES: capabilities}


class McpClient:
    """Asks, and keeps what comes before the answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    async def say(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        content = {} if params is None else {"params": params}
        await self.client.send({"jsonrpc": "2.0", "method": method, **content, **more})

    async def next(self) -> dict[str, Any]:
        line = await self.client.line()
        assert line is not None
        assert line["jsonrpc"] == "2.0"
        return line

    async def answer(self, named: Any) -> dict[str, Any]:
        while (line := await self.next()).get("id") != named or "method" in line:
            self.told.append(line)
        return line

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask in the older era."""
        named = next(self._numbers)
        await self.say(method, params, id=named)
        return await self.answer(named)

    async def result(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.result("tools/call", {"name": name, "arguments": arguments})

    async def initialize(self, revision: str = "2025-11-25", **capabilities: Any) -> Any:
        info = {"name": "test", "version": "1"}
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": info,
        }
        found = await self.result("initialize", params)
        await self.say("notifications/initialized")
        return found


@asynccontextmanager
async def mcp_client(
    daemon: Daemon, view: str | None = None, principal: Principal = ADA
) -> AsyncIterator[McpClient]:
    """Serve one client on lines."""
    async with connected(daemon, principal=principal) as client:
        args = {} if view is None else {"view": view}
        await client.send(request("mcp", "supervisor", op="mcp", args=args))
        assert (await client.done())["ok"]
        yield McpClient(client)
