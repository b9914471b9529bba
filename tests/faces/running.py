"""A daemon as a process, and a client of each of its faces: the fixture of their suites.

What serves HTTP and MCP, and in which process, is nothing to the tests: they start a daemon
(`tests.system.daemon.Daemon`), and ask it through its sockets alone. Tests that need its inside use
`tests.faces.in_process`, and are listed in `tests/inner_access.txt`.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.bounds import wait_until
from tests.faces import lines
from tests.faces.http.client import Client
from tests.faces.mcp.clients import McpClient
from tests.system.daemon import Daemon
from tests.system.descriptors import actor
from tests.system.liveness import BOUND_S

SOCK, LOOPBACK = "sock", "127.0.0.1:0"
"""Where HTTP is served, if a test asks for that."""
UNREAD_BYTES = 1 << 20
"""With so much unread, a client has its modules wait."""
ENDLESS = {"count": 1_000_000, "pad": "x" * 1000}
"""Has a module say more events than anybody waits for."""
PERMISSIVE = 'mode = "permissive"\n'
"""A policy that grants a module what its descriptor asks for."""


class Running:
    """A daemon, and the ways to it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    @property
    def address(self) -> str:
        """The URL that it serves over TCP, or the path of its HTTP socket."""
        address: str = self.daemon.op("status")["daemon"]["http"]
        return address

    @asynccontextmanager
    async def unix(self) -> AsyncIterator[Client]:
        """Connect to the HTTP socket."""
        async with await trio.open_unix_socket(self.daemon.folder / "http.sock") as stream:
            yield Client(stream)

    @asynccontextmanager
    async def tcp(self, trusted: Path | None = None) -> AsyncIterator[Client]:
        """Connect to the HTTP address; over TLS if a certificate is `trusted`."""
        port = int(self.address.rpartition(":")[2])
        stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
        if trusted is not None:
            context = ssl.create_default_context(cafile=trusted)
            stream = trio.SSLStream(
                stream, context, server_hostname="localhost", https_compatible=True
            )
        async with stream:
            yield Client(stream)

    @asynccontextmanager
    async def lines(self) -> AsyncIterator[lines.Client]:
        """Connect to the control socket."""
        async with await trio.open_unix_socket(self.daemon.socket) as stream:
            yield lines.Client(stream)

    @asynccontextmanager
    async def mcp(
        self, view: str | None = None, scopes: list[str] | None = None
    ) -> AsyncIterator[McpClient]:
        """Connect to the control socket, for MCP; `scopes` narrow what the client may."""
        async with self.lines() as client:
            if scopes is not None:
                args: dict[str, Any] = {"op": "narrow", "args": {"scopes": scopes}}
                await client.send(lines.request("narrow", "supervisor", **args))
                assert (await client.done())["ok"]
            named = {} if view is None else {"view": view}
            await client.send(lines.request("mcp", "supervisor", op="mcp", args=named))
            assert (await client.done())["ok"]
            yield McpClient(client)

    @asynccontextmanager
    async def bridge(self, view: str | None = None) -> AsyncIterator[McpClient]:
        """Run `stdiod mcp`, as MCP clients do."""
        words = ["mcp", "--socket", str(self.daemon.socket)]
        words += [] if view is None else ["--view", view]
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, "-m", "supervisor.cli", *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            async with trio.StapledStream(process.stdin, process.stdout) as stream:
                yield McpClient(lines.Client(stream))

    async def token(self, **args: Any) -> str:
        """Make a token, and return it."""
        token: str = self.daemon.op("token.new", **{"name": "ada", **args})["token"]
        return token

    async def has_in_flight(self, wanted: int, module: str = "m") -> None:
        """Wait until a module serves so many calls."""
        await wait_until(
            lambda: self.daemon.status(module)["in_flight"] == wanted,
            f"{module} serving {wanted} calls",
        )

    @property
    def held_bytes(self) -> int:
        """What it holds for others in memory."""
        held: int = self.daemon.op("status")["daemon"]["held_bytes"]["total"]
        return held

    async def holds_unread(self) -> None:
        """Wait until as much waits for a client that does not read as may."""
        await wait_until(
            lambda: self.held_bytes >= UNREAD_BYTES, f"{UNREAD_BYTES} bytes that nobody reads"
        )

    @property
    def gateway_files(self) -> int:
        """How many files the gateway has open."""
        (gateway,) = self.daemon.op("status")["http"]["instances"]
        return len(list(Path(f"/proc/{gateway['pid']}/fd").iterdir()))

    async def gateway_parts(self, files: int) -> None:
        """Wait until the gateway has no more than so many files open."""
        await wait_until(
            lambda: self.gateway_files <= files,
            f"the gateway having no more than {files} descriptors open",
        )

    async def is_alone(self) -> None:
        """Wait until the fixture's own client is the only one."""
        await wait_until(
            lambda: self.daemon.op("status")["daemon"]["connections"]["open"] <= 1,
            "the end of the other clients",
        )


@contextmanager
def started(
    *modules: dict[str, Any],
    http: str = "off",
    options: tuple[str, ...] = (),
    views: Mapping[str, Mapping[str, Any]] | None = None,
    policy: str = "",
    config: str = "",
) -> Iterator[Running]:
    """Run a daemon of these modules; `policy` and `config` are the texts of these files.

    `views` are those of MCP clients, by name, for the configuration.
    """
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        folder = Path(name)
        more = [*options, "--http", http]
        if config or views:
            file = folder / "stdiod.toml"
            tables = (_view(named, view) for named, view in (views or {}).items())
            file.write_text(config + "".join(tables))
            more += ["--config", str(file)]
        if policy:
            file = folder / "policy.toml"
            file.write_text(policy)
            more += ["--policy", str(file)]
        with Daemon(folder, *modules, options=tuple(more)) as daemon:
            yield Running(daemon)


@asynccontextmanager
async def running(*modules: dict[str, Any], **options: Any) -> AsyncIterator[Running]:
    """Run a daemon as `started` does, beside other asynchronous contexts."""
    with started(*modules, **options) as daemon:
        yield daemon


async def written_until_not_read(daemon: Running, client: lines.Client, line: bytes) -> int:
    """Have a client write a line over and over, until that is not read; returns its bytes."""
    written = 0

    async def pour() -> None:
        nonlocal written
        while True:
            await client.send(line * 100)
            written += 100 * len(line)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pour)
        before = -1
        while written != before:
            before = written
            for _ in range(20):
                await trio.lowlevel.checkpoint()
                assert daemon.daemon.client.ask("supervisor", "health").ok
        nursery.cancel_scope.cancel()
    return written


@asynccontextmanager
async def flooded() -> AsyncIterator[tuple[Running, lines.Client]]:
    """Have a client of lines with an open request `flood` whose answers it does not read.

    Of two modules, `noisy` says them, and `quiet` does what its ops say.
    """
    patient = {"timeouts": {"exit_s": 0.1, "stop_s": BOUND_S}}
    modules = actor(name="noisy"), actor(name="quiet", supervision=patient)
    async with running(*modules) as daemon, daemon.lines() as client:
        await client.send(lines.request("flood", "noisy", op="events", args=ENDLESS))
        await daemon.holds_unread()
        yield daemon, client


def _view(name: str, view: Mapping[str, Any]) -> str:
    fields = "".join(f"{key} = {_toml(value)}\n" for key, value in view.items())
    return f"[mcp.views.{name}]\n{fields}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
