"""A server of MCP that does to each call what its op says: `mcp_attacker.py ERA`.

Of the era `flood` it answers no greeting, and prints without end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ERA = sys.argv[1]
OPS = ["well", "batch", "own_id", "close", "long", "flood", "twice", "noise", "late"]
OFFERS: dict[str, Any] = {"tools": {}}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


def answer(named: Any) -> bytes:
    return line(id=named, result={"content": [{"type": "text", "text": "well"}]})


LATE: list[bytes] = []


def call(named: Any, op: str, asked: str) -> None:
    if op == "late":
        # It answers with the next one, or after it.
        write(line(method="notifications/progress", params={"progressToken": named, "progress": 1}))
        LATE.append(line(id=named, result={"structuredContent": {"id": asked}}))
        return
    if op == "close":
        os.close(1)
        return
    good = answer(named)
    match op:
        case "batch":
            write(b"[" + good.strip() + b"]\n")
        case "own_id":
            write(line(id=named, method="ping"))
        case "flood":
            write(line(method="notifications/progress", params={"progressToken": "x"}) * 50_000)
        case "noise":
            write(b"Welcome!\n\xff\xfe\n{\n\n" + line(id=None, result={}))
        case "long":
            write(b'{"x":"' + b"x" * (64 << 20) + b'"}\n')
            return
    write(good * (2 if op == "twice" else 1))


for text in sys.stdin:
    message = json.loads(text)
    named, method = message.get("id"), message.get("method")
    while ERA == "flood":
        write(b"Welcome to this server, which has much to say!\n" * 100)
    if named is None or method is None:
        continue
    if method != "tools/call" or message["params"]["name"] != "late":
        write(b"".join(LATE))
        LATE.clear()
    if method == "server/discover" and ERA == "modern":
        write(line(id=named, result={"supportedVersions": ["2026-07-28"], "capabilities": OFFERS}))
    elif method == "initialize" and ERA == "legacy":
        result = {"protocolVersion": "2025-11-25", "capabilities": OFFERS}
        write(line(id=named, result={**result, "serverInfo": {"name": "a", "version": "1"}}))
    elif method == "tools/list":
        tools = [{"name": one, "inputSchema": {"type": "object"}} for one in OPS]
        write(line(id=named, result={"tools": tools}))
    elif method == "tools/call":
        meta = message["params"]["_meta"]
        call(named, message["params"]["name"], meta["stdiod/requestId"])
    else:
        write(line(id=named, error={"code": -32601, "message": "no such method"}))
