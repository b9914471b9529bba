"""A module that streams for several requests side by side, as fast as its output is read.

It reads what comes before it writes on. `stream` says `count` events of `size` bytes, without a
count for ever; `echo` answers at once, with `bytes` more bytes if it is to, or once there are
`together` of them; `size` says how long a text is, and `hold` is never answered. With the argument
`flow` it heeds `pause` and `resume`, and says in the end how often it was paused.
"""

import json
import os
import select
import sys
from typing import Any

FEATURES = [word for word in sys.argv[1:] if word in ("flow", "cancel")]
streams: dict[str, dict[str, Any]] = {}
echoes: list[dict[str, Any]] = []


def write(**line: Any) -> None:
    left = memoryview(json.dumps(line).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


def serve(frame: dict[str, Any]) -> None:
    request_id, operation = frame["requestId"], frame["operation"]
    match operation:
        case "health":
            write(requestId=request_id, status="ok")
        case "describe":
            facts = {"name": frame["tool"], "version": "1", "kind": "tool", "capabilities": []}
            write(requestId=request_id, **facts, inputs={}, outputs={}, features=FEATURES)
        case "pause" | "resume" if request_id in streams:
            streams[request_id]["paused"] = operation == "pause"
            streams[request_id]["pauses"] += operation == "pause"
        case "cancel":
            streams.pop(request_id, None)
        case "invoke" if frame["input"]["op"] == "stream":
            args = frame["input"]["args"]
            streams[request_id] = {
                "count": -1,
                "size": 20_000,
                "n": 0,
                "paused": False,
                "pauses": 0,
            }
            streams[request_id] |= args
        case "invoke" if frame["input"]["op"] == "hold":
            pass
        case "invoke" if frame["input"]["op"] == "size":
            size = len(frame["input"]["args"]["text"])
            write(requestId=request_id, ok=True, result={"size": size})
        case "invoke":
            echo(request_id, frame["input"]["args"])


def echo(request_id: str, args: dict[str, Any]) -> None:
    args |= {"padding": "x" * args["bytes"]} if "bytes" in args else {}
    echoes.append({"requestId": request_id, "ok": True, "result": args})
    if "together" not in args:
        write(**echoes.pop())
    elif len(echoes) == args["together"]:
        for one in echoes:
            write(**one)
        echoes.clear()


def say_more() -> None:
    for request_id, one in list(streams.items()):
        if one["paused"]:
            continue
        if one["n"] == one["count"]:
            del streams[request_id]
            result = {"events": one["n"], "pauses": one["pauses"]}
            write(requestId=request_id, ok=True, result=result)
            continue
        one["n"] += 1
        words = "x" * one["size"]
        named = {"requestId": request_id, "version": "0"}
        write(**named, type="log", level="info", message=f"{one['n']} {words}")


unread: list[bytes] = []
while True:
    busy = any(not one["paused"] for one in streams.values())
    readable, _, _ = select.select([0], [], [], 0 if busy else None)
    if readable:
        data = os.read(0, 1 << 20)
        if not data:
            break
        unread.append(data)
        if b"\n" in data:
            *lines, rest = b"".join(unread).split(b"\n")
            unread = [rest]
            for text in lines:
                serve(json.loads(text))
    say_more()
