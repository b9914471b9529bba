"""Clients of a socket, which ask our daemon or a peer in its place.

A load asks `count` times, with `window` calls open at once, and returns how long that took (s).
Its path is that of the socket. Requests are built once, and answers are read no further than it
takes to see that they are there: a client is to cost little beside what it asks.
"""

from __future__ import annotations

import contextlib
import http.client
import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from scripts.checkout import COMMAND_WITHIN_S

Load = Callable[[Path, int, int], float]

READ_BYTES: Final = 65536
CLIENTS, EVENTS = 100, 20
"""So many hear each event of a session, of which so many come of a prompt: they fit into the buffer
of a socket that is read later."""
ENDLESS: Final = 1 << 40
MEGABYTE: Final = 1_000_000
ECHO: Final[dict[str, Any]] = {"op": "echo", "args": {"n": 1}}
OK: Final = b'"ok":true'


def _connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(COMMAND_WITHIN_S)
    client.connect(str(path))
    return client


def _read(client: socket.socket) -> bytes:
    data = client.recv(READ_BYTES)
    assert data, "the other side hung up"
    return data


def _read_until(client: socket.socket, word: bytes, *, is_last: bool = False) -> None:
    """Read until a word has come, and the end of an object if that is the last thing sent."""
    data = b""
    while word not in data or (is_last and not data.rstrip().endswith(b"}")):
        data += _read(client)


def _line(tool: str, given: dict[str, Any], request_id: str = "r") -> bytes:
    line = {"requestId": request_id, "tool": tool, "operation": "invoke", "input": given}
    return orjson.dumps(line) + b"\n"


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _post(path: str, body: dict[str, Any]) -> bytes:
    data = orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _message(payload: dict[str, Any]) -> bytes:
    text = orjson.dumps({"id": "1", "payload": payload})
    return bytes([0x81, 0x80 + len(text)]) + bytes(4) + text  # short, and masked with zeros


UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def in_turn(path: Path, count: int, window: int, *, request: bytes, upgrade: bytes = b"") -> float:
    """Invoke `primes` on `window` connections, one call at a time on each."""
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(select.epoll())
        clients = [stack.enter_context(_connected(path)) for _ in range(window)]
        by_number = {client.fileno(): client for client in clients}
        for client in clients if upgrade else ():
            client.sendall(upgrade)
            _read_until(client, b"\r\n\r\n")
        began_s = time.perf_counter()
        for number, client in by_number.items():
            ready.register(number, select.EPOLLIN)
            client.sendall(request)
        sent, answered = window, 0
        while answered < count:
            for number, _ in ready.poll():
                _read_until(by_number[number], OK, is_last=True)
                answered += 1
                if sent < count:
                    sent += 1
                    by_number[number].sendall(request)
        return time.perf_counter() - began_s


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


def download(path: Path, count: int, _window: int) -> float:
    """Read `count` megabytes of the only asset, again and again, once its digest is known."""
    left, buffer = count * MEGABYTE, memoryview(bytearray(MEGABYTE))
    client = http.client.HTTPConnection("localhost")
    with _connected(path) as client.sock:

        def answer(place: str) -> http.client.HTTPResponse:
            client.request("GET", f"/api/v1/assets{place}")
            return client.getresponse()

        def asset() -> dict[str, Any]:
            [only] = orjson.loads(answer("").read())["assets"]
            return dict(only)

        while not (found := asset())["sha256"]:
            time.sleep(0.1)
        began_s = time.perf_counter()
        while left > 0:
            content = answer(f"/{found['asset']}/content")
            while left > 0 and (read := content.readinto(buffer)):
                left -= read
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
            _read_until(asking, b"}", is_last=True)
        return time.perf_counter() - began_s


LOADS: Final[dict[str, Load]] = {
    "ask": ask,
    "listen": listen,
    "crowd": partial(in_turn, request=_line("primes", ECHO)),
    "http": partial(in_turn, request=_post("/api/v1/modules/primes/invoke", ECHO)),
    "websocket": partial(
        in_turn,
        request=_message({"action": "invoke", "module": "primes", **ECHO}),
        upgrade=UPGRADE,
    ),
    "fan_out": fan_out,
    "download": download,
}


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
