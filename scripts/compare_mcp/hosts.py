"""The hosts, each by its own way in: stdiod by its control socket, the others by MCP over HTTP.

A client of the newer revision speaks MCP with each of them, with stdiod by `stdiod mcp`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from protocol.version import VERSION
from scripts.peers import environments

SERVER = Path(__file__).with_name("server.py")
UP_WITHIN_S = 60.0
OLDER, NEWER = "2025-06-18", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientInfo": {"name": "compared", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What each request of the newer revision says of its client."""


class CallError(Exception):
    """A call did not go well; the text is all that the client was told."""


class Host(ABC):
    """One host with the server, from `start` to `end`."""

    name: ClassVar[str]

    def __init__(self, folder: Path, *flags: str) -> None:
        """Take the folder of a turn, and what the server is told."""
        self.folder = folder
        self.births = folder / "births"
        self.births.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._births_wanted = 3 if flags else 1
        # Not this environment's, so that it costs and needs the same under each of them.
        self.command = [sys.executable, "-I", "-S", str(SERVER), str(self.births), *flags]

    @classmethod
    @abstractmethod
    def version(cls) -> str | None:
        """Return its version, or None if it is not installed."""

    @abstractmethod
    def argv(self) -> list[str]:
        """Return its command."""

    @abstractmethod
    def connect(self) -> None:
        """Be a new client; raises `OSError` or `CallError` while it is not up."""

    @abstractmethod
    def call(self, tool: str, within_s: float) -> str:
        """Call a tool as that client; returns the text, raises `CallError` or `TimeoutError`."""

    @abstractmethod
    def call_newer(self, tool: str, within_s: float) -> str:
        """Do the same as a client that speaks the newer revision and knows no handshake."""

    def start(self) -> None:
        """Start it, and connect once it is up; raises `TimeoutError`."""
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.argv(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until_s = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                self._look_whether_up()
            except (OSError, CallError) as error:
                if time.monotonic() > until_s or self.process.poll() is not None:
                    raise TimeoutError(f"{self.name} did not come up: {error}") from error
            else:
                return
            time.sleep(0.1)

    def _look_whether_up(self) -> None:
        self.connect()
        self.call("echo", UP_WITHIN_S)
        if len(list(self.births.glob("*[0-9]"))) < self._births_wanted:
            raise CallError("its server has not begun all of its processes")

    def end(self) -> None:
        """Stop it."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Stdiod(Host):
    """This checkout's."""

    name = "stdiod"

    @classmethod
    def version(cls) -> str | None:
        """Return its version."""
        return VERSION

    def argv(self) -> list[str]:
        """Return its command."""
        modules = self.folder / "modules"
        modules.mkdir()
        transport = {"type": "stdio", "protocol": "mcp", "command": self.command}
        document = {"name": "server", "kind": "tool", "transport": transport}
        (modules / "server.json").write_text(json.dumps(document), encoding="utf-8")
        places = ["--socket", str(self.folder / "socket"), "--data-dir", str(self.folder / "data")]
        return [sys.executable, "-P", "-m", "supervisor.cli", "run", str(modules), *places]

    def connect(self) -> None:
        """Be a new client."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.folder / "socket"))

    def call(self, tool: str, within_s: float) -> str:
        """Call a tool."""
        content = {"op": tool, "args": {}}
        request = {"requestId": "r", "tool": "server", "operation": "invoke", "input": content}
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(within_s)
            client.connect(str(self.folder / "socket"))
            client.sendall(json.dumps(request).encode() + b"\n")
            lines = client.makefile("rb")
            while (answer := json.loads(lines.readline()))["type"] != "done":
                pass
        if not answer["ok"]:
            raise CallError(json.dumps(answer["error"]))
        return str(answer["result"]["content"][0]["text"])

    def call_newer(self, tool: str, within_s: float) -> str:
        """Call a tool in the newer era."""
        command = [sys.executable, "-P", "-m", "supervisor.cli", "mcp"]
        entry = subprocess.Popen(
            [*command, "--socket", str(self.folder / "socket")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        bound = threading.Timer(within_s, entry.kill)
        bound.start()
        try:
            answers = _talk(entry, f"server__{tool}")
        finally:
            bound.cancel()
            entry.kill()
            entry.communicate()
        if not answers:
            raise TimeoutError
        return _text(_result(answers[-1]))


class OverHttp(Host):
    """A host that is an MCP server over HTTP itself."""

    package: ClassVar[str]

    def __init__(self, folder: Path, *flags: str) -> None:
        """Take a port too."""
        super().__init__(folder, *flags)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self._session: str | None = None
        self._number = 0

    @classmethod
    def version(cls) -> str | None:
        """Return its version."""
        return environments.version(cls.package)

    def connect(self) -> None:
        """Be a new client."""
        self._session = None
        client = {"name": "compared", "version": "1"}
        params = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": client}
        self._ask("initialize", params, 10.0, OLDER)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, 10.0, OLDER)

    def call(self, tool: str, within_s: float) -> str:
        """Call a tool."""
        return _text(self._ask("tools/call", {"name": tool, "arguments": {}}, within_s, OLDER))

    def call_newer(self, tool: str, within_s: float) -> str:
        """Call a tool in the newer era."""
        self._session = None
        self._ask("server/discover", {"_meta": META}, within_s, NEWER)
        params = {"name": tool, "arguments": {}, "_meta": META}
        return _text(self._ask("tools/call", params, within_s, NEWER))

    def _ask(self, method: str, params: dict[str, Any], within_s: float, revision: str) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        for answer in self._post(message, within_s, revision):
            if answer.get("id") == self._number:
                return _result(answer)
        raise CallError("the answer ended without a result")

    def _post(self, message: Any, within_s: float, revision: str) -> list[dict[str, Any]]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": revision,
            "Mcp-Method": message["method"],
        }
        if "name" in message.get("params", {}):
            headers["Mcp-Name"] = message["params"]["name"]
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        url = f"http://127.0.0.1:{self.port}/mcp"
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=within_s) as response:  # noqa: S310 - loopback
                self._session = response.headers.get("Mcp-Session-Id", self._session)
                said = _until_answered(response, message.get("id"), time.monotonic() + within_s)
        except urllib.error.HTTPError as error:
            raise CallError(_refusal(error.code, error.read(2000))) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TimeoutError from None
            raise CallError(str(error.reason)) from None
        return said


def _talk(entry: subprocess.Popen[bytes], tool: str) -> list[dict[str, Any]]:
    """Ask `stdiod mcp` for a call in the newer era; returns the answers."""
    assert entry.stdin is not None
    assert entry.stdout is not None
    call = {"name": tool, "arguments": {}, "_meta": META}
    answers: list[dict[str, Any]] = []
    for method, params in (("server/discover", {"_meta": META}), ("tools/call", call)):
        message = {"jsonrpc": "2.0", "id": len(answers), "method": method, "params": params}
        entry.stdin.write(json.dumps(message).encode() + b"\n")
        entry.stdin.flush()
        for line in entry.stdout:
            said = json.loads(line)
            if said.get("id") == message["id"]:
                answers.append(said)
                break
        else:
            return []
    return answers


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise CallError(json.dumps(answer["error"]))
    return answer["result"]


def _refusal(code: int, body: bytes) -> str:
    try:
        return f"HTTP {code}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {code}: {body.decode(errors='replace')}"


def _until_answered(response: Any, rpc_id: object, until_s: float) -> list[dict[str, Any]]:
    """Read an answer in either form, as far as it is needed."""
    if "event-stream" not in response.headers.get("Content-Type", ""):
        body = response.read()
        return [json.loads(body)] if body.strip() else []
    found = []
    for line in response:
        if time.monotonic() > until_s:
            raise TimeoutError
        if line.startswith(b"data:") and line[5:].strip():
            found.append(json.loads(line[5:]))
            if found[-1].get("id") == rpc_id:
                break
    return found


def _text(result: dict[str, Any]) -> str:
    text = "\n".join(str(one.get("text")) for one in result.get("content", ()))
    if result.get("isError"):
        raise CallError(text)
    return text


class McpProxy(OverHttp):
    """The package mcp-proxy of PyPI."""

    name = package = "mcp-proxy"

    def argv(self) -> list[str]:
        """Return its command."""
        program = str(environments.program(self.package, "mcp-proxy"))
        return [program, "--port", str(self.port), "--", *self.command]


class FastMcp(OverHttp):
    """The package fastmcp of PyPI, as the proxy of a server in a file of `mcpServers`."""

    name = package = "fastmcp"

    def argv(self) -> list[str]:
        """Return its command."""
        server = {"command": self.command[0], "args": self.command[1:]}
        path = self.folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"server": server}}), encoding="utf-8")
        program = str(environments.program(self.package, "fastmcp"))
        places = ["--transport", "http", "--port", str(self.port)]
        return [program, "run", str(path), *places, "--no-banner"]


HOSTS: tuple[type[Host], ...] = (Stdiod, McpProxy, FastMcp)
