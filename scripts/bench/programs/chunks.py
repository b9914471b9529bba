"""chunks.py: a module that says so many chunks of a message, in one go."""

from __future__ import annotations

import json
import sys

CHUNK = {"version": "0", "type": "ui_event", "event": "message.chunk"}

for line in sys.stdin:
    request = json.loads(line)
    told = {"requestId": request["requestId"]}
    if request["operation"] == "health":
        said = [told | {"status": "ok"}]
    elif request["operation"] == "describe":
        said = [told | {"name": "chunks", "kind": "agent"}]
    else:
        count = int(request["input"]["args"]["prompt"])
        said = [told | CHUNK | {"payload": {"content": str(n)}} for n in range(count)]
        said.append(told | {"ok": True, "result": None})
    sys.stdout.write("".join(json.dumps(one) + "\n" for one in said))
    sys.stdout.flush()
