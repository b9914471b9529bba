"""The program that every supervisor runs: `child.py SOCKET VICE NAME`. Standard library only.

It connects to the socket, and so do its children: a connection is a birth, its end is a death. It
answers `health` and `describe` if it is asked, as stdiod does; the others ask nothing. Vices:

    plain      none
    stubborn   ignores SIGTERM and the end of its input
    parent     has a child in its own process group, stubborn
    escaping   has a grandchild in a session of its own, stubborn
    brood      is stubborn and has both
    crash      exits with 3 at once
    crash1     exits with 3 the first time
    segv1      dies of SIGSEGV the first time
    chatty     writes 4 MiB to stdout and to stderr, then connects once more as `written`
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

PATH, VICE, NAME = sys.argv[1:4]
held: list[socket.socket] = []


def connect(role: str) -> None:
    """Be known as alive until the end of this process."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(PATH)
    connection.sendall(f"{role} {os.getpid()}\n".encode())
    held.append(connection)


def stay() -> None:
    """Live until killed."""
    while True:
        signal.pause()


def fork(role: str, *, new_session: bool) -> None:
    """Leave a stubborn child."""
    if os.fork() == 0:
        if new_session:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        for connection in held:
            connection.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        connect(role)
        stay()


def write(descriptor: int) -> None:
    """Write 4 MiB of lines."""
    left = 4 << 20
    while left > 0:
        left -= os.write(descriptor, b"x" * 99 + b"\n")


def first_time() -> bool:
    """Whether no process of this name has been here before."""
    mark = Path(f"{PATH}.{NAME}")
    seen = mark.exists()
    mark.touch()
    return not seen


def serve() -> None:
    """Answer what is asked; whoever was asked once ends with its input."""
    asked = False
    for line in sys.stdin:
        asked = True
        request = json.loads(line)
        named = {"requestId": request["requestId"]}
        if request["operation"] == "describe":
            facts = {"name": NAME, "version": "1", "kind": "tool", "capabilities": []}
            answer = {**named, **facts, "inputs": {}, "outputs": {}}
        else:
            answer = {**named, "status": "ok"}
        os.write(1, json.dumps(answer).encode() + b"\n")
    if not asked or VICE in ("stubborn", "brood"):
        stay()


def main() -> None:
    """Live as the vice says."""
    if VICE in ("stubborn", "brood"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connect("child")
    if VICE in ("parent", "brood"):
        fork("grandchild", new_session=False)
    if VICE in ("escaping", "brood"):
        fork("escapee", new_session=True)
    if VICE == "crash" or (VICE == "crash1" and first_time()):
        os._exit(3)
    if VICE == "segv1" and first_time():
        os.kill(os.getpid(), signal.SIGSEGV)
    if VICE == "chatty":
        write(1)
        write(2)
        connect("written")
    serve()


main()
