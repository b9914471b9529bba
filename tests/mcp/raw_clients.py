"""MCP clients that give back answers as they came, byte by byte: on lines, and over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from protocol.frames import one_line
from tests.mcp.servers import BOUND_S

META = "io.modelcontextprotocol/"
NEWER, OLDER = "2026-07-28", "2025-11-25"
INFO = {"name": "bytes", "version": "1"}
HELLO = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": INFO}
MODERN = {
    f"{META}protocolVersion": NEWER,
    f"{META}clientInfo": INFO,
    f"{META}clientCapabilities": {},
}

Members = dict[str, bytes]
"""The members of a result, without `_meta`; an error is the only one.

Each is as it was written, but that U+2028 and its like are escaped: the daemon writes them so."""


class Answer(msgspec.Struct):
    """A message, of which no more is read than whose it is."""

    id: Any = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()

    @property
    def members(self) -> Members:
        """What it says."""
        if bytes(self.error):
            return {"error": one_line(bytes(self.error))}
        found = msgspec.json.decode(self.result, type=dict[str, msgspec.Raw])
        return {
            member: one_line(bytes(said)) for member, said in found.items() if member != "_meta"
        }


_DECODE = msgspec.json.Decoder(Answer).decode


class RawClient(Protocol):
    """A client of one era."""

    def ask(self, method: str, params: Mapping[str, Any]) -> Members:
        """Return what the answer says."""


class OnLines:
    """A client of a process, which it starts and ends."""

    def __init__(self, command: list[str], env: Mapping[str, str], *, modern: bool) -> None:
        self._modern = modern
        self._number = 0
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._bound = threading.Timer(BOUND_S, self._process.kill)
        self._bound.start()
        if not modern:
            self.ask("initialize", HELLO)
            self._write({"method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bound.cancel()
        self._process.kill()
        self._process.communicate()

    def ask(self, method: str, params: Mapping[str, Any]) -> Members:
        self._number += 1
        content = {**params, "_meta": MODERN} if self._modern else params
        self._write({"id": self._number, "method": method, "params": content})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = _DECODE(line)
            if answer.id == self._number and answer.method is None:
                return answer.members
        raise AssertionError(f"{self._process.args!r} ended before it answered {method}")

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


class OverHttp:
    """A client of `/mcp` at a daemon's own HTTP socket."""

    def __init__(self, path: Path, view: str, *, modern: bool) -> None:
        self._modern = modern
        self._view = view
        self._number = 0
        self._session: dict[str, str] = {}
        self._connection = http.client.HTTPConnection("localhost", timeout=BOUND_S)
        self._connection.sock = socket.socket(socket.AF_UNIX)
        self._connection.sock.settimeout(BOUND_S)
        self._connection.sock.connect(str(path))
        if not modern:
            self.ask("initialize", HELLO)
            self._post({"method": "notifications/initialized"}, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connection.close()

    def ask(self, method: str, params: Mapping[str, Any]) -> Members:
        self._number += 1
        headers = {}
        if self._modern:
            headers = {"MCP-Protocol-Version": NEWER, "Mcp-Method": method}
            named = params.get("name", params.get("uri"))
            if named is not None:
                headers["Mcp-Name"] = named
            params = {**params, "_meta": MODERN}
        said = self._post({"id": self._number, "method": method, "params": params}, headers)
        for line in said.splitlines() if said.startswith((b"event", b"data", b":")) else [said]:
            if line.startswith((b"{", b"data: {")):
                answer = _DECODE(line.removeprefix(b"data: "))
                if answer.id == self._number and answer.method is None:
                    return answer.members
        raise AssertionError(f"{method} has no answer: {said[:1000]!r}")

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> bytes:
        fixed = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        body = json.dumps({"jsonrpc": "2.0", **message})
        all_headers = {**fixed, **self._session, **headers}
        self._connection.request("POST", f"/mcp/{self._view}", body, all_headers)
        with self._connection.getresponse() as response:
            session = response.headers.get("Mcp-Session-Id")
            if session is not None:
                self._session = {"Mcp-Session-Id": session}
            return response.read()
