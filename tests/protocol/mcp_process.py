"""The other end of a connection of the dialect `mcp`, as a script of a test wants it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from protocol.connection import Answered, HostCalled, Received, Request, Wait
from protocol.descriptor.model import EraPin, McpTransport, StdoutPolicy
from protocol.dialects.mcp.connection import McpConnection
from protocol.dialects.mcp.requests import REQUEST_ID
from protocol.dialects.mcp.vocabulary import LEGACY, META, MODERN
from protocol.errors import Failure, Outcome, Success
from protocol.replies import Operation
from tests.protocol.mcp_revisions import check
from tests.protocol.wire import connected, descriptor, line

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
ALL = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "completions": {}}


class Served:
    """A connection, and what it has written and told."""

    def __init__(
        self,
        *,
        pin: EraPin = EraPin.AUTO,
        capabilities: tuple[str, ...] = (),
        stdout: StdoutPolicy = StdoutPolicy.TOLERANT,
        line_bytes: int = 1 << 20,
        memory: dict[str, Any] | None = None,
    ) -> None:
        made = descriptor(line_bytes=line_bytes)
        transport = replace(made.transport, mcp=McpTransport(era=pin), stdout=stdout)
        made = replace(made, transport=transport, capabilities=capabilities)
        connection = connected("mcp", made, memory)
        assert isinstance(connection, McpConnection)
        self.connection = connection
        self.events: list[Received] = []
        self.written: list[dict[str, Any]] = []
        """Every line, in order."""
        self.ids: dict[str, int] = {}
        """The ids of the lines that were written last for the host's requests."""
        self._seen = 0
        self._asked: dict[str, Any] = {}
        """The methods that the server has asked, by id."""
        self._legacy = LEGACY[0]
        """The revision that the server has named, if it is of the older era."""
        self._is_modern = False

    # What happens to it.

    def start(self) -> dict[str, Any]:
        """Begin; returns what it wrote."""
        self.take(self.connection.start())
        return self.last()

    def take(self, events: Any) -> list[Received]:
        self.events += events
        while over := [one for one in self.connection.waits if not one.seconds]:
            self.events += self.connection.time_passed(over[0])
        for one in self.connection.outgoing.take().splitlines():
            written = json.loads(one)
            check(written, self._revision(written), self._asked.get(repr(written.get("id"))))
            self.written.append(written)
            meta = written.get("params", {}).get("_meta", {})
            if REQUEST_ID in meta:
                self.ids[meta[REQUEST_ID]] = written["id"]
        return list(events)

    def _revision(self, written: dict[str, Any]) -> str:
        """Return the revision that a line is to be of."""
        method, params = written.get("method"), written.get("params", {})
        if method == "initialize":
            return str(params["protocolVersion"])
        if method is None:
            return self._legacy
        if "id" in written or method == "notifications/initialized":
            self._is_modern = f"{META}protocolVersion" in params.get("_meta", {})
        return MODERN if self._is_modern else self._legacy

    def hear(self, *messages: Mapping[str, Any] | bytes) -> list[Received]:
        """Let it read lines; a mapping is a message without its `jsonrpc`.

        An answer may name the host's request where the id of its line is to stand, and progress.
        """
        for message in messages:
            if isinstance(message, Mapping) and "method" in message:
                self._asked[repr(message.get("id"))] = message["method"]
        data = b"".join(
            one if isinstance(one, bytes) else line({"jsonrpc": "2.0", **self._numbered(one)})
            for one in messages
        )
        named = re.search(rb'"protocolVersion"\s*:\s*"([^"]+)"', data)
        if named is not None and named[1].decode() in LEGACY:
            self._legacy = named[1].decode()
        return self.take(self.connection.receive_data(data))

    def _numbered(self, message: Mapping[str, Any]) -> dict[str, Any]:
        numbered, params = dict(message), message.get("params")
        if "method" not in message and message.get("id") in list(self.ids):
            numbered["id"] = self.ids[message["id"]]
        if isinstance(params, dict) and params.get("progressToken") in list(self.ids):
            numbered["params"] = {**params, "progressToken": self.ids[params["progressToken"]]}
        return numbered

    def ask(self, request_id: str = "r1", op: str = "echo", /, **args: Any) -> dict[str, Any]:
        self.take(self.connection.ask(Request(request_id, Operation.INVOKE, op, args)))
        return self.last()

    def says(self, asked: HostCalled, outcome: Outcome) -> list[Received]:
        return self.take(self.connection.answer(asked, outcome))

    def wait_over(self) -> list[Received]:
        (wait,) = self.connection.waits
        assert isinstance(wait, Wait)
        return self.take(self.connection.time_passed(wait))

    # What is known of it.

    def last(self) -> dict[str, Any]:
        return self.written[-1]

    def unread(self) -> list[dict[str, Any]]:
        """Return what it has written since this was asked last."""
        new, self._seen = self.written[self._seen :], len(self.written)
        return new

    def outcome(self, name: str = "r1") -> Outcome:
        (found,) = [
            one.outcome
            for one in self.events
            if isinstance(one, Answered) and one.request_id == name
        ]
        return found

    def result(self, name: str = "r1") -> Any:
        outcome = self.outcome(name)
        assert isinstance(outcome, Success), outcome
        return outcome.result

    def failure(self, name: str = "r1") -> Failure:
        outcome = self.outcome(name)
        assert isinstance(outcome, Failure), outcome
        return outcome

    # What a usual server says.

    def answer_lists(self, **lists: Any) -> None:
        """Answer every list that it has asked for and not got."""
        for one in self.unread():
            name = str(one.get("method"))
            if name.endswith("/list"):
                field = "resourceTemplates" if "templates" in name else name.partition("/")[0]
                self.hear({"id": one["id"], "result": {field: lists.get(field, [])}})


def discovered(capabilities: Mapping[str, Any] = ALL, *versions: str) -> dict[str, Any]:
    return {"supportedVersions": list(versions or [MODERN]), "capabilities": dict(capabilities)}


def initialized(
    capabilities: Mapping[str, Any] = ALL, version: str = "2025-11-25"
) -> dict[str, Any]:
    server = {"name": "made-up", "version": "1.2"}
    return {"protocolVersion": version, "capabilities": dict(capabilities), "serverInfo": server}


def modern(tools: Any = (TOOL,), offers: Mapping[str, Any] = ALL, **fields: Any) -> Served:
    """Return a server of the newer era that is ready."""
    served = Served(**fields)
    served.hear({"id": served.start()["id"], "result": discovered(offers)})
    served.answer_lists(tools=list(tools))
    served.unread()
    return served


def legacy(
    tools: Any = (TOOL,),
    offers: Mapping[str, Any] = ALL,
    version: str = LEGACY[0],
    **fields: Any,
) -> Served:
    """Return a server of the older era that is ready."""
    served = Served(pin=EraPin.LEGACY, **fields)
    served.hear({"id": served.start()["id"], "result": initialized(offers, version)})
    served.answer_lists(tools=list(tools))
    served.unread()
    return served
