"""The scenes whose daemon is a process of its own, asked over its control socket and over HTTP."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psutil
import trio

from scripts.bench import rows
from scripts.bench.in_process import WINDOW
from scripts.bench.machine import cpu_ns, pinned
from scripts.bench.peers import command, commands, with_sdk
from scripts.bench.rows import OURS, Cost, Row, Sample, rate
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAMS, Measured, Workshop, descriptor
from scripts.checkout import COMMAND_WITHIN_S

READ_BYTES = 65536


async def invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Echo through `primes`, one at a time and 64 at a time, from the outside."""
    samples: list[Sample] = []
    async with serving(Measured(workshop, workshop.primes())) as ours:
        for row, window, count in (
            (rows.SOCKET_ONE, 1, sizes.sequential),
            (rows.SOCKET_MANY, WINDOW, sizes.concurrent),
        ):
            call = partial(ask, window=window)
            with pinned(row, ours.pid):
                samples.append(await sample(row, OURS, call, ours, count))
                for name, relay in commands(workshop, row).items():
                    with _listening(workshop, relay, workshop.program("primes")) as theirs:
                        samples.append(await sample(row, name, call, theirs, count))
                samples += await with_sdk(workshop, row, count, window)
    return samples


async def stream(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Let a module say as much as it can to a client outside, and to a relay's client."""
    async with serving(Measured(workshop, workshop.native())) as ours:
        samples = [await sample(rows.RELAYED, OURS, listen, ours, sizes.events)]
    for name, relay in commands(workshop, rows.RELAYED).items():
        with _listening(workshop, relay, workshop.program("native"), "native") as theirs:
            samples.append(await sample(rows.RELAYED, name, listen, theirs, sizes.events))
    return samples


class Served(NamedTuple):
    """Who listens at a socket."""

    path: Path
    pid: int


@asynccontextmanager
async def serving(stdiod: Measured, *options: str) -> AsyncIterator[Served]:
    """Have a daemon of its own around the block."""
    try:
        await trio.to_thread.run_sync(stdiod.up, *options)
        yield Served(stdiod.socket, stdiod.status()["daemon"]["pid"])
    finally:
        await trio.to_thread.run_sync(stdiod.end)


@contextmanager
def _listening(workshop: Workshop, words: list[str], *module: str) -> Iterator[Served | None]:
    """Have a relay of a module, or an app, around the block; None if it does not start."""
    path, pipe = workshop.new_folder() / "socket", subprocess.PIPE
    with subprocess.Popen([*words, str(path), *module], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Served(path, process.pid) if process.stdout.readline() else None
        finally:
            process.stdin.close()  # which ends it


Call = Callable[[Path, int], tuple[float, int]]
"""Asks so often whoever listens at a path; returns how long it took (s), and how often that was."""


async def sample(row: Row, name: str, call: Call, who: Served | None, count: int) -> Sample:
    """Ask somebody, warmed up."""
    if who is None:
        return Sample(row.title, name, None, "did not start")
    done, cost = await trio.to_thread.run_sync(measured, call, who, count)
    return rate(row, name, done, cost)


def measured(call: Call, who: Served, count: int) -> tuple[int, Cost]:
    """Ask somebody, warmed up; returns how often that was, and what it took them."""
    call(who.path, max(1, count // 4))
    process = psutil.Process(who.pid)
    used_ns = sum(cpu_ns([process]).values())
    took_s, done = call(who.path, count)
    used_ns = sum(cpu_ns([process]).values()) - used_ns
    return done, Cost(took_s, used_ns / 1e9)


def invoked(client: socket.socket, tool: str, op: str, **args: Any) -> float:
    """Invoke one thing on a connection and return how long the answer took (s)."""
    content = {"op": op, "args": args}
    request = {"requestId": "r", "tool": tool, "operation": "invoke", "input": content}
    lines = client.makefile("rb")
    begin = time.perf_counter()
    client.sendall(orjson.dumps(request) + b"\n")
    while (answer := orjson.loads(lines.readline()))["type"] != "done":
        pass
    took_s = time.perf_counter() - begin
    assert answer["ok"], answer
    return took_s


def listen(path: Path, count: int) -> tuple[float, int]:
    """Have `native` tell `count` events; see `Call`."""
    request = {"requestId": "r", "tool": "native", "operation": "invoke"}
    content = {"op": "stream", "args": {"n": count}, "timeout_s": COMMAND_WITHIN_S}
    with connected(path) as client:
        begin = time.perf_counter()
        client.sendall(orjson.dumps({**request, "input": content}) + b"\n")
        seen, last = 0, b""
        while seen <= count:
            chunk = client.recv(READ_BYTES)
            assert chunk, "the other side hung up"
            seen += chunk.count(b"\n")
            last = (last + chunk)[-READ_BYTES:]
        took_s = time.perf_counter() - begin
    answer = orjson.loads(last.splitlines()[-1])
    assert answer["type"] == "done", answer
    assert answer["ok"], answer
    return took_s, count


def ask(path: Path, count: int, window: int) -> tuple[float, int]:
    """Invoke `primes`, `window` calls open at once; see `Call`."""
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
            chunk = client.recv(READ_BYTES)
            assert chunk, "the daemon hung up"
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                answer = orjson.loads(line)
                assert answer["ok"], answer
            answered += len(lines)
            client.sendall(requests(min(len(lines), count - sent)))
        return time.perf_counter() - begin, count


def connected(path: Path) -> socket.socket:
    """Return a connection to who listens at a path."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(COMMAND_WITHIN_S)
    client.connect(str(path))
    return client


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
    app = command(workshop, "plain_app.py")
    async with with_http(workshop) as ours:
        with _listening(workshop, app) as theirs:
            for row, call, count in calls(sizes):
                for name, who in ((OURS, ours), (rows.PLAIN, theirs)):
                    with pinned(row, *([] if who is None else [who.pid])):
                        samples.append(await sample(row, name, call, who, count))
    return samples


@asynccontextmanager
async def with_http(
    workshop: Workshop, command: type[Measured] = Measured
) -> AsyncIterator[Served]:
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
        (rows.HTTP_INVOKE, rest, sizes.sequential),
        (rows.WS_INVOKE, websocket, sizes.sequential),
        (rows.SSE_FAN_OUT, fan_out, max(2, sizes.sequential // 100)),
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
            for key, _ in selector.select(COMMAND_WITHIN_S):
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
