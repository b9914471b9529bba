"""An agent, and an orchestrator: what it is prompted says what it does."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def write(**members: Any) -> None:
    print(json.dumps(members), flush=True)


def execute(request: dict[str, Any]) -> None:
    args = request["input"]["args"]
    prompt = args.get("prompt", "")
    mine = {"requestId": request["requestId"]}

    def event(kind: str, **members: Any) -> None:
        write(version="0", type=kind, **mine, **members)

    event("log", level="info", message="thinking about it")
    match prompt.split(" "):
        case ["fail"]:
            write(**mine, ok=False, error={"code": "no_idea", "message": "I have no idea"})
        case ["crash"]:
            os._exit(3)
        case ["wait"]:
            event("ui_event", event="message.chunk", payload={"content": "waiting"})
            probe = json.loads(sys.stdin.readline())  # it comes once this was given up
            write(requestId=probe["requestId"], status="ok")
        case ["call", module]:
            params = {"module": module, "op": "say", "args": {"a": 1}}
            payload = {"call_id": "c1", "method": "invoke", "params": params}
            event("host_call", payload=payload)
            said = json.loads(sys.stdin.readline())["payload"]["output"]
            write(**mine, ok=True, result={"response": json.dumps(said.get("result"))})
        case _:
            event("ui_event", event="message.chunk", payload={"content": f"You said: {prompt}\n"})
            write(**mine, ok=True, result={"response": prompt, "saw": sorted(args)})


while line := sys.stdin.readline():
    request = json.loads(line)
    match request.get("operation"):
        case "health":
            write(requestId=request["requestId"], status="ok")
        case "describe":
            kind = {"agent": "agent", "orch": "orchestrator"}[request["tool"]]
            described = {"name": request["tool"], "version": "1", "kind": kind, "capabilities": []}
            described |= {"inputs": {}, "outputs": {}, "features": ["host_call"]}
            write(requestId=request["requestId"], **described)
        case "invoke":
            execute(request)
