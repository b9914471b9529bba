# ruff: noqa: A002, RUF012 - as in servers.py
"""MCP servers whose ids or lines are odd: in every answer, or in what a call asks them to print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.field.servers import Server, raw, text, tool

ABSENT = object()

IDS: dict[str, Callable[[int], Any]] = {
    "zero": lambda _: 0,
    "null": lambda _: None,
    "absent": lambda _: ABSENT,
    "string": str,
    "float": float,
    "other": lambda rpc_id: rpc_id + 1000,
    "words": lambda rpc_id: f"id-{rpc_id}",
    "list": lambda rpc_id: [rpc_id],
    "first": lambda _: 1,
}


def odd(*words: str, **supervision: Any) -> dict[str, Any]:
    """Return the descriptor of one of them, which is named after its second word."""
    return {
        "name": words[1],
        "kind": "tool",
        "capabilities": [],
        "supervision": {"start": "lazy", **supervision},
        "transport": {
            "type": "stdio",
            "command": [sys.executable, "-I", "-S", __file__, *words],
            "protocol": "mcp",
        },
    }


class Ids(Server):
    """Has another id in each answer: in all of them, or in those to calls."""

    tools = [tool("echo", {"type": "object"}), tool("silent", {"type": "object"})]

    def write(self, message: Any) -> Any:
        if "calls" not in sys.argv or "content" in message.get("result", {}):
            message["id"] = IDS[sys.argv[2]](message["id"])
            if message["id"] is ABSENT:
                del message["id"]
        super().write(message)

    def call(self, params: Any, id: Any) -> Any:
        return None if params["name"] == "silent" else text("hi")


FORMS: dict[str, Callable[[str], str | bytes]] = {
    "bare": lambda line: line.replace('"jsonrpc": "2.0", ', ""),
    "number": lambda line: line.replace('"2.0"', "2.0"),
    "batch": lambda line: f"[{line}]",
    "mark": lambda line: "\ufeff" + line,
    "words": lambda line: "DEBUG " + line,
    "several": lambda line: '{"jsonrpc": "2.0", "method": "notifications/x"}' + line,
    "pretty": lambda line: json.dumps(json.loads(line), indent=2),
    "nan": lambda line: line.replace('"result": {', '"result": {"x": NaN, '),
    "half": lambda line: line.replace('"result": {', '"result": {"x": "\\ud83d", '),
    "latin": lambda line: line.replace('"result": {', '"result": {"x": "\xe9", ').encode("latin-1"),
    "tab": lambda line: line.replace('"result": {', '"result": {"x": "\t", '),
    "nulls": lambda line: line.replace('"result": {', '"error": null, "result": {'),
    "method": lambda line: line.replace('"result": {', '"method": "x/y", "result": {'),
    "framed": lambda line: f"Content-Length: {len(line)}\r\n\r\n{line}",
    "typed": lambda line: f"content-type: x/y\r\ncontent-length: {len(line)}\r\n\r\n{line}",
    "repr": lambda line: repr(json.loads(line)),
    "unquoted": lambda line: line.replace('"jsonrpc"', "jsonrpc").replace('"id"', "id"),
}


class Forms(Server):
    """Prints each message in another form."""

    def write(self, message: Any) -> Any:
        line = FORMS[sys.argv[2]](json.dumps(message))
        raw(line if isinstance(line, bytes) else line.encode())
        if sys.argv[2] not in ("framed", "typed"):
            raw("\n")


class Prints(Server):
    """Prints what `say` is called with, one byte for each character; `hold` has no answer."""

    tools = [
        tool("say", {"type": "object"}),
        tool("hold", {"type": "object"}),
        tool("echo", {"type": "object"}),
    ]

    def initialize(self, params: Any) -> Any:
        return {**super().initialize(params), "protocolVersion": sys.argv[2]}

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] == "echo":
            return text("fine")
        if params["name"] == "say":
            line = params["arguments"]["line"].replace("ID", str(id))
            raw(line.replace("TOKEN", str(params["_meta"]["progressToken"])).encode("latin-1"))
        return None


if __name__ == "__main__":
    SERVERS: dict[str, type[Server]] = {"ids": Ids, "forms": Forms, "prints": Prints}
    SERVERS[sys.argv[1]]().run()
