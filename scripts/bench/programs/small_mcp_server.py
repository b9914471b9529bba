"""small_mcp_server.py: an MCP server as small as a Python program gets. Older era, three tools."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "add", "list")]
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "small", "version": "1"},
    },
    "ping": {},
    "tools/list": {"tools": TOOLS},
}
NO_METHOD = {"code": -32601, "message": "there is no such method"}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = RESULTS.get(message["method"])
        outcome = {"error": NO_METHOD} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
