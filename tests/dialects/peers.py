"""The other ends of all dialects: what a well-behaved process says to what it reads.

Run as a program it is that process: `python peers.py KIND [--fault FAULT AT]`. It reads as many
lines as it is to (`AT`), and then dies, floods or lies in the place of its answer. So it needs
nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from typing import Any

NAME = "dice"


def line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def description(ops: list[str]) -> dict[str, Any]:
    kind = os.environ.get("PEER_KIND", "tool")
    facts: dict[str, Any] = {"name": NAME, "version": "1", "kind": kind, "capabilities": []}
    return {**facts, "inputs": {op: {} for op in ops}, "outputs": {}}


def calls(args: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls to the host that a request asks for."""
    given = {"method": args.get("method"), "params": args.get("params")}
    return [{"call_id": f"c{number}", **given} for number in range(args.get("calls", 0))]


class Peer:
    """A process that speaks the made-up wire of `lines.GreetedConnection`."""

    ops: tuple[str, ...] = ("echo",)

    def __init__(self) -> None:
        self._unread = b""

    def reads(self, data: bytes) -> bytes:
        """Say something to each whole line."""
        *whole, self._unread = (self._unread + data).split(b"\n")
        return b"".join(self.answers(json.loads(one)) for one in whole)

    def ends(self) -> bytes:
        """Say something to the end of the input."""
        return b""

    def answers(self, message: dict[str, Any]) -> bytes:
        if "hello" in message:
            return line(ready=description(list(self.ops)))
        if "do" in message:
            return self.does(message["id"], message["do"], message["with"])
        return b""

    def does(self, request: str, op: str, args: dict[str, Any]) -> bytes:
        return b"" if args.get("hang") else line(id=request, got={"op": op, **args})


