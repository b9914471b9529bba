"""A module with every fault there is: one name per fault, and names combine.

Faults of an answer come with the request, in its args: `{"fault": "stderr+done+exit", "code": 3}`.
They happen in that order; if none of them answered, an ordinary answer follows. The parameters
(`code`, `bytes`, ...) stand beside `fault`. Without one, the args come back as the result.

Faults of the start, and how it speaks, are words on the command line, `key=value`:

    name=N kind=K         what `describe` says (default: from the request, tool)
    speaks=events         answers are `done` events, not plain objects; and nothing but invokes is
                          served: the dialect narratoria
    ids=no                answers carry no requestId
    starting=N            says "starting" to the first N health requests
    start=FAULT           happens before the first request is read; code=N goes with it
    ready=FAULT           happens once `describe` was answered
    deaf=yes              never reads its stdin

Each process tells the socket named by $LIVENESS that it lives, and its children do (see
`liveness`); `gate` waits for a byte from there.
"""

from __future__ import annotations

# It is started many hundred times, and what it imports is most of what that takes: `signal` makes
# enumerations of what `_signal` has, and `functools` collections that nobody needs here.
import _signal as signal  # type: ignore[import-not-found] # typeshed has none
import os
import sys
from _functools import partial  # type: ignore[import-not-found]

sys.path.append(__file__.rsplit("/", 3)[0])
from tests.bare_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any, NoReturn

OPTIONS = dict(word.partition("=")[::2] for word in sys.argv[1:])
CHUNK = 1 << 20
held: list[socket.socket] = []


class Answer:
    """What is being said about one request."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.operation = request.get("operation")
        self.given = False
        self.events = OPTIONS.get("speaks") == "events"
        content = request.get("input", {})
        self.args: dict[str, Any] = content if self.events else content.get("args", {})
        self.held_bytes = bytearray()
        self.id = {} if OPTIONS.get("ids") == "no" else {"requestId": request.get("requestId")}

    def line(self, **fields: Any) -> None:
        write(dumps({**fields, **self.id}).encode() + b"\n")

    def event(self, kind: str, /, **fields: Any) -> None:
        self.line(version="0", type=kind, **fields)

    def done(self, result: Any = None) -> None:
        self.given = True
        if self.events:
            self.event("done", ok=True, result=result)
        else:
            self.line(ok=True, result=result)

    def number(self, name: str, default: int = 0) -> int:
        return int(self.args.get(name, OPTIONS.get(name, default)))


def write(data: bytes, descriptor: int = 1) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def tell(role: str) -> socket.socket | None:
    """Be known to the test, until this process ends."""
    if "LIVENESS" not in os.environ:
        return None
    import socket  # noqa: PLC0415 - few need it, and it takes its time

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["LIVENESS"])
    name = os.environ.get("STDIOD_INSTANCE", "")
    connection.sendall(f"{role} {os.getpid()} {name}\n".encode())
    held.append(connection)
    return connection


def hang() -> NoReturn:
    while True:
        signal.pause()


def lose_the_main_thread() -> NoReturn:
    """Go on without the main thread, as a zombie that works."""
    import ctypes  # noqa: PLC0415 - few need it, and it takes its time
    import threading  # noqa: PLC0415

    threading.Thread(target=threading.Event().wait).start()
    ctypes.CDLL(None).pthread_exit(None)
    raise AssertionError("unreachable")


def child(role: str, *, new_session: bool, then: Callable[[], NoReturn] = hang) -> None:
    """Leave a child behind that holds our pipes; returns once it is known to the test."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        if new_session:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        for connection in held:
            connection.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(role)
        os.close(reading)
        os.close(writing)
        then()
    os.close(writing)
    os.read(reading, 1)


def die(answer: Answer) -> None:
    os.kill(os.getpid(), answer.number("signal", 9))
    hang()


def gate(answer: Answer) -> None:
    """Wait until the test opens the gate, or is gone."""
    connection = tell("gate")
    if connection is not None:
        connection.recv(1)


def spin(answer: Answer) -> None:
    while True:
        pass


def stderr(answer: Answer) -> None:
    left = answer.number("bytes", 100)
    row = b"x" * 99 + b"\n"
    while left > 0:
        left -= len(row) * 1000 if left > CHUNK else len(row)
        write(row * 1000 if left > CHUNK else row, 2)
    write(b"the last words\n", 2)


def stderr_newlines(answer: Answer) -> None:
    write(b"\n" * answer.number("bytes", 100), 2)


def many_values(answer: Answer) -> None:
    """Answer with an array of small values, in one line."""
    answer.done([0] * answer.number("values"))


def long_line(answer: Answer) -> None:
    left = answer.number("bytes")
    write(b'{"requestId":"')
    while left > 0:
        write(b"x" * min(left, CHUNK))
        left -= CHUNK
    write(b'"}\n')


