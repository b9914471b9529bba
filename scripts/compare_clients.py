"""Compare many MCP clients of one fleet with as many that each start their own servers.

Run by `make compare-clients`. The clients are those of a machine in the morning: all at once, and
nothing runs yet. Each is ready once it has listed the tools of all servers, by `stdiod mcp` (one
process of its own, and a daemon that the first of them starts), or of each server that it started.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from scripts.checkout import ROOT, STDIOD, Stdiod

PAGE = ROOT / "docs" / "mcp-clients.md"
BEGIN = "<!-- clients: written by make compare-clients -->"
END = "<!-- /clients -->"
SERVER = ROOT / "scripts" / "bench" / "programs" / "small_mcp_server.py"
TOOLS = 3
"""Of each server."""

CLIENTS, SERVERS = 20, 40
WITHIN_S = 300.0
INFO = {"name": "compared", "version": "1"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}


class Found(NamedTuple):
    """What was measured of the clients of one kind."""

    processes: int
    pss_bytes: int
    ready_s: float
    """From the first start until all clients are ready."""
    cpu_s: float
    """Used by all processes by the time that all clients are ready."""
    next_s: float
    """From the start of one more client until it is ready."""


class Turn:
    """The clients of one kind, from their start to their end."""

    def __init__(self, folder: Path, servers: int, *, shared: bool) -> None:
        """With `shared`, a client is one `stdiod mcp`; else it is a process for each server."""
        self.shared = shared
        self.started: list[subprocess.Popen[bytes]] = []
        self.stdiod = Stdiod(folder)
        server = [sys.executable, "-I", "-S", str(SERVER)]
        self.commands, self.tools = [server] * servers, TOOLS
        if shared:
            transport = {"type": "stdio", "protocol": "mcp", "command": server}
            for number in range(servers):
                document = {"name": f"m{number}", "kind": "tool", "transport": transport}
                (folder / f"m{number}.json").write_text(json.dumps(document), encoding="utf-8")
            self.commands, self.tools = [[*STDIOD, "mcp", str(folder)]], TOOLS * servers

    def start(self, clients: int) -> float:
        """Start clients, all at once; return how long it took until all were ready (s)."""
        began_s = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for command in self.commands * clients:
                process = self._started(command)
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, process)
            while selector.get_map():
                ready = selector.select(began_s + WITHIN_S - time.monotonic())
                if not ready:
                    raise TimeoutError(f"not all clients were ready in {WITHIN_S:.0f} s")
                for key, _ in ready:
                    if self._has_tools(key.data):
                        selector.unregister(key.fileobj)
        return time.monotonic() - began_s

    def processes(self) -> set[psutil.Process]:
        """Return all processes that live: of the clients, and of the daemon that they share."""
        pids = [process.pid for process in self.started]
        if self.shared:
            pids.append(self.stdiod.status()["daemon"]["pid"])
        tops = [psutil.Process(pid) for pid in pids]
        return {one for top in tops for one in (top, *top.children(recursive=True))}

    def end(self) -> None:
        """End the clients and the daemon."""
        for process in self.started:
            process.kill()
            process.communicate()
        if self.shared:
            self.stdiod.end()

    def _started(self, command: list[str]) -> subprocess.Popen[bytes]:
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            command, env=self.stdiod.environment, stdin=pipe, stdout=pipe, stderr=quiet
        )
        self.started.append(process)
        _write(process, {"id": "hello", "method": "initialize", "params": HELLO})
        return process

    def _has_tools(self, process: subprocess.Popen[bytes]) -> bool:
        """Take a message of a client's server; whether it is the list of tools."""
        assert process.stdout is not None
        message = json.loads(process.stdout.readline())
        match message.get("id"):
            case "hello":
                _write(process, {"method": "notifications/initialized"})
                _write(process, {"id": "list", "method": "tools/list", "params": {}})
            case "list":
                assert len(message["result"]["tools"]) == self.tools
                return True
        return False


def _write(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def measured(clients: int, servers: int, *, shared: bool) -> Found:
    """Start clients of a kind and look at their processes."""
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder, contextlib.ExitStack() as stack:
        turn = Turn(Path(folder), servers, shared=shared)
        stack.callback(turn.end)
        ready_s = turn.start(clients)
        processes = turn.processes()
        cpu_s = sum(sum(one.cpu_times()[:2]) for one in processes)
        pss_bytes = sum(one.memory_full_info().pss for one in processes)
        return Found(len(processes), pss_bytes, ready_s, cpu_s, turn.start(1))


def table(clients: int, servers: int) -> Iterator[str]:
    """Measure both kinds; yield the lines of the page."""
    load = os.getloadavg()[0]
    both = [measured(clients, servers, shared=shared) for shared in (True, False)]
    rows = {
        f"{clients} clients, {servers} servers": ("`stdiod mcp`", "each its own servers"),
        "---": ("---", "---"),
        "processes": [f"{one.processes}" for one in both],
        "memory of them all (PSS)": [f"{one.pss_bytes / 1e6:,.0f} MB" for one in both],
        "until each client has all tools": [f"{one.ready_s:.1f} s" for one in both],
        "CPU time until then": [f"{one.cpu_s:.1f} s" for one in both],
        "until one more client has them": [f"{one.next_s:.2f} s" for one in both],
    }
    for title, cells in rows.items():
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    yield (
        f"Measured on {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load {load:.1f} as it "
        "began. Nothing runs before the first client; the servers are as small as a Python program "
        "gets."
    )


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="compare_clients", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it into docs/mcp-clients.md")
    options = parser.parse_args()
    text = "\n".join(table(CLIENTS, SERVERS)) + "\n"
    sys.stdout.write(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
