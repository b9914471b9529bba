"""A module that asks the control socket of its own daemon, in one way or another.

`reach` has args `how`, `socket` and `requests`; the result is the answer to each of them, a `done`.
As a program with the word `client` it is what asks: requests on stdin, answers on stdout.

    itself      the module's process
    child       a child of it
    escapee     an orphan with a session of its own
    bare        an orphan with a session of its own, and with no environment
    hidden      as that, and it has changed the limit that all processes of the module have
    inherited   an orphan, with a connection that the module's process has made
    gone        the module's process, with a connection of a child that has ended
"""

from __future__ import annotations

import array
import json
import os
import resource
import socket
import sys
from typing import Any

RLIMIT_LOCKS = 10


def connected(path: str) -> socket.socket:
    daemon = socket.socket(socket.AF_UNIX)
    daemon.connect(path)
    return daemon


def answers(daemon: socket.socket, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    with daemon, daemon.makefile() as lines:
        for number, request in enumerate(requests):
            line = json.dumps({"requestId": str(number), **request})
            daemon.sendall(line.encode() + b"\n")
            found.append(next(said for one in lines if (said := json.loads(one))["type"] == "done"))
    return found


def orphan(how: str, path: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Have a process ask whose parent has ended."""
    asked, asking = os.pipe()
    told, telling = os.pipe()
    made = connected(path) if how == "inherited" else None
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if how == "hidden":
                soft, hard = resource.getrlimit(RLIMIT_LOCKS)
                resource.setrlimit(RLIMIT_LOCKS, (soft - 1, hard))
            os.dup2(asked, 0)
            os.dup2(telling, 1)
            at = path
            if made is not None:
                at = str(os.dup(made.fileno()))
                os.set_inheritable(int(at), True)
            for one in (asking, told):
                os.close(one)
            environment = {} if how in ("bare", "hidden") else dict(os.environ)
            os.execve(sys.executable, [sys.executable, "-I", __file__, "client", at], environment)
        os._exit(0)
    os.wait()
    for one in (asked, telling):
        os.close(one)
    with os.fdopen(asking, "w") as out:
        json.dump(requests, out)
    with os.fdopen(told) as back:
        return list(json.load(back))


def of_child(path: str) -> socket.socket:
    """Return a connection that a child has made, which has ended."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        daemon = connected(path)
        rights = array.array("i", [daemon.fileno()])
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os._exit(0)
    os.wait()
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    (number,) = array.array("i", ancillary[0][2])
    return socket.socket(fileno=number)


def reach(how: str, path: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    match how:
        case "itself":
            return answers(connected(path), requests)
        case "gone":
            return answers(of_child(path), requests)
        case "child":
            told, telling = os.pipe()
            if os.fork() == 0:
                with os.fdopen(telling, "w") as out:
                    json.dump(answers(connected(path), requests), out)
                os._exit(0)
            os.close(telling)
            with os.fdopen(told) as back:
                found = json.load(back)
            os.wait()
            return list(found)
        case _:
            return orphan(how, path, requests)


def main() -> None:
    if sys.argv[1:2] == ["client"]:
        at = sys.argv[2]
        daemon = socket.socket(fileno=int(at)) if at.isdigit() else connected(at)
        json.dump(answers(daemon, json.load(sys.stdin)), sys.stdout)
        return
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"status": "ok"}
        if request["operation"] == "describe":
            known = {"version": "1", "kind": "tool", "capabilities": [], "inputs": {}}
            answer = {"name": request["tool"], **known, "outputs": {}}
        elif request["operation"] == "invoke":
            args = request["input"]["args"]
            answer = {"ok": True, "result": reach(args["how"], args["socket"], args["requests"])}
        sys.stdout.write(json.dumps({"requestId": request["requestId"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