def flood(answer: Answer) -> None:
    row = {"version": "0", "type": "log", "level": "info", "message": "one of many", **answer.id}
    rows = (dumps(row).encode() + b"\n") * 1000
    for _ in range(answer.number("events", 1000) // 1000):
        write(rows)


def assets(answer: Answer) -> None:
    kind = {"kind": "image", "path": __file__}
    answer.event("asset", assetId="a", mediaType="text/x-python", **kind)
    answer.event("asset", assetId="a", mediaType="text/x-python", **kind)
    answer.event("asset", assetId="b", mediaType="no type at all", **kind)
    answer.event("asset", assetId="c", mediaType="image/png", kind="image", path="/nowhere/c.png")


def asset(answer: Answer) -> None:
    answer.event("asset", assetId="a", kind="k", mediaType="text/plain", path=answer.args["path"])


def allocate(answer: Answer) -> None:
    held_bytes = bytearray(answer.number("bytes"))
    held_bytes[::4096] = b"x" * len(held_bytes[::4096])
    answer.held_bytes = held_bytes  # for as long as it is served: a look comes now and then


def not_ok(answer: Answer) -> None:
    answer.given = True
    if answer.events:
        answer.event("done", ok=False, summary="it went wrong")
    else:
        error = {"code": "soup_is_cold", "message": "it went wrong", "details": {"degrees": 9}}
        answer.line(ok=False, error=error)


def done_with_one_more(answer: Answer) -> None:
    answer.done({"which": "first"})
    answer.done({"which": "second"})


def environment(answer: Answer) -> None:
    answer.done({"environment": dict(os.environ), "cwd": str(os.getcwd())})  # noqa: PTH109


def silent(answer: Answer) -> None:
    answer.given = True


def say(data: bytes, answer: Answer) -> None:
    write(data)


LINES: dict[str, bytes] = {
    "banner": b"Welcome to Frobnicator 3.1 (c) 1987\n",
    "bad_utf8": b'{"version":"0","type":"log","level":"info","message":"\xff\xfe"}\n',
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "surrogate": b'{"version":"0","type":"log","level":"info","message":"\\ud800"}\n',
    "number": b"42\n",
    "array": b"[1,2]\n",
    "no_level": b'{"version":"0","type":"log","message":"m"}\n',
    "wrong_type": b'{"version":"0","type":"log","level":"info","message":7}\n',
    "unknown_type": b'{"version":"0","type":"telepathy"}\n',
    "bad_version": b'{"version":"1","type":"log","level":"info","message":"m"}\n',
    "half_line": b'{"version":"0","type":"do',
    "crlf": b'{"version":"0","type":"log","level":"info","message":"crlf"}\r\n',
    "blank": b"\n  \r\n",
    "bom": b"\xef\xbb\xbf",
    "twice": b'{"version":"0","type":"log","level":"info","message":"1","message":"2"}\n',
    "bigint": b'{"version":"0","type":"ui_event","event":"e","payload":{"n":1%s}}\n' % (b"0" * 30),
    "no_newline": b'{"version":"0","type":"done","ok":true,"result":"whole"}',
}

FAULTS: dict[str, Callable[[Answer], object]] = {
    **{name: partial(say, data) for name, data in LINES.items()},
    "done": lambda answer: answer.done(answer.args),
    "not_ok": not_ok,
    "error": lambda answer: answer.event(
        "error", errorCode="soup_is_cold", errorMessage="9 degrees", details={"degrees": 9}
    ),
    "event": lambda answer: answer.event("log", level="info", message="an event"),
    "two_done": done_with_one_more,
    "silent": silent,
    "hang": lambda _: hang(),
    "spin": spin,
    "exit": lambda answer: os._exit(answer.number("code")),
    "die": die,
    "stop_self": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "ignore_sigterm": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "close_stdin": lambda _: os.close(0),
    "close_stdout": lambda _: os.close(1),
    "grandchild": lambda _: child("grandchild", new_session=False),
    "escapee": lambda _: child("escapee", new_session=True),
    "headless": lambda _: child("headless", new_session=True, then=lose_the_main_thread),
    "gate": gate,
    "stderr": stderr,
    "stderr_newlines": stderr_newlines,
    "long_line": long_line,
    "many_values": many_values,
    "big_answer": lambda answer: answer.done("x" * answer.number("bytes")),
    "flood": flood,
    "asset": asset,
    "assets": assets,
    "allocate": allocate,
    "environment": environment,
}


def misbehave(names: str, answer: Answer) -> None:
    for name in names.split("+"):
        FAULTS[name](answer)


def serve(request: dict[str, Any]) -> None:
    answer = Answer(request)
    if answer.events or answer.operation == "invoke":
        misbehave(answer.args.get("fault", "done"), answer)
        if not answer.given and "no_newline" not in answer.args.get("fault", ""):
            answer.done(answer.args)
    elif answer.operation == "health":
        left = int(OPTIONS.get("starting", "0"))
        OPTIONS["starting"] = str(max(left - 1, 0))
        answer.line(status="starting" if left else "ok")
    elif answer.operation == "describe":
        name = OPTIONS.get("name", request.get("tool"))
        features: dict[str, Any] = {"capabilities": [], "inputs": {}, "outputs": {}}
        answer.line(name=name, version="1", kind=OPTIONS.get("kind", "tool"), **features)
        if "ready" in OPTIONS:
            misbehave(OPTIONS["ready"], answer)


def main() -> None:
    tell("module")
    if "start" in OPTIONS:
        misbehave(OPTIONS["start"], Answer({}))
    if OPTIONS.get("deaf") == "yes":
        hang()
    for line in sys.stdin.buffer:
        serve(loads(line))


main()