class Mcp(Peer):
    """A server of the older era, with a tool on each of two pages; it asks before it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._later: list[bytes] = []

    def answers(self, message: dict[str, Any]) -> bytes:
        match message.get("method"):
            case "server/discover":
                said: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
            case "initialize":
                server = {"name": NAME, "version": "1"}
                said = {"capabilities": {"tools": {}}, "serverInfo": server}
                said = {"result": {**said, "protocolVersion": "2025-11-25"}}
            case "tools/list":
                page = message["params"].get("cursor", "echo")
                said = {"result": {"tools": [{"name": page, "inputSchema": {"type": "object"}}]}}
                said["result"] |= {"nextCursor": "more"} if page == "echo" else {}
            case "tools/call":
                return self.called(message["id"], message["params"])
            case None:
                return self._later.pop() if self._later else b""
            case _:
                return b""
        return line(jsonrpc="2.0", id=message["id"], **said)

    def called(self, request: str, params: dict[str, Any]) -> bytes:
        done = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
        said = line(jsonrpc="2.0", method="notifications/progress", params=done)
        result = {"content": [{"type": "text", "text": "hi"}]}
        answer = line(jsonrpc="2.0", id=request, result=result)
        if not params["arguments"].get("calls"):
            return said + answer
        self._later.append(answer)
        return said + line(jsonrpc="2.0", id=1, method="roots/list")


class ModernMcp(Mcp):
    """A server of the newer era, which wants to know something before it answers."""

    def answers(self, message: dict[str, Any]) -> bytes:
        result: dict[str, Any] = {"resultType": "complete"}
        if message.get("method") != "server/discover":
            return super().answers(message)
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        return line(jsonrpc="2.0", id=message["id"], result=result)

    def called(self, request: str, params: dict[str, Any]) -> bytes:
        if "requestState" in params:
            return super().called(request, params)
        result = {"resultType": "input_required", "requestState": "s"}
        return line(jsonrpc="2.0", id=request, result=result)


class Module(Peer):
    """A module of the dialect `module`."""

    def answers(self, message: dict[str, Any]) -> bytes:
        named = {"requestId": message.get("requestId")}
        match message.get("operation"):
            case "health":
                return line(status="ok", **named)
            case "describe":
                features = ["cancel", "host_call"]
                return line(**description(["echo"]), features=features, **named)
            case "invoke":
                said = line(version="0", type="log", level="info", message="on it", **named)
                for payload in calls(message["input"]["args"]):
                    said += line(version="0", type="host_call", payload=payload, **named)
                return said + line(ok=True, result=message["input"], **named)
        return b""


class Narratoria(Peer):
    """A tool of Spec 001."""

    def answers(self, message: dict[str, Any]) -> bytes:
        said = line(version="0", type="log", level="info", message="on it")
        return said + line(version="0", type="done", ok=True, result=message["input"])


class Exec(Peer):
    """A command that prints its input again."""

    def reads(self, data: bytes) -> bytes:
        return data


class Silent(Peer):
    """It asks the host something itself before each answer, and waits for what it says to that."""

    def __init__(self) -> None:
        super().__init__()
        self._later: list[bytes] = []

    def answers(self, message: dict[str, Any]) -> bytes:
        if "pong" in message:
            return self._later.pop(0)
        if "result_of" in message:
            return b""
        self._later.append(super().answers(message))
        return line(ping=len(self._later))

    def does(self, request: str, op: str, args: dict[str, Any]) -> bytes:
        called = b"".join(line(call=one["call_id"], **one) for one in calls(args))
        return called + super().does(request, op, args)


class Paged(Peer):
    """It tells what it is in three pages."""

    pages = (["echo"], ["roll", "shake"], ["tell"])

    def answers(self, message: dict[str, Any]) -> bytes:
        at = message.get("page")
        if at is None:
            return super().answers(message)
        return line(page=self.pages[at], next=at + 1 if at + 1 < len(self.pages) else None)


class Old(Peer):
    """It has never heard of the newer greeting and says nothing to it."""

    def answers(self, message: dict[str, Any]) -> bytes:
        return b"" if message.get("hello") == "new" else super().answers(message)


class Touchy(Old):
    """The newer greeting is the end of it."""

    def answers(self, message: dict[str, Any]) -> bytes:
        if message.get("hello") == "new":
            raise SystemExit(1)
        return super().answers(message)


class Argued(Peer):
    """A command line tool: what it says depends on its arguments and all of its input."""

    def reads(self, data: bytes) -> bytes:
        self._unread += data
        return b""

    def ends(self) -> bytes:
        return b" ".join([*(one.encode() for one in sys.argv[2:]), self._unread.upper()])


class Carrier(Peer):
    """It hands over bytes, and changes its mind about what it is."""

    ops = ("echo", "carry", "change")

    def does(self, request: str, op: str, args: dict[str, Any]) -> bytes:
        said = b""
        if op == "carry":
            data = base64.b64decode(args["data"])
            size = args.get("piece", 1 << 16)
            pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
            for number, piece in enumerate(pieces):
                last = number == len(pieces) - 1 and not args.get("unfinished")
                encoded = base64.b64encode(piece).decode()
                said += line(id=request, bytes=encoded, of=args.get("of", "a"), last=last)
        if op == "change":
            for number in range(args["times"]):
                now = description([*self.ops, f"op{number}"])
                said += line(now={**now, **args.get("facts", {})})
        return said + super().does(request, op, args)


PEERS: dict[str, type[Peer]] = {
    "exec": Exec,
    "mcp": Mcp,
    "mcp-modern": ModernMcp,
    "module": Module,
    "narratoria": Narratoria,
    "silent": Silent,
    "paged": Paged,
    "fallback": Old,
    "touchy": Touchy,
    "argued": Argued,
    "carrier": Carrier,
}


def misbehave(fault: str) -> None:
    if fault == "die":
        os._exit(3)
    if fault == "flood":
        junk = b"x" * 4095 + b"\n"
        while True:
            os.write(1, junk)
    lies = [b"[]", b'{"ready":7}', b'{"page":{},"next":0}', b'{"id":"r1"}', b'{"now":[]}', b"\xff"]
    lies += [b'{"ready":{"name":"dice"}}', b'{"status":7}', b'{"page":["echo"],"next":"x"}']
    os.write(1, b"\n".join([*lies, b""]))
    while True:
        signal.pause()


def main(kind: str, *options: str) -> None:
    peer = PEERS[kind]()
    fault, at = (options[1], int(options[2])) if options[:1] == ("--fault",) else ("", 0)
    count = 0
    while data := os.read(0, 1 << 16):
        count += data.count(b"\n")
        if fault and count >= at:
            misbehave(fault)
        os.write(1, peer.reads(data))
    os.write(1, peer.ends())


if __name__ == "__main__":
    main(*sys.argv[1:])
