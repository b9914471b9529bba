"""The scene whose daemon is a process of its own, asked over its control socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
import psutil
import trio

from scripts.bench.cpus import cpus_for, pinned_to
from scripts.bench.in_process import WINDOW
from scripts.bench.peer_programs import with_sdk
from scripts.bench.rows import (
    NODE_RELAY,
    OURS,
    RELAY,
    RELAYED,
    SOCKET_MANY,
    SOCKET_ONE,
    Cost,
    Row,
    Sample,
    rate,
)
from scripts.bench.sizes import Sizes
from scripts.bench.supervised import cpu_ns
from scripts.bench.workshop import PROGRAM_WITHIN_S, PROGRAMS, Stdiod, Workshop

READ_BYTES = 65536


async def invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Echo through `primes`, one at a time and 64 at a time, from the outside."""
    samples: list[Sample] = []
    relays = {RELAY: [sys.executable, str(PROGRAMS / "relay.py")], **_node_relay(workshop)}
    async with serving(Stdiod(workshop, workshop.primes())) as ours:
        for row, window, count in (
            (SOCKET_ONE, 1, sizes.sequential),
            (SOCKET_MANY, WINDOW, sizes.concurrent),
        ):
            call = partial(ask, window=window)
            with pinned_to(cpus_for(row), ours.pid):
                samples.append(await sample(row, OURS, call, ours, count))
                for name, command in relays.items():
                    with _relaying(workshop, *command, workshop.program("primes")) as theirs:
                        samples.append(await sample(row, name, call, theirs, count))
                samples += await with_sdk(workshop, row, count, window)
    return samples


async def stream(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Let a module say as much as it can to a client outside, and to a relay's client."""
    async with serving(Stdiod(workshop, workshop.native())) as ours:
        samples = [await sample(RELAYED, OURS, listen, ours, sizes.events)]
    for name, command in _node_relay(workshop).items():
        with _relaying(workshop, *command, workshop.program("native"), "native") as theirs:
            samples.append(await sample(RELAYED, name, listen, theirs, sizes.events))
    return samples


class Served(NamedTuple):
    """Who listens at a socket."""

    path: Path
    pid: int


@asynccontextmanager
async def serving(stdiod: Stdiod, *options: str) -> AsyncIterator[Served]:
    """Have a daemon of its own around the block."""
    try:
        await trio.to_thread.run_sync(stdiod.up, *options)
        yield Served(stdiod.socket, stdiod.status()["daemon"]["pid"])
    finally:
        await trio.to_thread.run_sync(stdiod.end)


def _node_relay(workshop: Workshop) -> dict[str, list[str]]:
    node = workshop.node
    return {} if node is None else {NODE_RELAY: [node, str(PROGRAMS / "relay.js")]}


@contextmanager
def _relaying(
    workshop: Workshop, program: str, relay: str, *module: str
) -> Iterator[Served | None]:
    """Have a relay of a module around the block; None if it does not start."""
    path, pipe = workshop.new_folder() / "socket", subprocess.PIPE
    command = [program, relay, str(path), *module]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
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


class Client:
    """A connection on which one thing is asked at a time."""

    def __init__(self, path: Path) -> None:
        self._socket = connected(path)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._socket.close()

    def invoke(self, tool: str, op: str, args: dict[str, Any]) -> float:
        """Invoke and return how long the answer took (s)."""
        content = {"op": op, "args": args}
        request = {"requestId": "r", "tool": tool, "operation": "invoke", "input": content}
        begin = time.perf_counter()
        self._socket.sendall(orjson.dumps(request) + b"\n")
        while (answer := orjson.loads(self._lines.readline()))["type"] != "done":
            pass
        took_s = time.perf_counter() - begin
        assert answer["ok"], answer
        return took_s


def listen(path: Path, count: int) -> tuple[float, int]:
    """Have `native` tell `count` events; see `Call`."""
    request = {"requestId": "r", "tool": "native", "operation": "invoke"}
    content = {"op": "stream", "args": {"n": count}, "timeout_s": PROGRAM_WITHIN_S}
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
    client.settimeout(PROGRAM_WITHIN_S)
    client.connect(str(path))
    return client
