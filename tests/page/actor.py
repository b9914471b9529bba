"""A module that does what a visitor of the page may come across: `actor.py NAME`."""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NAME = sys.argv[1]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SOUND = (
    b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\x08\0\0\0"
    + bytes(8)
)
DRAWING = b"""<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">
<rect width="40" height="20"/></svg>"""
ASSETS = {
    "picture": ("image", "image/png", PIXEL),
    "drawing": ("image", "image/svg+xml", DRAWING),
    "sound": ("audio", "audio/wav", SOUND),
    "words": ("text", "text/plain", b"some words in a file\n"),
    "riddle": ("model", "model/x-unheard-of", bytes(range(256))),
}
FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 1},
        "sure": {"type": "boolean"},
    },
    "required": ["colour"],
}

waiting: list[str] = []
asking: dict[str, str] = {}
"""The request that each open call belongs to."""


def write(request_id: str, **fields: Any) -> None:
    os.write(1, json.dumps({"requestId": request_id, **fields}).encode() + b"\n")


def event(request_id: str, of_type: str, /, **fields: Any) -> None:
    write(request_id, version="0", type=of_type, **fields)


def said(request_id: str, content: str) -> None:
    event(request_id, "ui_event", event="message.chunk", payload={"content": content})


def invoke(request_id: str, op: str, args: dict[str, Any]) -> None:
    match op:
        case "say":
            for word in args["text"].split():
                said(request_id, word + " ")
            write(request_id, ok=True, result={"words": len(args["text"].split()), "args": args})
        case "wait":
            said(request_id, "it is waiting")
            waiting.append(request_id)
        case "die":
            os.write(2, b"these were the last words\n")
            os._exit(3)
        case "fail":
            error = {"code": "no_luck", "message": "that did not work out"}
            write(request_id, ok=False, error=error)
        case "make":
            for name in args.get("what", ASSETS):
                hand_over(request_id, name)
            write(request_id, ok=True, result=None)
        case "patch":
            event(request_id, "state_patch", patch=args["patch"])
            write(request_id, ok=True, result=None)
        case "ask":
            asking["c1"] = request_id
            params = {"message": "which one shall it be?", "form": FORM}
            call = {"call_id": "c1", "method": "user.ask", "params": params}
            event(request_id, "host_call", payload=call)
        case _:
            error = {"code": "unsupported_op", "message": f"there is no op {op}"}
            write(request_id, ok=False, error=error)


def hand_over(request_id: str, name: str) -> None:
    kind, media_type, content = ASSETS[name]
    handle, path = tempfile.mkstemp(prefix="stdiod-asset-")
    os.close(handle)
    Path(path).write_bytes(content)
    said = {"assetId": name, "mediaType": media_type, "path": path, "metadata": {}}
    event(request_id, "asset", kind=kind, **said)


def serve(request: dict[str, Any]) -> None:
    request_id = request["requestId"]
    match request["operation"]:
        case "health":
            write(request_id, status="ok")
        case "describe":
            facts: dict[str, Any] = {"name": NAME, "version": "1.2.3", "kind": "tool"}
            facts |= {"capabilities": ["user.ask"], "inputs": {}, "outputs": {}}
            write(request_id, **facts, features=["cancel", "host_call"])
        case "cancel":
            if request_id in waiting:
                waiting.remove(request_id)
                error = {"code": "cancelled", "message": "it was told to stop"}
                write(request_id, ok=False, error=error)
        case "invoke":
            invoke(request_id, request["input"]["op"], request["input"].get("args") or {})


def main() -> None:
    os.write(2, b"this is a line of the log\n")
    for line in sys.stdin.buffer:
        document = json.loads(line)
        if document.get("type") == "host_result":
            output = document["payload"]["output"]
            write(asking.pop(document["payload"]["call_id"]), ok=True, result=output)
        else:
            serve(document)


if __name__ == "__main__":
    main()
