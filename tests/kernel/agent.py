"""An agent: `python agent.py NAME KIND`. Its prompt is what it does, word by word.

say X    a chunk          log X   a line of its log      hang    until it is cancelled
call M   have the host invoke M.echo                      fail    end with an error
roots    ask the host for its folders
text     answer with a text of its own                    else    answer with the args
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAME, KIND = sys.argv[1:]


def write(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def event(request: str, kind: str, **fields: Any) -> None:
    write(requestId=request, version="0", type=kind, **fields)


def serve(request: str, args: dict[str, Any]) -> None:
    word, _, rest = args["prompt"].partition(" ")
    if word == "hang":
        event(request, "log", level="info", message="hanging")
        return
    if word == "say":
        for one in rest.split():
            event(request, "ui_event", event="message.chunk", payload={"content": one})
        event(request, "done", ok=True, result={"words": len(rest.split())})
    elif word == "log":
        event(request, "log", level="info", message=rest)
        event(request, "done", ok=True, result=None)
    elif word == "call":
        params = {"module": rest, "op": "echo", "args": {"n": 1}}
        payload = {"call_id": "c1", "method": "module.invoke", "params": params}
        event(request, "host_call", payload=payload)
    elif word == "roots":
        payload = {"call_id": "c1", "method": "roots.list", "params": {}}
        event(request, "host_call", payload=payload)
    elif word == "fail":
        error = {"code": "wet", "message": "too wet"}
        event(request, "done", ok=False, error=error)
    else:
        result: Any = {"content": "mine"} if word == "text" else args
        event(request, "done", ok=True, result=result)


for line in sys.stdin:
    frame = json.loads(line)
    found, operation = frame.get("requestId"), frame.get("operation")
    if frame.get("type") == "host_result":
        event(found, "done", ok=True, result=str(frame["payload"]["is_error"]))
    elif operation == "health":
        write(requestId=found, status="ok")
    elif operation == "describe":
        write(requestId=found, name=NAME, kind=KIND, features=["host_call", "cancel"])
    elif operation == "cancel":
        event(found, "done", ok=False, error={"code": "cancelled", "message": "stopped"})
    else:
        serve(found, frame["input"]["args"])
