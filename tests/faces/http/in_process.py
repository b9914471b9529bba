"""HTTP clients of a daemon within the test's own process, for tests that need its inside."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from supervisor.faces.admission import Admission
from supervisor.faces.http.serving import Door, listening, serve
from supervisor.kernel.kernel import Kernel
from supervisor.policy.http_exposure import Exposure
from tests.faces.http.client import Client
from tests.kernel.tokens import made


class Served:
    """A daemon that is served over HTTP."""

    def __init__(self, daemon: Kernel, doors: list[Door], folder: Path) -> None:
        self.daemon = daemon
        self.doors = doors
        self._path = folder / "http.sock"

    @asynccontextmanager
    async def unix(self) -> AsyncIterator[Client]:
        async with await trio.open_unix_socket(self._path) as stream:
            yield Client(stream)

    @asynccontextmanager
    async def tcp(self, trusted: Path | None = None) -> AsyncIterator[Client]:
        port = self.doors[-1].listener.getsockname()[1]
        stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
        if trusted is not None:
            context = ssl.create_default_context(cafile=trusted)
            tls = trio.SSLStream(
                stream, context, server_hostname="localhost", https_compatible=True
            )
            async with tls:
                yield Client(tls)
            return
        async with stream:
            yield Client(stream)

    async def token(self, **args: Any) -> str:
        said: str = (await made(self.daemon, **args))["token"]
        return said


@asynccontextmanager
async def served(
    daemon: Kernel, folder: Path, exposure: Exposure | None = None
) -> AsyncIterator[Served]:
    """Serve a daemon on `http.sock`, and at an address if one is given."""
    with listening(exposure or Exposure(), folder / "stdiod.sock") as doors:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, daemon, doors, Admission.of(daemon.facts))
            yield Served(daemon, doors, folder)
            nursery.cancel_scope.cancel()


LOOPBACK = Exposure(host="127.0.0.1", port=0)
