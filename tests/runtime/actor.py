"""A module that does what its ops say. Arguments: its name, then flags.

Flags: no-ids, ignore-term, starting=N, mute-after=N (health probes), mute-at=N,N and unwell-at=N
(of them), kind=K, cancel, flow, never-ready, no-describe, gate=PATH (a pipe that it waits for the
other end of when its input has ended).
"""

from __future__ import annotations

# It is started many hundred times, and what it imports is most of what that takes: `signal` makes
# enumerations of what `_signal` has.
import _signal as signal  # type: ignore[import-not-found] # typeshed has none
import os
import sys

sys.path.append(__file__.rsplit("/", 3)[0])
from tests.bare_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

name, *flags = sys.argv[1:]
options = dict(flag.partition("=")[::2] for flag in flags)
healths = 0
held: list[str | None] = []


def write(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def answer(request_id: str | None, content: dict[str, Any]) -> None:
    named = {} if "no-ids" in options else {"requestId": request_id}
    write(dumps({**named, **content}))


def health(request_id: str | None) -> None:
    global healths  # noqa: PLW0603
    healths += 1
    while held:
        answer(held.pop(), {"ok": True, "result": "late"})
    if "never-ready" in options or healths > int(options.get("mute-after", healths)):
        return
    if str(healths) in options.get("mute-at", "").split(","):
        return
    if str(healths) == options.get("unwell-at"):
        answer(request_id, {"ok": False, "error": {"code": "ill", "message": "I am ill"}})
        return
    starting = healths <= int(options.get("starting", 0))
    answer(request_id, {"status": "starting" if starting else "ok"})


def describe(request_id: str | None) -> None:
    if "no-describe" in options:
        return
    features = [one for one in ("cancel", "flow") if one in options]
    facts = {"name": name, "version": "1", "kind": options.get("kind", "tool")}
    answer(
        request_id,
        {**facts, "capabilities": [], "inputs": {}, "outputs": {}, "features": features},
    )


def connect(path: str) -> socket.socket:
    """Connect to the test: it sees the end of this when the process is gone."""
    import socket  # noqa: PLC0415 - few need it

    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    link.sendall(b"here\n")
    return link


def invoke(  # noqa: C901, PLR0912 - a list of what can be asked
    request_id: str | None, op: str, args: dict[str, Any]
) -> None:
    match op:
        case "hang":
            return
        case "late":
            held.append(request_id)
            return
        case "deaf":
            while True:
                signal.pause()
        case "mumble":
            signal.signal(signal.SIGALRM, lambda *_: os.write(1, b"."))
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            while True:
                signal.pause()
        case "gate":
            with open(args["gate"]) as gate:  # noqa: PTH123 - until somebody closes the other end
                gate.read()
        case "exit":
            os.write(2, args.get("words", "").encode())
            os._exit(args["code"])
        case "kill":
            os.kill(os.getpid(), args["signal"])
        case "close":
            os.close(args["fd"])
            signal.pause()
        case "say":
            for line in args["lines"]:
                write(line)
            return
        case "events":
            for number in range(args["count"]):
                write(
                    dumps(
                        {
                            "version": "0",
                            "type": "log",
                            "requestId": request_id,
                            "level": "info",
                            "message": f"{number} {args.get('pad', '')}",
                        }
                    )
                )
            if args.get("stay"):
                return
        case "fork":
            if os.fork() == 0:
                connect(args["socket"])
                signal.pause()
            if args.get("leave"):
                os._exit(args["code"])
        case "whoami":
            args = {"pid": os.getpid(), "instance": os.environ["STDIOD_INSTANCE"]}
    answer(request_id, {"ok": True, "result": args})


if "ignore-term" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for text in sys.stdin:
    frame = loads(text)
    match frame["operation"]:
        case "health":
            health(frame["requestId"])
        case "describe":
            describe(frame["requestId"])
        case "cancel":
            answer(frame["requestId"], {"ok": False, "error": {"code": "cancelled", "message": ""}})
        case "pause" | "resume":
            os.write(2, f"{frame['operation']} {frame['requestId']}\n".encode())
        case _:
            invoke(frame["requestId"], frame["input"]["op"], frame["input"]["args"])
if "ignore-term" in options:
    signal.pause()
if "gate" in options:
    with open(options["gate"]) as gate:  # noqa: PTH123 - as above
        gate.read()
