"""A module that says nothing but what could run or break a page: `hostile.py NAME`.

Each payload leaves a trace if it runs: a property of the window, a request to a host that there is
not, or a dialog. The tests look for all of these.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

TRACE = "stdiodWasRun"
ELSEWHERE = "elsewhere.invalid"

SCRIPT = f"<script>window.{TRACE}=1;alert(1);fetch('http://{ELSEWHERE}/')</script>"
IMAGE = f'<img src=x onerror="window.{TRACE}=2;alert(2)">'
DRAWING = (
    f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.{TRACE}=3;alert(3)">'
    f'<script>window.{TRACE}=4</script><image href="http://{ELSEWHERE}/i"/></svg>'
)
BREAKOUT = (
    f'"\'></title></textarea></style></script><iframe srcdoc="{SCRIPT.replace(chr(34), "")}">'
)
LINK = f"javascript:window.{TRACE}=5"
TEMPLATE = "{{constructor.constructor('window." + TRACE + "=6')()}}${window." + TRACE + "=7}"
BIDI = "a\u202etxt.exe\u2066\u200f\u2069 b\u061c\u200e\ufeff"
CONTROLS = (
    "bell\x07 escape\x1b[2J\x1b[31m nul\x00 back\x08\x08 del\x7f c1\x9b tag\U000e0041 \u2028\u2029"
)
STACKED = "e" + "\u0301" * 2000
ALL = f"{SCRIPT} {IMAGE} {DRAWING} {BREAKOUT} {LINK} {TEMPLATE} {BIDI} {CONTROLS} {STACKED}"
"""What it says wherever it says something."""

PROTO = {
    "__proto__": {"polluted": ALL},
    "constructor": {"prototype": {"polluted": 1}},
    "toString": ALL,
}
MUCH = 10_000_000
"""Characters of a text that is too long for any page."""

PAGE = f'<!doctype html><body onload="window.{TRACE}=8">{SCRIPT}{IMAGE}'.encode()
ASSETS = {
    "page.html": ("document", "text/html", PAGE),
    "drawing.svg": ("image", "image/svg+xml", DRAWING.encode()),
    "not-a-picture.png": ("image", "image/png", PAGE),
    "script.js": ("text", "text/javascript", f"window.{TRACE}=9".encode()),
    "plain.txt": ("text", "text/plain", ALL.encode("utf-8", "replace")),
    "long.txt": ("text", "text/plain", b"x" * MUCH),
    IMAGE: (IMAGE, "text/html;" + "x" * 300, PAGE),
    BIDI: (ALL, "image/png", b"no picture"),
}


def write(request_id: str, **fields: Any) -> None:
    data = memoryview(json.dumps({"requestId": request_id, **fields}).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def event(request_id: str, of_type: str, /, **fields: Any) -> None:
    write(request_id, version="0", type=of_type, **fields)


def say_all(request_id: str) -> None:
    event(request_id, "log", level="warn", message=ALL, fields={IMAGE: ALL, **PROTO})
    for name in ("message.chunk", "progress", "agent.thinking", "tool.call_start", IMAGE):
        payload = {"content": ALL, "message": ALL, "done": ALL, "total": -1, "name": IMAGE}
        event(request_id, "ui_event", event=name, payload={**payload, **PROTO})
    event(request_id, "error", errorCode=IMAGE, errorMessage=ALL, details={"d": ALL})
    for at, (name, (kind, media_type, content)) in enumerate(ASSETS.items()):
        handle, path = tempfile.mkstemp(prefix=f"<img src=x onerror=alert({at})>")
        os.close(handle)
        Path(path).write_bytes(content)
        metadata = {"title": ALL, "alt": ALL, "href": LINK, **PROTO}
        fields = {"kind": kind, "mediaType": media_type, "path": path}
        event(request_id, "asset", assetId=name, metadata=metadata, **fields)
    write(
        request_id,
        ok=True,
        result={IMAGE: ALL, "link": LINK, **PROTO, "html": [ALL, None, {}]},
    )


def invoke(request_id: str, op: str, args: dict[str, Any]) -> None:
    match op:
        case "all":
            say_all(request_id)
        case "patch":
            patch = {IMAGE: ALL, BIDI: {SCRIPT: [ALL, {"href": LINK}]}, **PROTO}
            event(request_id, "state_patch", patch=patch)
            write(request_id, ok=True, result=ALL)
        case "much":
            event(request_id, "ui_event", event="message.chunk", payload={"content": "x" * MUCH})
            write(request_id, ok=True, result={"long": "y " * (MUCH // 2)})
        case "deep":
            result: Any = ALL
            for _ in range(100):
                result = {IMAGE: [result]}
            write(request_id, ok=True, result=result)
        case "wide":
            write(request_id, ok=True, result={f"{IMAGE}{n}": n for n in range(20_000)})
        case "chatter":
            for n in range(20_000):
                event(request_id, "log", level="info", message=f"{n} {SCRIPT}")
            write(request_id, ok=True, result=None)
        case _:
            write(
                request_id, ok=False, error={"code": IMAGE, "message": ALL, "details": {IMAGE: ALL}}
            )


def serve(request: dict[str, Any]) -> None:
    request_id = request["requestId"]
    match request["operation"]:
        case "health":
            write(request_id, status="ok", details={IMAGE: ALL})
        case "describe":
            facts = {"name": sys.argv[1], "version": IMAGE, "kind": "tool", "description": ALL}
            write(
                request_id,
                **facts,
                capabilities=[IMAGE],
                inputs={},
                outputs={},
                features=["cancel"],
            )
        case "invoke":
            invoke(request_id, request["input"]["op"], request["input"].get("args") or {})


def main() -> None:
    os.write(2, (ALL.replace("\n", " ") + "\n").encode("utf-8", "replace"))
    os.write(2, b"\xff\xfe\x80 not UTF-8 " + b"z" * 100_000 + b"\n")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request["operation"] == "invoke" and request["input"]["op"] == "die":
            os.write(2, (ALL + "\n").encode("utf-8", "replace"))
            os._exit(3)
        serve(request)


if __name__ == "__main__":
    main()
