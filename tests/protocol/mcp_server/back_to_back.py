"""An MCP server between a scripted client and a scripted daemon, without I/O."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from protocol.client import SocketClient
from protocol.mcp_server.server import ClientMessage, McpServer
from tests.faces.mcp.clients import Frames

VIEW: dict[str, Any] = {"name": "default", "modules": None, "prefix": True}
CALLER: dict[str, Any] = {"name": "ada", "face": "socket", "scopes": ["read"], "modules": ["*"]}


RUNS = itertools.count()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "description": name, **more}


def offer(module: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return what a daemon says of one module."""
    said = {"inputs": {one["name"]: {} for one in tools}, "tools": list(tools)}
    shown = {"module": module, "kind": "tool", "summary": None, "said": said, "problem": None}
    return {**shown, "is_missing": False, "serves": True, **more}


def request(rpc_id: Any, method: str, params: Any = None) -> dict[str, Any]:
    """Return a message of a client."""
    given = {} if params is None else {"params": params}
    return {"jsonrpc": "2.0", "id": rpc_id, "method": method, **given}


class ScriptedDaemon:
    """The other end of one connection: answers what it knows, and keeps the rest for the test."""

    def __init__(self, *offers: dict[str, Any], view: Mapping[str, Any] = VIEW) -> None:
        self.client = SocketClient()
        self.run = next(RUNS)
        self.offers = list(offers)
        self.version = 1
        self.view = {**view}
        self.open: dict[str, dict[str, Any]] = {}
        """The open requests that nobody has answered, by id."""
        self.asked: list[dict[str, Any]] = []
        """All lines, in order."""
        self.is_silent = False
        """Whether it answers nothing itself."""
        self._said = b""

    def read(self) -> None:
        """Take what the client has written, and answer what it knows."""
        data = b"".join(iter(self.client.data_to_send, b""))
        for line in data.splitlines():
            frame = json.loads(line)
            self.asked.append(frame)
            if frame.get("operation") == "cancel":
                self.open.pop(frame["requestId"], None)
            elif frame.get("type") != "host_result":
                self.open[frame["requestId"]] = frame
                if not self.is_silent:
                    self.serve(frame)

    def serve(self, frame: dict[str, Any]) -> None:
        given = frame["input"]
        match frame["operation"]:
            case "narrow":
                known = {"view": self.view, "pid": 1, "directories": [], "run": self.run}
                self.done(frame, {**CALLER, **known})
            case "offers" if not given.get("follow"):
                shown: dict[str, Any] = {"version": self.version}
                if given.get("known") != self.version:
                    shown["modules"] = self.offers
                self.done(frame, shown)

    def done(self, frame: Mapping[str, Any], result: Any = None, **more: Any) -> None:
        """Answer a request."""
        self.open.pop(frame["requestId"], None)
        answer = {"ok": True, "result": result} if "error" not in more else {"ok": False}
        self.tell(frame, type="done", **answer, **more)

    def tell(self, frame: Mapping[str, Any], **event: Any) -> None:
        line = {"version": "0", "requestId": frame["requestId"], **event}
        self._said += json.dumps(line).encode() + b"\n"

    @property
    def has_said(self) -> bool:
        return bool(self._said)

    def say(self) -> bytes:
        said, self._said = self._said, b""
        return said

    def call(self, operation: str = "invoke") -> dict[str, Any]:
        """Return the open request of an operation; there has to be just one."""
        (found,) = (one for one in self.open.values() if one["operation"] == operation)
        return found


class Bridge:
    """A server with both ends; `turn` lets all that was written arrive."""

    def __init__(self, daemon: ScriptedDaemon | None = None, **options: Any) -> None:
        self.server = McpServer(key=b"k" * 32, **options)
        self.now = 0.0
        self.daemon: ScriptedDaemon | None = None
        self.messages: list[ClientMessage] = []
        self.remarks: list[str] = []
        self.may_fail = False
        """Whether the test expects a fault in the server, which is a remark."""
        self.frames = Frames()
        self._number = 0
        if daemon is not None:
            self.connect(daemon)

    def connect(self, daemon: ScriptedDaemon) -> None:
        self.daemon = daemon
        self.server.connect(daemon.client)
        self.turn()

    def turn(self) -> None:
        """Let both sides read until nobody says anything more."""
        self.server.time_passed(self.now)
        while self._arrives():
            for event in self.daemon.client.receive_data(self.daemon.say()) if self.daemon else ():
                self.server.receive_event(event)
            self.server.time_passed(self.now)
        for message in self.server.messages_to_send():
            if message.data:
                self.frames.check(json.loads(message.data))
            self.messages.append(message)
        self.remarks += self.server.take_remarks()
        assert self.may_fail or " failed: " not in "".join(self.remarks), self.remarks

    def _arrives(self) -> bool:
        """Let the daemon read; returns whether something is to be done."""
        if self.daemon is not None:
            self.daemon.read()
        deadline = self.server.deadline
        is_due = deadline is not None and deadline <= self.now
        return is_due or (self.daemon is not None and self.daemon.has_said)

    def lose(self) -> None:
        """End the connection; nothing more of it arrives."""
        assert self.daemon is not None
        daemon, self.daemon = self.daemon, None
        for event in daemon.client.receive_eof():
            self.server.receive_event(event)
        self.turn()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    # The client.

    def say(self, method: str, params: Any = None, **more: Any) -> None:
        """Write a message."""
        message = {"jsonrpc": "2.0", "method": method, **more}
        if params is not None:
            message["params"] = params
        if "id" in more:
            self.frames.asked(more["id"], method, params)
        self.write(message)

    def write(self, message: Any, **more: Any) -> None:
        self.server.receive_message(json.dumps(message).encode(), **more)
        self.turn()

    def ask(self, method: str, params: Any = None) -> int:
        """Write a request; returns its id."""
        self._number += 1
        self.say(method, params, id=self._number)
        return self._number

    def heard(self) -> list[Any]:
        """Return the messages since it was asked last."""
        found = [json.loads(one.data) for one in self.messages if one.data]
        self.messages.clear()
        return found

    def answer(self, rpc_id: Any) -> Any:
        """Return the answer to a request; what came before it stays."""
        for message in self.messages:
            line = json.loads(message.data or b"{}")
            if line.get("id") == rpc_id and "method" not in line:
                self.messages.remove(message)
                return line
        raise AssertionError(f"no answer to {rpc_id}: {self.messages}")

    def result(self, method: str, params: Any = None) -> Any:
        answer = self.answer(self.ask(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None) -> Any:
        answer = self.answer(self.ask(method, params))
        assert "error" in answer, answer
        return answer["error"]

    def initialize(self, revision: str = "2025-11-25", **capabilities: Any) -> Any:
        params = {"protocolVersion": revision, "capabilities": capabilities}
        found = self.result("initialize", {**params, "clientInfo": {"name": "t", "version": "1"}})
        self.say("notifications/initialized")
        return found
