"""A hook that asks a module before it answers. Arguments: its name, the module, its op.

It lets pass what the module has an answer to, and denies with the words of its error else.
"""

import json
import os
import sys
from typing import Any

name, module, op = sys.argv[1:]


def write(request_id: str, **document: Any) -> None:
    os.write(1, json.dumps({"requestId": request_id, **document}).encode() + b"\n")


def serve(request: dict[str, Any]) -> None:
    request_id = request["requestId"]
    if request.get("type") == "host_result":
        said = request["payload"]
        denied = {"action": "deny", "reason": said.get("error", {}).get("message")}
        write(request_id, ok=True, result=denied if said["is_error"] else {})
        return
    match request["operation"]:
        case "health":
            write(request_id, status="ok")
        case "describe":
            facts = {"name": name, "version": "1", "kind": "hook", "capabilities": []}
            write(request_id, **facts, inputs={}, outputs={}, features=["host_call", "cancel"])
        case "invoke":
            call = {"call_id": "1", "capability": "module.invoke", "method": "module.invoke"}
            payload = {**call, "params": {"module": module, "op": op}}
            write(request_id, version="0", type="host_call", payload=payload)


for line in sys.stdin:
    serve(json.loads(line))
