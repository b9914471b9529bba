"""The MCP server that every host runs: `server.py FOLDER [children]`. Older era, no dependencies.

Each of its processes is a file in FOLDER, named by its pid: itself, and with `children` two that
ignore SIGTERM, hold on to its stdout, and do not end with it, one of them in its own session.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

BIG = 5_000_000
TOOLS = [{"name": one, "inputSchema": {"type": "object"}} for one in ("echo", "big", "die")]


def known(role: str) -> None:
    """Be known by pid, from one moment to the next."""
    path = Path(sys.argv[1]) / str(os.getpid())
    path.with_suffix(".new").write_text(role, encoding="utf-8")
    path.with_suffix(".new").rename(path)


def child(*, own_session: bool) -> None:
    """Leave a stubborn child."""
    if os.fork() == 0:
        if own_session:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        known("escapee" if own_session else "child")
        while True:
            signal.pause()


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None if there is no such method."""
    if method == "initialize":
        offers: dict[str, Any] = {"tools": {}}
        info = {"name": "compared", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        return None
    if params["name"] == "die":
        sys.stderr.write("the reason stands here\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    text = "x" * BIG if params["name"] == "big" else f"echo from {os.getpid()}"
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    """Serve until the input ends."""
    known("server")
    if "children" in sys.argv[2:]:
        child(own_session=False)
        child(own_session=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            said: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            if result is None:
                said["error"] = {"code": -32601, "message": "there is no such method"}
            else:
                said["result"] = result
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
