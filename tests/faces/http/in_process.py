"""HTTP clients of a daemon within the test's own process, for tests that need its inside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from supervisor.faces.admission import Admission
from supervisor.faces.http.serving import Door, listening, serve
from supervisor.kernel.kernel import Kernel
from supervisor.policy.http_exposure import Exposure
from tests.faces.http.client import Client


class Served:
    """A daemon that is served over HTTP."""

    def __init__(self, doors: list[Door], folder: Path) -> None:
        self.doors = doors
        self._path = folder / "http.sock"

    @asynccontextmanager
    async def unix(self) -> AsyncIterator[Client]:
        async with await trio.open_unix_socket(self._path) as stream:
            yield Client(stream)


@asynccontextmanager
async def served(
    daemon: Kernel, folder: Path, exposure: Exposure | None = None
) -> AsyncIterator[Served]:
    """Serve a daemon on `http.sock`, and at an address if one is given."""
    with listening(exposure or Exposure(), folder / "stdiod.sock") as doors:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, daemon, doors, Admission.of(daemon.facts))
            yield Served(doors, folder)
            nursery.cancel_scope.cancel()


LOOPBACK = Exposure(host="127.0.0.1", port=0)
