"""A server that does one thing at a time, or many: `python serial_server.py FOLDER [parallel]`.

`hold` tells of progress once, and ends when FOLDER/release is there; `meet` ends when two are
served at the same time; `fast` ends at once. It writes the name of each call that it begins to
FOLDER/begun.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
PARALLEL = "parallel" in sys.argv
MET = threading.Barrier(2)
LOCK = threading.Lock()


def say(**message: Any) -> None:
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(named: Any, params: dict[str, Any]) -> None:
    name = params["name"]
    with (FOLDER / "begun").open("a") as file:
        file.write(f"{name}\n")
    if name == "hold":
        token = params["_meta"]["progressToken"]
        say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        while not (FOLDER / "release").exists():
            time.sleep(0.01)
    elif name == "meet":
        MET.wait()
    say(id=named, result={"content": [{"type": "text", "text": name}]})


RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "serial", "version": "1"},
    },
    "tools/list": {
        "tools": [
            {"name": one, "inputSchema": {"type": "object"}} for one in ("hold", "meet", "fast")
        ]
    },
    "ping": {},
}

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    if method == "tools/call" and PARALLEL:
        threading.Thread(target=call, args=(message["id"], message["params"]), daemon=True).start()
    elif method == "tools/call":
        call(message["id"], message["params"])
    elif method in RESULTS:
        say(id=message["id"], result=RESULTS[method])
    else:
        say(id=message["id"], error={"code": -32601, "message": f"no {method}"})
