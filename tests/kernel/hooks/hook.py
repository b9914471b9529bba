"""A hook that answers what it was told to. Arguments: its name, then JSON.

The JSON maps events to what is to be done: an object is the result, and a string one of `hang`,
`exit`, `refuse`, `nonsense`, `flood` and `call`, which has the host invoke m.echo before the event
is answered; `*` stands for all others. The op `seen` returns the
events that were given so far; the op `then` changes what is done, and answers those who hang.
"""

import json
import os
import sys
from typing import Any

name, given = sys.argv[1:]
answers: dict[str, Any] = json.loads(given)
seen: list[dict[str, Any]] = []
held: list[str] = []


def write(document: dict[str, Any]) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


def on_event(request_id: str, args: dict[str, Any]) -> None:
    seen.append(args)
    answer = answers.get(args["event"], answers.get("*", {}))
    match answer:
        case "hang":
            held.append(request_id)
        case "exit":
            os._exit(3)
        case "refuse":
            error = {"code": "broken", "message": "it does not feel like it"}
            write({"requestId": request_id, "ok": False, "error": error})
        case "nonsense":
            os.write(1, b"what?\n")
            write({"requestId": request_id, "ok": True, "result": ["what?"]})
        case "call":
            params = {"module": "m", "op": "echo"}
            payload = {"call_id": request_id, "method": "module.invoke", "params": params}
            event = {"version": "0", "type": "host_call", "payload": payload}
            write({"requestId": request_id, **event})
        case "flood":
            log = {"version": "0", "type": "log", "level": "info", "message": "x" * 100}
            for _ in range(1000):
                write({"requestId": request_id, **log})
            write({"requestId": request_id, "ok": True, "result": None})
        case _:
            write({"requestId": request_id, "ok": True, "result": answer})


def serve(request: dict[str, Any]) -> None:
    request_id = request["requestId"]
    match request["operation"]:
        case "health":
            write({"requestId": request_id, "status": "ok"})
        case "describe":
            facts: dict[str, Any] = {
                "name": name,
                "version": "1",
                "kind": "hook",
                "capabilities": [],
            }
            features = ["host_call"] if "call" in answers.values() else []
            facts |= {"inputs": {}, "outputs": {}, "features": features}
            write({"requestId": request_id, **facts})
        case "cancel":
            return
        case _ if request["input"]["op"] == "seen":
            write({"requestId": request_id, "ok": True, "result": seen})
        case _ if request["input"]["op"] == "then":
            answers.clear()
            answers.update(request["input"]["args"])
            while held:
                write({"requestId": held.pop(0), "ok": True, "result": answers.get("held", {})})
            write({"requestId": request_id, "ok": True, "result": None})
        case _:
            on_event(request_id, request["input"]["args"])


for line in sys.stdin:
    frame = json.loads(line)
    if frame.get("type") == "host_result":
        write({"requestId": frame["requestId"], "ok": True, "result": None})
    else:
        serve(frame)
