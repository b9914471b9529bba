"""A module that does what the args of a request say, one step after the other.

A step is [WHAT, ...]; without steps the args come back as the result:

    ["out", TEXT]       writes a line, with the requestId in place of $ID; or the JSON of an object
    ["bare", TEXT]      the same, without the newline
    ["b64", TEXT]       writes bytes
    ["err", TEXT]       writes a line to stderr
    ["fill", N]         writes a line of N bytes that answers the request
    ["log", TEXT]       writes an event, as do ["patch", OBJECT], ["ui", NAME, PAYLOAD],
                        ["asset", ID, PATH, TYPE] and ["error", CODE, MESSAGE]
    ["done", RESULT]    answers as the dialect does; ["fail", CODE, MESSAGE] does so, too
    ["host", METHOD, PARAMS]  calls the host, and answers with what it said
    ["heard"]           reads a line, and logs it; ["wait"] serves it, and leaves this request
    ["exit", N], ["kill", N], ["close", FD], ["hang"], ["spin"]

Words on the command line say how it begins: `describe=JSON` adds members to its description,
`health=JSON` is its health, `ids=no` leaves out the requestId, `narratoria` has events alone,
`start=STEPS` is done before anything is read.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from typing import Any

options = dict(word.partition("=")[::2] for word in sys.argv[1:])
NARRATORIA = "narratoria" in options


def write(data: bytes, to: int = 1) -> None:
    while data:
        data = data[os.write(to, data) :]


def line(request: dict[str, Any], **members: Any) -> None:
    shown = {} if options.get("ids") == "no" else {"requestId": request.get("requestId")}
    write(json.dumps({**shown, **members}).encode() + b"\n")


def event(request: dict[str, Any], kind: str, /, **members: Any) -> None:
    line(request, version="0", type=kind, **members)


def done(request: dict[str, Any], **members: Any) -> None:
    if NARRATORIA:
        event(request, "done", **members)
    else:
        line(request, **members)


def step(request: dict[str, Any], what: str, *words: Any) -> bool:
    """Do one step; return whether it answered."""
    match what, *words:
        case "out", dict() as document:
            write(
                json.dumps(document).replace("$ID", str(request.get("requestId"))).encode() + b"\n"
            )
        case "out", text:
            write(text.replace("$ID", str(request.get("requestId"))).encode() + b"\n")
        case "bare", text:
            write(text.replace("$ID", str(request.get("requestId"))).encode())
        case "b64", text:
            write(base64.b64decode(text))
        case "err", text:
            write(text.encode() + b"\n", 2)
        case "fill", count:
            done(request, ok=True, result="x" * count)
        case "log", text:
            event(request, "log", level="info", message=text)
        case "patch", patch:
            event(request, "state_patch", patch=patch)
        case "ui", name, payload:
            event(request, "ui_event", event=name, payload=payload)
        case "asset", name, path, media:
            event(request, "asset", assetId=name, kind="file", mediaType=media, path=path)
        case "error", code, message:
            event(request, "error", errorCode=code, errorMessage=message)
        case "done", result:
            done(request, ok=True, result=result)
        case "fail", code, message:
            done(request, ok=False, error={"code": code, "message": message})
        case "host", method, params:
            payload = {"call_id": "c1", "method": method, "params": params}
            event(request, "host_call", payload=payload)
            while (said := json.loads(sys.stdin.readline()))["type"] == "host_result":
                if said["payload"].get("chunk", {}).get("is_last", True):
                    break
                event(request, "log", level="info", message=json.dumps(said["payload"]))
            done(request, ok=True, result=said["payload"])
        case ("heard",):
            heard = json.loads(sys.stdin.readline())
            heard.pop("requestId", None)
            event(request, "log", level="info", message=json.dumps(heard))
        case ("wait",):
            serve(json.loads(sys.stdin.readline()))
        case "exit", code:
            os._exit(code)
        case "kill", number:
            os.kill(os.getpid(), number)
        case "close", number:
            os.close(number)
        case ("spin",):
            while True:
                pass
        case ("hang",):
            while True:
                signal.pause()
        case _:
            sys.exit(f"no step {what}")
    return what in ("done", "fail", "fill", "host")


def serve(request: dict[str, Any]) -> None:
    operation = request.get("operation")
    if operation == "health" and not NARRATORIA:
        line(request, **json.loads(options.get("health", '{"status": "ok"}')))
    elif operation == "describe" and not NARRATORIA:
        described = {"name": request["tool"], "version": "1", "kind": "tool", "capabilities": []}
        described |= {"inputs": {}, "outputs": {}}
        line(request, **{**described, **json.loads(options.get("describe", "{}"))})
    elif operation != "cancel":
        args = request.get("input", {}) if NARRATORIA else request["input"].get("args", {})
        if "steps" not in args:
            done(request, ok=True, result=args)
            return
        for words in args["steps"]:
            step(request, *words)


def main() -> None:
    for words in json.loads(options.get("start", "[]")):
        step({}, *words)
    while text := sys.stdin.readline():
        serve(json.loads(text))


main()
