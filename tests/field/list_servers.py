"""MCP servers whose lists are odd, one a word, beside those of `servers.py`."""

# ruff: noqa: A001, A002, N801, RUF012, T201 - the words are names, the lines are what is printed

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.field.servers import Server, send, text, tool

META = "io.modelcontextprotocol/"
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
OBJECT = {"type": "object"}


def error(id: Any, code: int, message: str) -> None:
    send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def notify(method: str, params: dict[str, Any] | None = None) -> None:
    send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})


class library(Server):
    """`NAME URIS TEMPLATES`: has these, and says of each request who was asked for what."""

    capabilities: dict[str, Any] = {
        "tools": {},
        "resources": {"subscribe": True},
        "completions": {},
    }
    tools: list[dict[str, Any]] = [tool("touch", OBJECT), tool("link", OBJECT)]

    def other(self, message: Any) -> Any:
        who, uris, templates = sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
        method, params = message.get("method"), message.get("params") or {}
        match method:
            case "resources/list":
                return {"resources": [{"uri": one, "name": f"of {who}"} for one in uris]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": t, "name": who} for t in templates]}
            case "resources/read":
                if "gone" in params["uri"]:
                    error(message["id"], -32002, f"{who} has no {params['uri']}")
                    return False
                below = {"uri": f"{params['uri']}/below", "text": "below"}
                return {
                    "contents": [{"uri": params["uri"], "text": f"{who}: {params['uri']}"}, below]
                }
            case "resources/subscribe" | "resources/unsubscribe":
                return {}
            case "completion/complete":
                return {"completion": {"values": [f"{who}: {params['ref']['uri']}"]}}
        return None

    def take(self, message: Any) -> Any:
        if message.get("method", "").startswith(("resources/", "completion/")):
            result = self.other(message)
            if result is not False:
                send({"jsonrpc": "2.0", "id": message["id"], "result": result})
            return
        super().take(message)

    def call(self, params: Any, id: Any) -> Any:
        uri = params["arguments"]["uri"]
        if params["name"] == "link":
            return {"content": [{"type": "resource_link", "uri": uri, "name": "it"}]}
        notify(UPDATED, {"uri": uri})
        return text("told")


class growing(Server):
    """`WORDS`: each call of `add` gives it one tool more, which it tells, or lists, as they say."""

    tools: list[dict[str, Any]] = [tool("add", OBJECT)]
    lists = 0
    calls = 0

    def list(self, params: Any) -> Any:
        self.lists += 1
        if self.lists > 1 and "slowly" in sys.argv:
            time.sleep(0.5)
        return {"tools": self.tools, **({"ttlMs": 3_600_000} if "lasting" in sys.argv else {})}

    def take(self, message: Any) -> Any:
        if message.get("method") == "tools/list" and "mute" in sys.argv and self.lists == 1:
            return
        if message.get("method") == "tools/list" and "failing" in sys.argv and self.lists == 1:
            self.lists += 1
            time.sleep(0.2)
            error(message["id"], -32603, "not now")
            return
        super().take(message)

    def initialized(self) -> Any:
        if "early" in sys.argv:
            notify(CHANGED)

    def initialize(self, params: Any) -> Any:
        if "early" in sys.argv:
            notify(CHANGED)
        return super().initialize(params)

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] != "add":
            return text(f"{params['name']} after {self.lists} lists")
        self.tools = [*self.tools, tool(f"t{len(self.tools)}", OBJECT)]
        if "quiet" not in sys.argv:
            for _ in range(50):
                notify(CHANGED)
        return text("added")


class newer(growing):
    """`WORDS`: of the newer era; refuses to be listened to, and tells all the same."""

    listening: Any = None

    def take(self, message: Any) -> Any:
        method, id = message.get("method"), message.get("id")
        if method == "server/discover":
            capabilities = {"tools": {} if "deaf" in sys.argv else {"listChanged": True}}
            result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            send({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", **result}})
        elif method == "subscriptions/listen":
            self.listening = id
            error(id, -32601, "no such method")
        else:
            super().take(message)

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] != "add":
            return text(params["name"])
        self.tools = [*self.tools, tool(f"t{len(self.tools)}", OBJECT)]
        named = (
            {"_meta": {f"{META}subscriptionId": self.listening}} if "named" in sys.argv else None
        )
        notify(CHANGED, named)
        return text("added")


class unannounced(Server):
    """`CAPABILITIES`: says that of itself, as JSON, and has a tool all the same."""

    def initialize(self, params: Any) -> Any:
        result = super().initialize(params)
        del result["capabilities"]
        return {**result, **json.loads(sys.argv[2])}


class nothing(unannounced):
    """`CAPABILITIES`: the same, and has no tools either."""

    def take(self, message: Any) -> Any:
        if message.get("method") == "tools/list":
            error(message["id"], -32601, "no tools/list")
            return
        super().take(message)


class dying(Server):
    """Ends before it says anything, with a word on stderr."""

    def run(self) -> Any:
        print("Error: no API key", file=sys.stderr)
        sys.exit(3)


class mortal(Server):
    """`FILE`: ends when `die` is called; with the file there, as soon as it starts, too."""

    tools: list[dict[str, Any]] = [tool("echo", OBJECT), tool("die", OBJECT)]

    def run(self) -> Any:
        if Path(sys.argv[2]).exists():
            print("Error: the file is there", file=sys.stderr)
            sys.exit(4)
        super().run()

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] == "die":
            os._exit(1)
        return super().call(params, id)


if __name__ == "__main__":
    globals()[sys.argv[1]]().run()
