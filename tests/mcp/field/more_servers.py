"""Servers beside those of tests/field/servers.py, for what only a client with a connection sees."""

# ruff: noqa: A002, RUF012 - as in the file whose classes these derive from

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.field.servers import Server, changing, send, text, tool

PAUSE_S = 0.25
"""After each sign of progress, and before a list that has changed."""

ANY = {"type": "object"}


class Parallel(Server):
    """Answers once it has been asked for both, so a host of one call at a time waits in vain."""

    tools = [tool("held", ANY), tool("release", ANY)]
    asked: dict[str, Any] = {}

    def call(self, params: Any, id: Any) -> Any:
        self.asked[params["name"]] = id
        if len(self.asked) == len(self.tools):
            for name in ("release", "held"):
                send({"jsonrpc": "2.0", "id": self.asked.pop(name), "result": text(name)})


class Working(Server):
    """Says every moment how far it is."""

    tools = [tool("work", ANY)]

    def call(self, params: Any, id: Any) -> Any:
        token = params["_meta"]["progressToken"]
        for done in range(1, params["arguments"]["steps"] + 1):
            told = {"progressToken": token, "progress": done}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
            threading.Event().wait(PAUSE_S)
        return text("worked")


class Many(Server):
    """Has more tools than a page had, in less than 1 MiB."""

    tools = [tool(f"t{number}", ANY, title="x" * 500) for number in range(1500)]


class Announcing(changing):
    """Takes a moment for a list that has changed, so the next call comes before it."""

    def list(self, params: Any) -> Any:
        threading.Event().wait(PAUSE_S if len(self.tools) > 1 else 0)
        return super().list(params)


class Silent(Server):
    """Has tools, and says so nowhere."""

    capabilities: dict[str, Any] = {}


class Extended(Server):
    """Has what a host can't know."""

    capabilities = {
        "tools": {},
        "experimental": {"org.example/x": {"on": True}},
        "extensions": {"org.example/y": {"version": 2}},
    }


class Dying(Server):
    """Ends with a reason before it says anything."""

    REASON = "the key of the example is missing"

    def run(self) -> Any:
        sys.exit(self.REASON)


class Crashing(Server):
    """Crashes when it is told to."""

    tools = [tool("echo", ANY), tool("crash", ANY)]

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] == "crash":
            os._exit(1)
        return text("echo")


if __name__ == "__main__":
    globals()[sys.argv[1].capitalize()]().run()
