"""Clients of a socket, which ask our daemon or a peer in its place.

A load asks `count` times, with `window` calls open at once, and returns how long that took (s).
Its path is that of the socket.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from scripts.checkout import COMMAND_WITHIN_S

Load = Callable[[Path, int, int], float]

READ_BYTES = 65536
CLIENTS = 100
"""So many hear each event of a session."""
EVENTS = 20
"""So many come of a prompt; they fit into the buffer of a socket that is read later."""
DELIVERIES = CLIENTS * EVENTS
ENDLESS = 1 << 40
MEGABYTE = 1_000_000

ECHO: dict[str, Any] = {"op": "echo", "args": {"n": 1}}
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
OK = b'"ok":true'


def _connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(COMMAND_WITHIN_S)
    client.connect(str(path))
    return client


def _read(client: socket.socket, most: int = READ_BYTES) -> bytes:
    data = client.recv(most)
    assert data, "the other side hung up"
    return data


def _read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        data += _read(client)
    return data


def _headed(client: socket.socket) -> tuple[int, bytes]:
    """Return the length of a response's body, and what came of it with the head."""
    head, _, body = _read_until(client, b"\r\n\r\n").partition(b"\r\n\r\n")
    return int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]), body


def _response(client: socket.socket) -> bytes:
    length, body = _headed(client)
    while len(body) < length:
        body += _read(client)
    return body


def _line(tool: str, given: dict[str, Any], request_id: str = "r") -> bytes:
    """Return an invocation: built once, so that the client costs little beside what it asks."""
    line = {"requestId": request_id, "tool": tool, "operation": "invoke", "input": given}
    return orjson.dumps(line) + b"\n"


def ask(path: Path, count: int, window: int) -> float:
    """Invoke `primes` on one connection of the control socket."""
    line = _line("primes", ECHO, "%d")
    sent = answered = 0
    rest = b""
    with _connected(path) as client:
        began_s = time.perf_counter()
        answers = window
        while answered < count:
            first, sent = sent, min(sent + answers, count)
            client.sendall(b"".join(line % number for number in range(first, sent)))
            *lines, rest = (rest + _read(client)).split(b"\n")
            answers = len(lines)
            answered += answers
            assert all(orjson.loads(answer)["ok"] for answer in lines)
        return time.perf_counter() - began_s


def listen(path: Path, count: int, _window: int) -> float:
    """Let `native` send `count` events to a client of the control socket."""
    given = {"op": "stream", "args": {"n": count}, "timeout_s": COMMAND_WITHIN_S}
    with _connected(path) as client:
        began_s = time.perf_counter()
        client.sendall(_line("native", given))
        seen, last = 0, b""
        while seen <= count:
            chunk = _read(client)
            seen += chunk.count(b"\n")
            last = (last + chunk)[-READ_BYTES:]
        took_s = time.perf_counter() - began_s
    assert OK in last.splitlines()[-1], last
    return took_s


def http(path: Path, count: int, window: int) -> float:
    """Invoke with `POST`, on `window` connections, one call at a time on each."""
    return _in_turn(path, count, window, _post("/api/v1/modules/primes/invoke", ECHO), _response)


def crowd(path: Path, count: int, window: int) -> float:
    """Invoke on `window` connections of the control socket, one call at a time on each."""
    return _in_turn(
        path, count, window, _line("primes", ECHO), lambda client: _read_until(client, b"\n")
    )


def _in_turn(
    path: Path, count: int, window: int, request: bytes, answer: Callable[[socket.socket], bytes]
) -> float:
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(select.epoll())
        clients = [stack.enter_context(_connected(path)) for _ in range(window)]
        by_number = {client.fileno(): client for client in clients}
        began_s = time.perf_counter()
        for number, client in by_number.items():
            ready.register(number, select.EPOLLIN)
            client.sendall(request)
        sent, answered = window, 0
        while answered < count:
            for number, _ in ready.poll():
                assert OK in answer(by_number[number])
                answered += 1
                if sent < count:
                    sent += 1
                    by_number[number].sendall(request)
        return time.perf_counter() - began_s


def download(path: Path, count: int, _window: int) -> float:
    """Read `count` megabytes of the only asset, again and again, once its digest is known."""
    left = count * MEGABYTE
    with _connected(path) as client:
        while not (asset := _only_asset(client))["sha256"]:
            time.sleep(0.1)
        began_s = time.perf_counter()
        while left > 0:
            client.sendall(_get(f"/api/v1/assets/{asset['asset']}/content"))
            length, body = _headed(client)
            read = len(body)
            while read < min(length, left):
                read += len(_read(client, MEGABYTE))
            left -= read
        return time.perf_counter() - began_s


def _only_asset(client: socket.socket) -> dict[str, Any]:
    client.sendall(_get("/api/v1/assets"))
    (asset,) = orjson.loads(_response(client))["assets"]
    return dict(asset)


@contextlib.contextmanager
def endless(load: Load, path: Path, window: int) -> Iterator[None]:
    """Let a process put a load without end on a socket, meanwhile."""
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=load, args=(path, ENDLESS, window))
    process.start()
    try:
        yield
        assert process.is_alive(), "the load has ended"
    finally:
        process.kill()
        process.join()


def websocket(path: Path, count: int, _window: int) -> float:
    """Invoke with messages, on one connection."""
    payload = {"action": "invoke", "module": "primes", **ECHO}
    text = orjson.dumps({"id": "1", "payload": payload})
    frame = bytes([0x81, 0x80 + len(text)]) + bytes(4) + text  # short, and masked with zeros
    with _connected(path) as client:
        client.sendall(UPGRADE)
        _read_until(client, b"\r\n\r\n")
        began_s = time.perf_counter()
        for _ in range(count):
            client.sendall(frame)
            assert OK in _read_until(client, OK)  # an answer's frame is shorter than a read
        return time.perf_counter() - began_s


def fan_out(path: Path, count: int, _window: int) -> float:
    """Send `count` prompts whose events go to all clients."""
    with contextlib.ExitStack() as stack:
        asking, *listening = (stack.enter_context(_connected(path)) for _ in range(1 + CLIENTS))
        for client in listening:
            client.sendall(_get("/api/v1/sessions/s/events"))
            _read_until(client, b" 200 ")
        prompt = _post("/api/v1/sessions/s/prompt", {"content": str(EVENTS)})
        began_s = time.perf_counter()
        for _ in range(count):
            asking.sendall(prompt)
            for client in listening:
                _read_until(client, b"event: message.complete")
            _response(asking)
        return time.perf_counter() - began_s


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _post(path: str, body: dict[str, Any]) -> bytes:
    data = orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
