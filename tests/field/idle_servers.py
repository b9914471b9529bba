"""One MCP server a word: each ends by itself, at a time that the test chooses (SIGUSR1) or not."""

# ruff: noqa: N801 - the words are names

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from typing import Any


class plain:
    """Ends with 0, or with the code that is given, when it is told to."""

    code = 0

    def end(self) -> None:
        os._exit(self.code)

    def call(self, params: dict[str, Any]) -> str:
        return str(os.getpid())

    def ping(self) -> None:
        pass

    def initialized(self) -> None:
        pass

    def answered(self) -> None:
        pass

    def run(self) -> None:
        # A handler could come between two looks, and then wait for the next line.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        threading.Thread(target=self.wait, daemon=True).start()
        for line in sys.stdin:
            self.take(json.loads(line))

    def wait(self) -> None:
        signal.sigwait({signal.SIGUSR1})
        self.end()

    def take(self, message: dict[str, Any]) -> None:
        result: dict[str, Any] | None = None
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "idle", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                text = self.call(message["params"])
                result = {"content": [{"type": "text", "text": text}]}
            case "ping":
                self.ping()
                result = {}
            case "notifications/initialized":
                self.initialized()
        if "id" in message:
            said: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            said |= {"result": result} if result is not None else {"error": REFUSED}
            with contextlib.suppress(OSError):  # two of them close their stdout
                os.write(1, json.dumps(said).encode() + b"\n")
        if message.get("method") == "tools/call":
            self.answered()


REFUSED = {"code": -32601, "message": "unknown method"}


class three(plain):
    """Ends with 3."""

    code = 3


class closes(plain):
    """Closes its stdout, and ends only a while later, as who cleans up does."""

    def end(self) -> None:
        os.close(1)
        threading.Timer(0.6, super().end).start()


class stays(plain):
    """Closes its stdout, and goes on for good."""

    def end(self) -> None:
        os.close(1)


class served(plain):
    """Ends once it has answered a call."""

    def answered(self) -> None:
        self.end()


class midway(plain):
    """Ends with 0 in the middle of a call."""

    def call(self, params: dict[str, Any]) -> str:
        os._exit(0)


class probed(plain):
    """Ends when it is asked whether it is there."""

    def ping(self) -> None:
        self.end()


class at_once(plain):
    """Ends as soon as its lists are known."""

    def take(self, message: dict[str, Any]) -> None:
        super().take(message)
        if message.get("method") == "tools/list":
            self.end()


class never(plain):
    """Ends before it is ready."""

    def initialized(self) -> None:
        self.end()


if __name__ == "__main__":
    globals()[sys.argv[1]]().run()
