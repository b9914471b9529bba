"""A module that calls the host: what it writes and reads is what its ops say.

calls   {"calls": [payload...], "lines": [object...]}   make them all, answer with all results
relay   {"path": [module...], "stream": bool}           have the first one relay the rest
talk    {"count": n, "size": n}                         say as many events, then answer
leave   {"calls": [payload...]}                         make them, and answer without waiting
hang    {}                                              never answer
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAME, FLAGS = sys.argv[1], sys.argv[2:]
FEATURES = [] if "plain" in FLAGS else ["host_call", "cancel"]
KIND = "agent" if "agent" in FLAGS else "tool"


def write(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def answer(request: str, result: Any) -> None:
    write(requestId=request, ok=True, result=result)


class Waiting:
    """A request that waits for results of its calls."""

    def __init__(self, request: str, calls: list[dict[str, Any]]) -> None:
        self.request = request
        self.results: list[dict[str, Any]] = []
        self.left = len(calls)
        for payload in calls:
            write(version="0", type="host_call", requestId=request, payload=payload)

    def take(self, payload: dict[str, Any]) -> bool:
        """Take a result; tells whether it was the last one."""
        self.results.append(payload)
        self.left -= payload.get("chunk", {}).get("is_last", True)
        return self.left <= 0


def relayed(path: list[str], stream: bool) -> dict[str, Any]:
    params: dict[str, Any] = {"module": path[0], "op": "relay", "args": {"path": path[1:]}}
    if stream:
        params |= {"stream": True}
        params["args"]["stream"] = True
    return {"call_id": "next", "capability": "module.invoke", "method": "invoke", "params": params}


waiting: dict[str, Waiting] = {}
for line in sys.stdin:
    frame = json.loads(line)
    request, operation = frame.get("requestId"), frame.get("operation")
    if frame.get("type") == "host_result":
        one = waiting.get(request) or (next(iter(waiting.values())) if waiting else None)
        if one is not None and one.take(frame["payload"]):
            del waiting[one.request]
            answer(one.request, {"name": NAME, "results": one.results})
    elif operation == "health":
        write(requestId=request, status="ok")
    elif operation == "describe":
        write(
            requestId=request,
            name=NAME,
            version="1",
            kind=KIND,
            capabilities=[],
            inputs={},
            outputs={},
            features=FEATURES,
        )
    elif operation == "cancel":
        waiting.pop(request, None)
    else:
        op, args = frame["input"]["op"], frame["input"]["args"]
        if op == "calls":
            for extra in args.get("lines", ()):
                write(**{"version": "0", "requestId": request, **extra})
            waiting[request] = Waiting(request, args["calls"])
            waiting[request].left += len(args.get("lines", ()))
        elif op == "leave":
            Waiting(request, args["calls"])
            answer(request, {"name": NAME})
        elif op == "relay" and args["path"]:
            waiting[request] = Waiting(request, [relayed(args["path"], args.get("stream", False))])
        elif op == "relay":
            answer(request, {"name": NAME})
        elif op == "talk":
            for number in range(args["count"]):
                text = str(number) + "." * args.get("size", 0)
                write(version="0", type="log", requestId=request, level="info", message=text)
            answer(request, {"said": args["count"]})
        elif op != "hang":
            answer(request, args)
