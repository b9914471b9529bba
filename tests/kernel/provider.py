"""A provider that says what it was asked: `python provider.py NAME RESULT`.

RESULT is the result of `complete`, as JSON; `echo` is the args as the text, `hang` is none at all.
"""

from __future__ import annotations

import json
import sys

NAME, RESULT = sys.argv[1:]
for line in sys.stdin:
    frame = json.loads(line)
    said = {"requestId": frame["requestId"]}
    if frame["operation"] == "health":
        said |= {"status": "ok"}
    elif frame["operation"] == "describe":
        said |= {"name": NAME, "kind": "provider"}
    elif RESULT == "hang":
        continue
    elif RESULT == "echo":
        text = json.dumps(frame["input"]["args"])
        said |= {"ok": True, "result": {"content": text, "model": "m1", "stop_reason": "endTurn"}}
    else:
        said |= {"ok": True, "result": json.loads(RESULT)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
