"""An MCP client of a daemon: on lines, in either era."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from protocol.dialects.mcp.vocabulary import LEGACY, MODERN
from protocol.mcp_server.client import says_modern
from tests.faces.lines import Client
from tests.protocol.mcp_revisions import check_of_server
from tests.system import descriptors

META = "io.modelcontextprotocol/"
VERSION, CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"

PYTHON = [sys.executable, "-I", "-S"]
FIXTURES = Path(__file__).parents[2] / "conformance" / "mcp" / "fixtures.py"


def fixtures_document() -> dict[str, Any]:
    """Return the descriptor of the module that has all that MCP has."""
    made = descriptors.descriptor("fixtures", [*PYTHON, str(FIXTURES)])
    made["capabilities"] = ["user.ask", "model.sample", "roots.list"]
    made["supervision"] = {"concurrency": 16}
    return {**made, "description": "what a client is shown"}


def hosted(kind: str, *flags: str) -> dict[str, Any]:
    """Return the server of one era with all that there is (hosted_server.py)."""
    command = [*PYTHON, str(Path(__file__).with_name("hosted_server.py")), kind, *flags]
    made = descriptors.descriptor("hosted", command, protocol="mcp", mcp={"era": kind})
    made["capabilities"] = ["roots.list", "user.ask", "model.sample"]
    made["supervision"] = {"concurrency": 4}
    return made


def scripted(*flags: str) -> dict[str, Any]:
    """Return a server whose tools do as they are told (kernel/mcp_server.py)."""
    command = [*PYTHON, str(descriptors.KERNEL / "mcp_server.py"), *flags]
    made = descriptors.descriptor("server", command, protocol="mcp", mcp={"roots": ["."]})
    return {**made, "capabilities": ["roots.list", "user.ask", "model.sample:p"]}


def modern(**capabilities: Any) -> dict[str, Any]:
    return {VERSION: "2026-07-28", CAPABILITIES: capabilities}


class Frames:
    """Holds all that one client is told to the schema of the revision that it is of."""

    def __init__(self) -> None:
        self.agreed = LEGACY[0]
        """Of the session, once there is one."""
        self._asked: dict[str, tuple[str, str]] = {}
        """The methods of requests, and their revisions, by id."""

    def asked(self, rpc_id: Any, method: str, params: Any) -> None:
        """Take note of a request; what comes next with its id is the answer."""
        is_modern = says_modern(method, params if isinstance(params, dict) else {})
        self._asked[json.dumps(rpc_id)] = (method, MODERN if is_modern else self.agreed)

    def check(self, line: dict[str, Any]) -> None:
        """Hold a message to its schema."""
        method, revision = self._asked.get(json.dumps(line.get("id")), (None, self.agreed))
        if "method" in line and _is_of_newer_era(line):
            revision = MODERN
        elif "method" in line:
            revision = self.agreed
        elif method == "initialize" and "result" in line:
            revision = self.agreed = line["result"]["protocolVersion"]
        check_of_server(line, revision, method)


def _is_of_newer_era(line: dict[str, Any]) -> bool:
    return f"{META}subscriptionId" in line.get("params", {}).get("_meta", {})


class McpClient:
    """Asks, and keeps what comes before the answer; each line has to be a valid one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._frames = Frames()

    async def say(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        content = {} if params is None else {"params": params}
        if "id" in more:
            self._frames.asked(more["id"], method, params)
        await self.client.send({"jsonrpc": "2.0", "method": method, **content, **more})

    async def next(self) -> dict[str, Any]:
        line = await self.client.line()
        assert line is not None
        self._frames.check(line)
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
