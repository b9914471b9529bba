"""The scene whose daemon is a process of its own, asked over its control socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
import psutil
import trio

from scripts.bench.in_process import WINDOW
from scripts.bench.peer_programs import with_sdk
from scripts.bench.rows import NODE_RELAY, OURS, RELAY, SOCKET_MANY, SOCKET_ONE, Row, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.supervised import cpu_ns
from scripts.bench.workshop import PROGRAM_WITHIN_S, PROGRAMS, Stdiod, Workshop

READ_BYTES = 65536


async def invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Echo through `primes`, one at a time and 64 at a time, from the outside."""
    samples: list[Sample] = []
    relays = {RELAY: [sys.executable, str(PROGRAMS / "relay.py")]}
    if workshop.node is not None:
        relays[NODE_RELAY] = [workshop.node, str(PROGRAMS / "relay.js")]
    stdiod = Stdiod(workshop, workshop.primes())
    try:
        await trio.to_thread.run_sync(stdiod.up)
        for row, window, count in (
            (SOCKET_ONE, 1, sizes.sequential),
            (SOCKET_MANY, WINDOW, sizes.concurrent),
        ):
            pid = stdiod.status()["daemon"]["pid"]
            took = await trio.to_thread.run_sync(measured, stdiod.socket, pid, count, window)
            samples.append(_sample(row, OURS, took))
            for name, command in relays.items():
                path = workshop.new_folder() / "socket"
                whole = [*command, str(path), workshop.program("primes")]
                relayed = await trio.to_thread.run_sync(_relayed, whole, path, count, window)
                samples.append(_sample(row, name, relayed))
            samples += await with_sdk(workshop, row, count, window)
    finally:
        await trio.to_thread.run_sync(stdiod.end)
    return samples


class Took(NamedTuple):
    """What a call took, by the clock and of the CPU of whoever serves it."""

    wall_s: float
    cpu_s: float


def _sample(row: Row, name: str, took: Took | None) -> Sample:
    if took is None:
        return Sample(row.title, name, None, "did not start")
    return Sample(row.title, name, 1 / took.wall_s, cpu_us=took.cpu_s * 1e6)


def _relayed(command: Sequence[str], path: Path, count: int, window: int) -> Took | None:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as relay:
        assert relay.stdin is not None
        assert relay.stdout is not None
        try:
            if not relay.stdout.readline():
                return None
            return measured(path, relay.pid, count, window)
        finally:
            relay.stdin.close()  # which ends it


def measured(path: Path, pid: int, count: int, window: int) -> Took:
    """Ask whoever listens at `path`, warmed up."""
    ask(path, count // 4, window)
    process = psutil.Process(pid)
    used_ns = sum(cpu_ns([process]).values())
    took_s = ask(path, count, window)
    used_ns = sum(cpu_ns([process]).values()) - used_ns
    return Took(took_s / count, used_ns / 1e9 / count)


class Client:
    """A connection on which one thing is asked at a time."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PROGRAM_WITHIN_S)
        self._socket.connect(str(path))
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


def ask(path: Path, count: int, window: int) -> float:
    """Invoke `count` times, `window` open at once, and return how long it took (s)."""
    sent = answered = 0

    def requests(number: int) -> bytes:
        nonlocal sent
        first, sent = sent, sent + number
        frame = b'","tool":"primes","operation":"invoke","input":{"op":"echo","args":{"n":1}}}\n'
        return b"".join(b'{"requestId":"%d%b' % (i, frame) for i in range(first, sent))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PROGRAM_WITHIN_S)
        client.connect(str(path))
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
        return time.perf_counter() - begin
