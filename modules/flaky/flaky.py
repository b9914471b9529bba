"""flaky: a fire drill. Each op fails in one way in which a real tool can fail.

What does your host make of it? What does it tell its user?

    echo '{"operation":"exit","input":{"code":3}}' | python3 flaky.py; echo "exit status $?"
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def emit(event: str, **fields: Any) -> None:
    line = json.dumps({"version": "0", "type": event, **fields})
    print(line, flush=True)  # before we fall over


def drill(message: str) -> None:
    """Leave a trace in both places where one looks for the cause."""
    emit("log", level="warn", message=message)
    print("flaky: simulated failure:", message, file=sys.stderr, flush=True)


def exit_with(args: dict[str, Any]) -> NoReturn:
    code = int(args.get("code", 3))
    drill(f"exiting with code {code}")
    sys.exit(code)


def die(args: dict[str, Any]) -> NoReturn:
    number = int(args.get("signal", 9))
    drill(f"dying of signal {number}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a drill leaves no core file behind
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)  # Python handles SIGINT and SIGPIPE otherwise
    os.kill(os.getpid(), number)
    sys.exit(f"flaky: signal {number} does not end a process")


def nodone(_args: dict[str, Any]) -> None:
    drill("leaving without a word")


def garbage(_args: dict[str, Any]) -> None:
    drill("printing what is not JSON")
    print("Traceback, banner, progress bar: anything a library prints to stdout", flush=True)
    emit("done", ok=True, summary="All is well, or so it seems.")


def hang(args: dict[str, Any]) -> NoReturn:
    if args.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    drill("hanging")
    while True:
        signal.pause()


DRILLS: dict[str, Callable[[dict[str, Any]], None]] = {
    "exit": exit_with,
    "die": die,
    "nodone": nodone,
    "garbage": garbage,
    "hang": hang,
}


def main() -> None:
    try:
        request = json.loads(sys.stdin.buffer.readline() or b"{}")
        run = DRILLS[request["operation"]]
        args = request.get("input") or {}
    except (ValueError, KeyError, TypeError):  # even a drill refuses politely what it cannot do
        message = f"flaky knows these drills: {', '.join(DRILLS)}"
        emit("error", errorCode="unsupported_op", errorMessage=message)
        emit("done", ok=False, summary=message)
    else:
        run(args)


if __name__ == "__main__":
    main()
