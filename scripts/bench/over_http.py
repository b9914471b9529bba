"""The scene whose daemon serves HTTP, beside a plain app on the same h11, wsproto and trio."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scripts.bench.cpus import cpus_for, pinned_to
from scripts.bench.over_socket import READ_BYTES, Call, Served, connected, sample, serving
from scripts.bench.rows import HTTP_INVOKE, OURS, PLAIN, SSE_FAN_OUT, WS_INVOKE, Row, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAM_WITHIN_S, PROGRAMS, Stdiod, Workshop, descriptor

CLIENTS = 100
"""Who are told of each event."""

EVENTS = 20
"""Of a publication, so many for each; few enough to be counted by their bytes at once."""

_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_INVOKE = {"module": "primes", "op": "echo", "args": {"n": 1}}
_LAST = (b"event: message.complete", b"event: done")
"""What ends a publication, ours and theirs."""


async def http(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Invoke over REST and over WebSocket, one at a time; tell events to 100 clients."""
    samples: list[Sample] = []
    path = workshop.new_folder() / "socket"
    async with with_http(workshop) as ours:
        parties = {OURS: ours}
        plain = [sys.executable, str(PROGRAMS / "plain_app.py"), str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(plain, stdin=pipe, stdout=pipe) as app:  # noqa: ASYNC220 - at once
            assert app.stdin is not None
            assert app.stdout is not None
            app.stdout.readline()
            parties[PLAIN] = Served(path, app.pid)
            for row, call, count in calls(sizes):
                for name, who in parties.items():
                    with pinned_to(cpus_for(row), who.pid):
                        samples.append(await sample(row, name, call, who, count))
            app.stdin.close()  # which ends it
    return samples


@asynccontextmanager
async def with_http(workshop: Workshop, command: type[Stdiod] = Stdiod) -> AsyncIterator[Served]:
    """Have a daemon that serves HTTP around the block; gives who listens for that."""
    chunks = [sys.executable, str(PROGRAMS / "chunks.py")]
    agent = {**descriptor("chunks", chunks), "kind": "agent"}
    stdiod = command(workshop, workshop.primes(), agent)
    async with serving(stdiod, "--http", "sock") as who:
        stdiod.run("session", "new", "--id", "s", "--agent", "chunks")
        yield Served(who.path.with_name("http.sock"), who.pid)


def calls(sizes: Sizes) -> list[tuple[Row, Call, int]]:
    """Return what is asked over HTTP, and how often."""
    return [
        (HTTP_INVOKE, rest, sizes.sequential),
        (WS_INVOKE, websocket, sizes.sequential),
        (SSE_FAN_OUT, fan_out, max(2, sizes.sequential // 100)),
    ]


def rest(path: Path, count: int) -> tuple[float, int]:
    """Invoke with `POST`, on one connection."""
    raw = _post("/api/v1/modules/primes/invoke", {"op": "echo", "args": {"n": 1}})
    with connected(path) as client:
        begin = time.perf_counter()
        for _ in range(count):
            client.sendall(raw)
            assert b'"ok":true' in _response(client)
        return time.perf_counter() - begin, count


def websocket(path: Path, count: int) -> tuple[float, int]:
    """Invoke with messages, on one connection; its frames are shorter than a read."""
    text = json.dumps({"id": "1", "payload": {"action": "invoke", **_INVOKE}}).encode()
    frame = bytes([0x81, 0x80 + len(text)]) + bytes(4) + text  # short, and masked with zeros
    with connected(path) as client:
        client.sendall(_UPGRADE)
        data = b""
        while b"\r\n\r\n" not in data:
            data += _read(client)
        begin = time.perf_counter()
        for _ in range(count):
            client.sendall(frame)
            data = b""
            while b'"ok":true' not in data:
                data += _read(client)
        return time.perf_counter() - begin, count


def fan_out(path: Path, count: int) -> tuple[float, int]:
    """Have events published `count` times to all who listen; returns how many they were told of."""
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
            return time.perf_counter() - begin, count * CLIENTS * EVENTS
    finally:
        for one in listening:
            one.close()


def _read_to_last(listening: list[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for one in listening:
            selector.register(one, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select(PROGRAM_WITHIN_S):
                assert isinstance(key.fileobj, socket.socket)
                key.data.extend(_read(key.fileobj))
                if any(last in key.data for last in _LAST):
                    selector.unregister(key.fileobj)


def _read(client: socket.socket) -> bytes:
    data = client.recv(READ_BYTES)
    assert data, "the other side hung up"
    return data


def _post(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _response(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _read(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _read(client)
    return body
