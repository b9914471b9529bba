"""An MCP server with capabilities and notifications that MCP does not define.

Its arguments: the revision, its capabilities as JSON, and a notification that it sends as it starts
to serve, if it is to send one. The tool `tell` sends what it is given, `times` times.
"""

from __future__ import annotations

import json
import sys
from typing import Any

NEWER = "2026-07-28"
META = "io.modelcontextprotocol/"


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(method: str, params: dict[str, Any], times: int) -> None:
    for number in range(times):
        say(method=method, params={**params, "number": number})


def answer(revision: str, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, or None if it is refused."""
    capabilities = {"tools": {}, **json.loads(sys.argv[2])}
    about = {"capabilities": capabilities, "serverInfo": {"name": "extended", "version": "1"}}
    match message["method"]:
        case "server/discover" if revision == NEWER:
            return {**about, "supportedVersions": [NEWER]}
        case "initialize" if revision != NEWER:
            return {**about, "protocolVersion": revision}
        case "tools/list":
            return {"tools": [{"name": "tell", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            given = message["params"]["arguments"]
            tell(given["method"], given.get("params", {}), given.get("times", 1))
            return {"content": [{"type": "text", "text": "told"}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    revision = sys.argv[1]
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "subscriptions/listen" and revision == NEWER:
            meta = {f"{META}subscriptionId": message["id"]}
            told = {"notifications": message["params"]["notifications"], "_meta": meta}
            say(method="notifications/subscriptions/acknowledged", params=told)
        elif "id" in message and "method" in message:
            found = answer(revision, message)
            refused = {"error": {"code": -32601, "message": "unknown method"}}
            say(id=message["id"], **(refused if found is None else {"result": found}))


if __name__ == "__main__":
    main()
