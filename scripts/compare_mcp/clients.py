"""Compare many MCP clients of one fleet with as many that each start their own servers.

Run by `make compare-clients`. The clients are those of a machine in the morning: all at once, and
nothing runs yet. Each is ready once it has listed the tools of all servers, by `stdiod mcp` (one
process of its own, and a daemon that the first of them starts), or of each server that it started.
The server is `server.py`: the standard library only, so that it is small beside real ones.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import selectors
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from scripts.compare_mcp.server import TOOLS
from scripts.compare_mcp.table import say, written_into

PAGE = Path(__file__).parents[2] / "docs" / "mcp-clients.md"
BEGIN = "<!-- clients: written by make compare-clients -->"
END = "<!-- /clients -->"

SERVER = Path(__file__).with_name("server.py")
CLIENTS, SERVERS = 20, 40
WITHIN_S = 300.0
MARKER = "XDG_STDIOD_COMPARED"
"""Names all processes of a turn: a module's environment has all XDG_ variables."""

INFO = {"name": "compared", "version": "1"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}


class Lived(NamedTuple):
    """What a turn came to."""

    ready_s: float
    """From the first start until all clients are ready."""
    next_s: float
    """The same, of one client that comes after them."""
    processes: int
    pss_bytes: int
    cpu_s: float
    """Used by all processes by the time that all are ready."""


class Turn(ABC):
    """The clients of one kind, from their start to their end."""

    title: str

    def __init__(self, folder: Path, servers: int) -> None:
        """Prepare the servers."""
        self.folder = folder
        self.servers = servers
        self.environment = {**os.environ, MARKER: uuid.uuid4().hex}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "births").mkdir()
        self.server = [sys.executable, "-I", "-S", str(SERVER), str(folder / "births")]

    @abstractmethod
    def commands(self) -> list[list[str]]:
        """Return what a client starts."""

    @abstractmethod
    def tools(self) -> int:
        """Return how many tools each of these has."""

    def begin(self, clients: int) -> None:
        """Start clients, all at once; returns when all are ready, raises `TimeoutError`."""
        started = [self._start(one) for _ in range(clients) for one in self.commands()]
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for one in started:
                assert one.stdout is not None
                selector.register(one.stdout, selectors.EVENT_READ, one)
            ends_s = time.monotonic() + WITHIN_S
            while selector.get_map():
                for key, _ in selector.select(ends_s - time.monotonic()):
                    if self._told(key.data):
                        selector.unregister(key.fileobj)
                if time.monotonic() > ends_s:
                    raise TimeoutError(f"not all clients were ready in {WITHIN_S:.0f} s")

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._started.append(process)
        _write(process, {"id": "hello", "method": "initialize", "params": HELLO})
        return process

    def _told(self, process: subprocess.Popen[bytes]) -> bool:
        """Take an answer; tells whether it was the last."""
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        match answer.get("id"):
            case "hello":
                _write(process, {"method": "notifications/initialized"})
                _write(process, {"id": "list", "method": "tools/list", "params": {}})
            case "list":
                assert len(answer["result"]["tools"]) == self.tools()
                return True
        return False

    def processes(self) -> list[psutil.Process]:
        """Return all that live."""
        named = self.environment[MARKER]
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARKER) == named:
                    # A helper of the daemon's may have an environment of its own.
                    found |= {one.pid: one for one in (process, *process.children())}
        return list(found.values())

    def end(self) -> None:
        """End them."""
        for one in self._started:
            one.kill()
            one.communicate()


def _write(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


class Shared(Turn):
    """Clients that start `stdiod mcp`."""

    title = "`stdiod mcp`"

    def commands(self) -> list[list[str]]:
        """Return one command."""
        modules = self.folder / "modules"
        if not modules.exists():
            modules.mkdir()
            transport = {"type": "stdio", "protocol": "mcp", "command": self.server}
            for number in range(self.servers):
                document = {"name": f"m{number}", "kind": "tool", "transport": transport}
                (modules / f"m{number}.json").write_text(json.dumps(document), encoding="utf-8")
            self.environment["STDIOD_SOCKET"] = str(self.folder / "socket")
            self.environment["STDIOD_DATA_DIR"] = str(self.folder / "data")
        return [[*_stdiod(), "mcp", str(modules)]]

    def tools(self) -> int:
        """Return those of all servers."""
        return len(TOOLS) * self.servers

    def end(self) -> None:
        """End the daemon, too."""
        super().end()
        down = [*_stdiod(), "down"]
        subprocess.run(down, env=self.environment, check=True, capture_output=True)


def _stdiod() -> list[str]:
    installed = Path(sys.executable).with_name("stdiod")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "supervisor.cli"]


class Alone(Turn):
    """Clients that start their own servers."""

    title = "each its own servers"

    def commands(self) -> list[list[str]]:
        """Return that of each server."""
        return [self.server] * self.servers

    def tools(self) -> int:
        """Return those of a server."""
        return len(TOOLS)


def lived(kind: type[Turn], clients: int, servers: int) -> Lived:
    """Have clients of a kind live, and look at them."""
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder:
        turn = kind(Path(folder), servers)
        try:
            began_s = time.monotonic()
            turn.begin(clients)
            ready_s = time.monotonic() - began_s
            alive = turn.processes()
            cpu_s = sum(sum(one.cpu_times()[:2]) for one in alive)
            pss_bytes = sum(one.memory_full_info().pss for one in alive)
            began_s = time.monotonic()
            turn.begin(1)
            next_s = time.monotonic() - began_s
        finally:
            turn.end()
    return Lived(ready_s, next_s, len(alive), pss_bytes, cpu_s)


def table(clients: int, servers: int) -> str:
    """Measure, and return what came of it."""
    load = os.getloadavg()[0]
    found = {}
    for kind in (Shared, Alone):
        say(f"{clients} clients, {servers} servers: {kind.title}")
        found[kind.title] = lived(kind, clients, servers)
    return "\n".join(_lines(found, clients, servers, load))


def _lines(found: dict[str, Lived], clients: int, servers: int, load: float) -> Iterator[str]:
    yield f"| {clients} clients, {servers} servers | {' | '.join(found)} |"
    yield f"|---|{'---|' * len(found)}"
    rows = {
        "processes": [str(one.processes) for one in found.values()],
        "memory of them all (PSS)": [f"{one.pss_bytes / 1e6:,.0f} MB" for one in found.values()],
        "until each client has all tools": [f"{one.ready_s:.1f} s" for one in found.values()],
        "CPU time until then": [f"{one.cpu_s:.1f} s" for one in found.values()],
        "until one more client has them": [f"{one.next_s:.2f} s" for one in found.values()],
    }
    for title, cells in rows.items():
        yield f"| {title} | {' | '.join(cells)} |"
    date = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"
    yield ""
    yield (
        f"Measured on {date}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {load:.1f} as it began. Nothing runs before the "
        "first client; the servers are as small as a Python program gets."
    )


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.compare_mcp.clients")
    parser.add_argument("--write", action="store_true", help="write it into docs/mcp-clients.md")
    options = parser.parse_args()
    said = f"{table(CLIENTS, SERVERS)}\n"
    sys.stdout.write(said)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written_into(page, said, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
