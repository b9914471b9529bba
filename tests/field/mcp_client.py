"""An MCP client of `stdiod mcp`: a process, one line a message, and what it said unasked."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bounds import WAIT_S

META = "io.modelcontextprotocol/"
NEWER = "2026-07-28"
OLDER = "2025-11-25"


class McpClient:
    """A client of one revision; with the newer era each request says what it can do."""

    def __init__(
        self,
        socket: Path,
        *options: str,
        revision: str = OLDER,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.notifications: list[dict[str, Any]] = []
        """What came unasked, in its order."""
        self.answers: dict[int | str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self.meta: dict[str, Any] = {}
        command = [sys.executable, "-P", "-m", "supervisor.cli", "mcp", "--socket", str(socket)]
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [*command, *options],
            env={**os.environ, "PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._bound = threading.Timer(WAIT_S, self.process.kill)
        self._bound.start()
        info = {"name": "field", "version": "1"}
        capabilities = capabilities or {}
        if revision == NEWER:
            self.meta = {
                f"{META}protocolVersion": NEWER,
                f"{META}clientInfo": info,
                f"{META}clientCapabilities": capabilities,
            }
        else:
            hello = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info}
            self.hello: dict[str, Any] = self.ask("initialize", hello)
            self.notify("notifications/initialized")
            self.ask("ping")  # from now on it is told of what changes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bound.cancel()
        self.process.kill()
        self.process.communicate()

    def send(
        self, method: str, params: dict[str, Any] | None = None, token: int | str | None = None
    ) -> int:
        """Write a request and return its id; `token` is what its progress is told with."""
        number = next(self._numbers)
        content = dict(params or {})
        meta = self.meta if token is None else {**self.meta, "progressToken": token}
        if meta:
            content["_meta"] = {**meta, **content.get("_meta", {})}
        self.write({"id": number, "method": method, "params": content})
        return number

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Write a notification."""
        self.write({"method": method, "params": params or {}})

    def answer(self, number: int | str) -> dict[str, Any]:
        """Wait for the answer to a request: the message, with `result` or `error`."""
        return self._read(lambda: self.answers.pop(number, None), f"an answer to {number}")

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Make a request, and return the result; an error fails the test."""
        answer = self.answer(self.send(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return the message that answers."""
        return self.answer(self.send("tools/call", {"name": tool, "arguments": arguments}))

    def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and return the text of its first block."""
        return str(self.call(tool, **arguments)["result"]["content"][0]["text"])

    def tools(self) -> dict[str, dict[str, Any]]:
        """Return the tools of the first page, by name."""
        return {one["name"]: one for one in self.ask("tools/list")["tools"]}

    def told(self, method: str) -> dict[str, Any]:
        """Wait for a notification, take it out, and return its params."""

        def found() -> dict[str, Any] | None:
            for one in self.notifications:
                if one["method"] == method:
                    self.notifications.remove(one)
                    return dict(one.get("params", {}))
            return None

        return self._read(found, method)

    def write(self, message: dict[str, Any]) -> None:
        """Write a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self, found: Callable[[], dict[str, Any] | None], awaited: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        while (one := found()) is None:
            line = self.process.stdout.readline()
            assert line, f"`stdiod mcp` ended before {awaited} came, or it took over {WAIT_S:g} s"
            message = json.loads(line)
            if "method" in message:
                self.notifications.append(message)
            else:
                self.answers[message["id"]] = message
        return one
