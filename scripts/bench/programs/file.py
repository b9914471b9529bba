"""A tool of Spec 001 that hands over a file of `mb` megabytes, which takes no room on a disk."""

import json
import sys
from pathlib import Path

request = json.loads(sys.stdin.readline())
path = Path("file.pdf").resolve()
with path.open("wb") as file:
    file.truncate(int(request["input"]["mb"]) * 1_000_000)
asset = {"type": "asset", "assetId": "file", "kind": "file", "mediaType": "application/pdf"}
for line in ({**asset, "path": str(path)}, {"type": "done", "ok": True}):
    print(json.dumps({"version": "0", "requestId": request["requestId"], **line}), flush=True)
