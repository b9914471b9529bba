"""A module with resources: `python resources.py [asked] [mcp]`; its log says what it is asked.

resources/subscribe, resources/unsubscribe   {"uri"}; one that ends in `mute` has no answer
change   {"uris": [...]}   say that these have changed
exit     {}                end
"""

from __future__ import annotations

import json
import sys
from typing import Any

FLAGS = sys.argv[1:]
OPS = ["resources/subscribe", "resources/unsubscribe"] if "asked" in FLAGS else []


def write(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


for text in sys.stdin:
    frame = json.loads(text)
    request, operation = frame.get("requestId"), frame.get("operation")
    if operation == "health":
        write(requestId=request, status="ok")
        continue
    if operation == "describe":
        more: dict[str, Any] = {"mcp": {}} if "mcp" in FLAGS else {}
        inputs = {op: {"type": "object"} for op in (*OPS, "change", "exit")}
        write(requestId=request, name="m", version="1", kind="tool", inputs=inputs, outputs={},
              capabilities=[], features=["cancel"], **more)  # fmt: skip
        continue
    if operation == "cancel":
        sys.stderr.write("cancel\n")
        sys.stderr.flush()
        error = {"code": "cancelled", "message": ""}
        write(requestId=request, ok=False, error=error)
        continue
    op, args = frame["input"]["op"], frame["input"]["args"]
    if op == "exit":
        sys.exit(1)
    if op == "change":
        for uri in args["uris"]:
            write(version="0", type="ui_event", event="resource.updated", payload={"uri": uri})
    else:
        sys.stderr.write(f"{op} {args['uri']}\n")
        sys.stderr.flush()
        if args["uri"].endswith("mute"):
            continue
    if op != "change" and args["uri"].endswith("bad"):
        write(requestId=request, ok=False, error={"code": "no", "message": "not that one"})
    else:
        write(requestId=request, ok=True, result={})
