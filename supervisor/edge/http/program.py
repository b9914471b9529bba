"""The gateway's process: its listening sockets, its server, and how it begins and ends.

    python -m supervisor.edge.http --socket PATH --listener FD... [--http HOST:PORT ...]

Its listening sockets were opened by whoever started it, and have numbers. The daemon supervises it
as a module (`--supervised`): it answers `health` and `describe` on stdout, and ends when its stdin
does. `stdiod gateway` becomes it, and SIGINT or SIGTERM ends it. At its end it accepts nobody any
more, cuts streams off, parts from idle clients, and waits for other open requests for `PARTING_S`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from uvicorn.server import ServerState

from protocol.frames import encode
from protocol.version import VERSION
from supervisor.edge.http.app import Application
from supervisor.edge.http.bounded_http import BoundedHttp, BoundedWebSocket, Bounds
from supervisor.edge.http.messages import (
    Receive,
    Scope,
    Send,
)
from supervisor.policy.http_exposure import SOCK, Exposure, read_exposure

BACKLOG = 512

PARTING_S = 3.0
"""How long open requests may take at its end: the daemon has stopped its modules before."""

FILE_STAYS: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Whoever opened a socket removes its file, and the next gateway listens on the same one. From
Python 3.13 on, a server that ends would remove it."""

TICK_S = 1.0
"""How often the time in the header `Date` is renewed."""

LOOK_S = 0.01
"""Between two looks at whether all clients are gone."""

MESSAGE_BYTES = 16 << 20
"""Of a WebSocket; as a line of the control socket may have."""


MAPPED_BYTES = 1 << 17
"""malloc(3) gives a longer piece back to the kernel when it is freed. Without this bound, it raises
its own to the longest piece that was freed, and keeps holes of many times what is held."""

_M_MMAP_THRESHOLD = -3


def main() -> None:
    with contextlib.suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    options = _arguments().parse_args()
    exposure = read_exposure(
        options.http,
        options.http_cert,
        options.http_key,
        insecure=options.http_insecure,
        origins=options.http_origin,
    )
    assert exposure is not None  # noqa: S101 - "off" starts none
    listeners = [socket.socket(fileno=number) for number in options.listener]
    app = Application(options.socket, exposure)
    serve(app, exposure, listeners, supervised=options.supervised)


def serve(
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    exposure: Exposure,
    listeners: Sequence[socket.socket],
    *,
    supervised: bool,
    bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
) -> None:
    """Serve an ASGI application on listening sockets until told to end, by stdin or a signal."""
    _raise_file_limit()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # What a client sends wrong is answered, and not logged.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        loop="none",
        http=BoundedHttp,
        ws=BoundedWebSocket,
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=bounds.ping_s,
        ws_ping_timeout=None,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(bounds.idle_s),
    )
    paths = [one.getsockname() for one in listeners if one.family == socket.AF_UNIX]
    uvloop.run(_run(config, bounds, listeners, _tls(exposure), supervised=supervised))
    for path in () if supervised else paths:
        Path(path).unlink(missing_ok=True)


async def _run(
    config: uvicorn.Config,
    bounds: Bounds,
    listeners: Sequence[socket.socket],
    tls: ssl.SSLContext | None,
    *,
    supervised: bool,
) -> None:
    """Do what `uvicorn.Server` does, which looks ten times a second; TLS is for TCP alone."""
    loop, state = asyncio.get_running_loop(), ServerState()
    ending, hurry = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if ending.is_set() else ending).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    dates = asyncio.create_task(_renew_date(state))
    config.load()
    lifespan = config.lifespan_class(config)
    await lifespan.startup()
    if lifespan.should_exit:
        sys.exit(1)
    connect = partial(
        BoundedHttp, bounds, config=config, server_state=state, app_state=lifespan.state
    )
    servers: list[asyncio.Server] = []
    for one in listeners:
        if one.family == socket.AF_UNIX:
            opening = loop.create_unix_server(connect, sock=one, backlog=BACKLOG, **FILE_STAYS)
        else:
            within_s = bounds.head_s if tls else None
            opening = loop.create_server(
                connect, sock=one, ssl=tls, ssl_handshake_timeout=within_s, backlog=BACKLOG
            )
        servers.append(await opening)
    if supervised:
        await loop.connect_read_pipe(partial(AsModule, ending.set), sys.stdin.buffer)
    await ending.wait()
    for server in servers:
        server.close()
    for one in listeners:
        one.close()
    for connection in tuple(state.connections):
        connection.shutdown()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PARTING_S):
            # Uvicorn keeps sets of them, and tells nobody.
            while (state.connections or state.tasks) and not hurry.is_set():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
    while state.connections:
        for connection in tuple(state.connections):
            connection.transport.abort()
        await asyncio.sleep(LOOK_S)
    for task in (dates, *state.tasks):
        task.cancel()
    await lifespan.shutdown()


async def _renew_date(state: ServerState) -> None:
    while True:
        state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        await asyncio.sleep(TICK_S)


class AsModule(asyncio.Protocol):
    """The supervised program, on stdin and stdout: a module without ops."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._unfinished = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            request = msgspec.json.decode(line)
            said = {"requestId": request["requestId"], **_ANSWERS[request["operation"]]}
            os.write(sys.stdout.fileno(), encode(said) + b"\n")

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end()


_ANSWERS: dict[str, dict[str, Any]] = {
    "health": {"status": "ok"},
    "describe": {
        "name": "supervisor/http",
        "version": VERSION,
        "kind": "tool",
        "capabilities": [],
        "inputs": {},
        "outputs": {},
    },
}


def _arguments() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="supervisor.edge.http")
    arguments.add_argument("--socket", type=Path, required=True)
    arguments.add_argument("--listener", type=int, action="append", required=True)
    arguments.add_argument("--supervised", action="store_true")
    arguments.add_argument("--http", default=SOCK)
    arguments.add_argument("--http-cert", type=Path)
    arguments.add_argument("--http-key", type=Path)
    arguments.add_argument("--http-insecure", action="store_true")
    arguments.add_argument("--http-origin", action="append", default=[])
    return arguments


def _tls(exposure: Exposure) -> ssl.SSLContext | None:
    if exposure.cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(exposure.cert, exposure.key)
    return context


def _raise_file_limit() -> None:
    """Take as many open files as may be had: modules get a daemon's lower limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
