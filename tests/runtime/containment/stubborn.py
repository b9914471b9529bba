"""A module that does not go when it is told to: standard library only, one word per vice.

    stubborn.py NAME LIFELINE [VICE ...]

Every process connects to the Unix socket LIFELINE and says `LABEL PID`; the end of that connection
is the process's death. Vices of the leader: `ignores_term`, `threads` (has a second thread),
`traceable` (may be traced where Yama says no), `headless` (its main thread ends, and another one
works on: /proc shows a zombie); of the processes it starts at once, each of which ignores every
polite signal: `child`, `setsid` (holds stdout, in its own session), `double` (double fork: its
parent is gone), `beheaded` (as `double`, and headless), `bare` (as `double`, with an empty
environment and no descriptor but its lifeline), `hidden` (as `bare`, and with a RLIMIT_LOCKS of its
own). Ops: `echo`, `hang` (never answers), `leave` (exits 0 at once, without an answer), `hog` (its
child takes `bytes` of memory, headless if `beheaded`), `bomb` (forks for ever), `spawn` (one more
VICE).
"""

from __future__ import annotations

# It is started many hundred times, and what it imports is most of what that takes: `signal` and
# `socket` make enumerations of what these have.
import _signal as signal  # type: ignore[import-not-found] # typeshed has none
import _socket as socket
import os
import sys

sys.path.append(__file__.rsplit("/", 4)[0])
from tests.bare_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PR_SET_PTRACER = 0x59616D61
POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def lifeline(label: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.connect(LIFELINE)
    line.sendall(f"{label} {os.getpid()}\n".encode())
    return line


def stay(label: str) -> None:
    for number in POLITE:
        signal.signal(number, signal.SIG_IGN)
    line = lifeline(label)
    while line:
        signal.pause()


def be(vice: str) -> bool:
    """Take a vice of the leader's own; False if it is none."""
    match vice:
        case "ignores_term":
            for number in POLITE:
                signal.signal(number, signal.SIG_IGN)
        case "threads":
            import threading  # noqa: PLC0415 - few need it

            threading.Thread(target=signal.pause, daemon=True).start()
        case "traceable":
            import ctypes  # noqa: PLC0415 - few need it

            ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        case _:
            return vice == "headless"
    return True


def behead(body: Callable[[], None]) -> None:
    """Have another thread go on, and end the main one."""
    import ctypes  # noqa: PLC0415 - few need it
    import threading  # noqa: PLC0415

    threading.Thread(target=body).start()
    ctypes.CDLL(None).pthread_exit(None)


def start(vice: str) -> None:
    if os.fork():
        return
    try:
        if vice != "child":
            os.setsid()
        between = os.getpid()
        if vice in ("double", "beheaded", "bare", "hidden") and os.fork():
            os._exit(0)
        while vice in ("bare", "hidden") and os.getppid() == between:
            os.sched_yield()  # it shows itself as an orphan
        if vice == "hidden":
            import resource  # noqa: PLC0415 - few need it

            resource.setrlimit(10, (1, resource.getrlimit(10)[1]))
        if vice in ("bare", "hidden"):
            os.closerange(0, 4096)
            os.open("/dev/null", os.O_RDWR)
            os.dup(0)
            os.dup(0)
            os.execve(
                sys.executable,
                [sys.executable, "-I", "-S", __file__, NAME, LIFELINE, f"={vice}"],
                {},
            )
        os.close(LINE.fileno())
        if vice == "beheaded":
            for number in POLITE:
                signal.signal(number, signal.SIG_IGN)
            behead(lambda: linger(vice))
        stay(vice)
    finally:
        os._exit(9)


def linger(label: str) -> None:
    line = lifeline(label)
    while line:
        signal.pause()


def hog(size: int, *, beheaded: bool) -> None:
    if os.fork():
        return
    os.close(LINE.fileno())
    if beheaded:
        behead(lambda: fill(size))
    fill(size)


def fill(size: int) -> None:
    line = lifeline("hog")
    held: list[bytearray] = []
    while line:
        if sum(map(len, held)) < size:
            held.append(bytearray(os.urandom(1 << 16)) * 16)
        else:
            signal.pause()


def bomb() -> None:
    # Bounded, so that a test that fails does not take the machine with it.
    for _ in range(9):
        os.fork()
    os.setsid()
    stay("bomb")


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    operation = request["operation"]
    if operation == "health":
        return {"status": "ok"}
    if operation == "describe":
        return {
            "name": NAME,
            "version": "1",
            "kind": "tool",
            "capabilities": [],
            "inputs": {},
            "outputs": {},
        }
    args = request["input"]["args"]
    match request["input"]["op"]:
        case "hang":
            return None
        case "leave":
            os._exit(args.get("code", 0))
        case "hog":
            hog(args["bytes"], beheaded="beheaded" in args)
            return None
        case "bomb":
            if not os.fork():
                os.close(LINE.fileno())
                bomb()
            return {"ok": True, "result": None}
        case "spawn":
            start(args["vice"])
            return {"ok": True, "result": None}
    return {"ok": True, "result": args}


def serve() -> None:
    for text in sys.stdin:
        asked = loads(text)
        reply = answer(asked)
        if reply is not None:
            reply["requestId"] = asked["requestId"]
            sys.stdout.write(dumps(reply) + "\n")
            sys.stdout.flush()
    while "ignores_term" in VICES:
        signal.pause()


NAME, LIFELINE, *VICES = sys.argv[1:]
if VICES in (["=bare"], ["=hidden"]):
    stay(VICES[0].removeprefix("="))
STARTED = [one for one in VICES if not be(one)]
LINE = lifeline("leader")
for one in STARTED:
    start(one)
if "headless" in VICES:
    behead(serve)
serve()
