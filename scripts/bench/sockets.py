"""Clients of a socket: what asks our daemon, a relay or an app over its control socket or HTTP.

Each asks so often, with so many calls open at once, and returns how long that took (s).
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from pathlib import Path
from typing import Any

import orjson

from scripts.checkout import COMMAND_WITHIN_S

READ_BYTES = 65536
CLIENTS = 100
"""So many are told of each event."""
EVENTS = 20
"""Of a publication, so many for each; few enough that the end of them fits into one look."""

_INVOKE = {"module": "primes", "op": "echo", "args": {"n": 1}}
_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_LAST = (b"event: message.complete", b"event: done")
"""What ends a publication, ours and theirs."""


def connected(path: Path) -> socket.socket:
    """Return a connection to the process that listens at a path."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(COMMAND_WITHIN_S)
    client.connect(str(path))
    return client


def _read(client: socket.socket) -> bytes:
    data = client.recv(READ_BYTES)
    assert data, "the other side hung up"
    return data


def request(tool: str, op: str, timeout_s: float | None = None, **args: Any) -> bytes:
    """Return the line of a request to a module."""
    content = {"op": op, "args": args} | ({} if timeout_s is None else {"timeout_s": timeout_s})
    line = {"requestId": "r", "tool": tool, "operation": "invoke", "input": content}
    return orjson.dumps(line) + b"\n"


def invoked(client: socket.socket, tool: str, op: str, **args: Any) -> float:
    """Invoke once on a connection."""
    line = request(tool, op, **args)
    lines = client.makefile("rb")
    begin = time.perf_counter()
    client.sendall(line)
    while (answer := orjson.loads(lines.readline()))["type"] != "done":
        pass
    took_s = time.perf_counter() - begin
    assert answer["ok"], answer
    return took_s


def listen(path: Path, count: int, _window: int) -> float:
    """Have `native` tell `count` events."""
    with connected(path) as client:
        begin = time.perf_counter()
        client.sendall(request("native", "stream", COMMAND_WITHIN_S, n=count))
        seen, last = 0, b""
        while seen <= count:
            chunk = _read(client)
            seen += chunk.count(b"\n")
            last = (last + chunk)[-READ_BYTES:]
        took_s = time.perf_counter() - begin
    answer = orjson.loads(last.splitlines()[-1])
    assert answer["type"] == "done", answer
    assert answer["ok"], answer
    return took_s


def ask(path: Path, count: int, window: int) -> float:
    """Invoke `primes`, `window` calls open at once."""
    sent = answered = 0

    def requests(number: int) -> bytes:
        nonlocal sent
        first, sent = sent, sent + number
        frame = b'","tool":"primes","operation":"invoke","input":{"op":"echo","args":{"n":1}}}\n'
        return b"".join(b'{"requestId":"%d%b' % (i, frame) for i in range(first, sent))

    with connected(path) as client:
        begin = time.perf_counter()
        client.sendall(requests(min(window, count)))
        rest = b""
        while answered < count:
            *lines, rest = (rest + _read(client)).split(b"\n")
            for line in lines:
                answer = orjson.loads(line)
                assert answer["ok"], answer
            answered += len(lines)
            client.sendall(requests(min(len(lines), count - sent)))
        return time.perf_counter() - begin


def rest(path: Path, count: int, _window: int) -> float:
    """Invoke with `POST`, on one connection."""
    raw = _post("/api/v1/modules/primes/invoke", {"op": "echo", "args": {"n": 1}})
    with connected(path) as client:
        begin = time.perf_counter()
        for _ in range(count):
            client.sendall(raw)
            assert b'"ok":true' in _response(client)
        return time.perf_counter() - begin


def websocket(path: Path, count: int, _window: int) -> float:
    """Invoke with messages, on one connection; its frames are shorter than a read."""
    text = json.dumps({"id": "1", "payload": {"action": "invoke", **_INVOKE}}).encode()
    frame = bytes([0x81, 0x80 + len(text)]) + bytes(4) + text  # short, and masked with zeros
    with connected(path) as client:
        client.sendall(_UPGRADE)
        _read_until(client, b"\r\n\r\n")
        begin = time.perf_counter()
        for _ in range(count):
            client.sendall(frame)
            _read_until(client, b'"ok":true')
        return time.perf_counter() - begin


def fan_out(path: Path, count: int, _window: int) -> float:
    """Have `count` publications told to all clients."""
    published = _post("/publish", EVENTS)
    if path.name == "http.sock":
        published = _post("/api/v1/sessions/s/prompt", {"content": str(EVENTS)})
    listen = b"GET /api/v1/sessions/s/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    listening = [connected(path) for _ in range(CLIENTS)]
    try:
        for one in listening:
            one.sendall(listen)
            assert b" 200 " in _read(one)
        with connected(path) as client:
            begin = time.perf_counter()
            for _ in range(count):
                client.sendall(published)
                _read_to_last(listening)
                _response(client)
            return time.perf_counter() - begin
    finally:
        for one in listening:
            one.close()


def _read_to_last(listening: list[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for one in listening:
            selector.register(one, selectors.EVENT_READ, (one, bytearray()))
        while selector.get_map():
            for key, _ in selector.select(COMMAND_WITHIN_S):
                client, data = key.data
                data += _read(client)
                if any(last in data for last in _LAST):
                    selector.unregister(client)


def _read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        data += _read(client)
    return data


def _post(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _response(client: socket.socket) -> bytes:
    head, _, body = _read_until(client, b"\r\n\r\n").partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _read(client)
    return body
