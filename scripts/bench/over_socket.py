"""The scene whose daemon is a process of its own, asked over its control socket."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import orjson
import trio

from scripts.bench.in_process import WINDOW
from scripts.bench.rows import OURS, SOCKET_MANY, SOCKET_ONE, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Stdiod, Workshop

READ_BYTES = 65536
SILENCE_S = 60.0
"""An answer that takes longer will not come."""


async def invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Echo through `primes`, one at a time and 64 at a time, from the outside."""
    return await trio.to_thread.run_sync(_invoke, workshop, sizes)


def _invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    stdiod = Stdiod(workshop, workshop.primes())
    try:
        stdiod.up()
        one_s = ask(stdiod.socket, sizes.sequential, 1)
        many_s = ask(stdiod.socket, sizes.concurrent, WINDOW)
    finally:
        stdiod.down()
    return [
        Sample(SOCKET_ONE.title, OURS, sizes.sequential / one_s),
        Sample(SOCKET_MANY.title, OURS, sizes.concurrent / many_s),
    ]


def ask(path: Path, count: int, window: int) -> float:
    """Invoke `count` times, `window` open at once, and return how long it took (s)."""
    sent = answered = 0

    def requests(number: int) -> bytes:
        nonlocal sent
        first, sent = sent, sent + number
        frame = b'","tool":"primes","operation":"invoke","input":{"op":"echo","args":{"n":1}}}\n'
        return b"".join(b'{"requestId":"%d%b' % (i, frame) for i in range(first, sent))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(SILENCE_S)
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
                assert answer["type"] == "done", answer
                assert answer["ok"], answer
            answered += len(lines)
            client.sendall(requests(min(len(lines), count - sent)))
        return time.perf_counter() - begin
