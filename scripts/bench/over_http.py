"""The scene whose daemon serves HTTP, beside a plain app on the same h11, wsproto and trio."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import trio

from scripts.bench.over_socket import READ_BYTES, Took
from scripts.bench.rows import HTTP_INVOKE, OURS, PLAIN, SSE_FAN_OUT, WS_INVOKE, Row, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.supervised import cpu_ns
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
    command = [sys.executable, str(PROGRAMS / "chunks.py")]
    agent = {**descriptor("chunks", command), "kind": "agent"}
    stdiod = Stdiod(workshop, workshop.primes(), agent)
    path = workshop.new_folder() / "socket"
    try:
        await trio.to_thread.run_sync(stdiod.up, "--http", "sock")
        stdiod.run("session", "new", "--id", "s", "--agent", "chunks")
        served = {OURS: (stdiod.folder / "http.sock", stdiod.status()["daemon"]["pid"])}
        plain = [sys.executable, str(PROGRAMS / "plain_app.py"), str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(plain, stdin=pipe, stdout=pipe) as app:  # noqa: ASYNC220 - at once
            assert app.stdin is not None
            assert app.stdout is not None
            app.stdout.readline()
            served[PLAIN] = (path, app.pid)
            for row, ask, count in (
                (HTTP_INVOKE, rest, sizes.sequential),
                (WS_INVOKE, websocket, sizes.sequential),
                (SSE_FAN_OUT, fan_out, max(2, sizes.sequential // 100)),
            ):
                for name, (where, pid) in served.items():
                    took = await trio.to_thread.run_sync(_measured, ask, where, pid, count)
                    samples.append(_sample(row, name, took))
            app.stdin.close()  # which ends it
    finally:
        await trio.to_thread.run_sync(stdiod.end)
    return samples


def _sample(row: Row, name: str, took: Took) -> Sample:
    return Sample(row.title, name, 1 / took.wall_s, cpu_us=took.cpu_s * 1e6)


Ask = Callable[[Path, int], tuple[float, int]]
"""Asks so often whoever listens at a path; returns how long it took (s), and how often that was."""


def _measured(ask: Ask, path: Path, pid: int, count: int) -> Took:
    ask(path, max(1, count // 4))
    process = psutil.Process(pid)
    used_ns = sum(cpu_ns([process]).values())
    took_s, asked = ask(path, count)
    used_ns = sum(cpu_ns([process]).values()) - used_ns
    return Took(took_s / asked, used_ns / 1e9 / asked)


def rest(path: Path, count: int) -> tuple[float, int]:
    """Invoke with `POST`, on one connection."""
    raw = _post("/api/v1/modules/primes/invoke", {"op": "echo", "args": {"n": 1}})
    with _connected(path) as client:
        begin = time.perf_counter()
        for _ in range(count):
            client.sendall(raw)
            assert b'"ok":true' in _response(client)
        return time.perf_counter() - begin, count


def websocket(path: Path, count: int) -> tuple[float, int]:
    """Invoke with messages, on one connection; its frames are shorter than a read."""
    text = json.dumps({"id": "1", "payload": {"action": "invoke", **_INVOKE}}).encode()
    frame = bytes([0x81, 0x80 + len(text)]) + bytes(4) + text  # short, and masked with zeros
    with _connected(path) as client:
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
    listening = [_connected(path) for _ in range(CLIENTS)]
    try:
        for one in listening:
            one.sendall(listen)
            assert b" 200 " in _read(one)
        with _connected(path) as client:
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


def _connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(PROGRAM_WITHIN_S)
    client.connect(str(path))
    return client


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
