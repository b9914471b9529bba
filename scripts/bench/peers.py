"""The peers that are programs of their own: how they are installed, and how they are measured.

`python -m scripts.bench.peers` installs them, from PyPI into .venv-peers, each in an environment of
its own, and from Debian if that is allowed. None is a must: for one that cannot be installed the
reason is kept, and the page gives it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import trio

from scripts import foreign
from scripts.bench import rows
from scripts.bench.rows import Cost, Row, Sample, rate
from scripts.bench.workshop import PEERS, PROGRAMS, Workshop
from scripts.checkout import COMMAND_WITHIN_S

PACKAGES: Final = ("mcp", "supervisor", "circus")
S6: Final = "s6"
HOW: Final = "not installed; `make bench-peers` does that"

Figure = Callable[[Row, str, int, Cost], Sample]

SLOW_PEER: Final = 10
"""A peer that makes a tenth of our calls is given a tenth of them: the unit is calls per second."""
SLOW_PEERS: Final = 40
"""The same where both ends are slow."""


def program(package: str, name: str, folder: Path = PEERS) -> Path:
    """Return the path that a program of a package has if it is installed."""
    return folder / package / "bin" / name


def version(package: str, folder: Path = PEERS) -> str | None:
    """Return the version of what is installed, or None."""
    site = [str(path) for path in (folder / package).glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(name=package, path=site) if site else ()
    return next((one.version for one in found), None)


def why_missing(package: str, folder: Path = PEERS) -> str:
    """Return what the installation left as its reason, or how to try."""
    note = _note(package, folder)
    return (note.read_text(encoding="utf-8").strip() if note.exists() else "") or HOW


def install(folder: Path = PEERS) -> None:
    """Install what is missing of all peers."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if version(package, folder) is None:
            why = foreign.Environment(folder / package, (package,)).install()
            _note(package, folder).write_text(why or "", encoding="utf-8")
    if shutil.which("s6-svscan") is None:
        _note(S6, folder).write_text(_install_s6(), encoding="utf-8")


def _install_s6() -> str:
    """Install Debian's package, which runs from /usr/bin only; return why that was not possible."""
    if shutil.which("apt-get") is None:
        return "no `s6-svscan` in PATH, and there is no apt-get here"
    if os.geteuid() != 0:
        return "no `s6-svscan` in PATH, and apt-get needs root"
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", S6]
    try:
        return foreign.run(apt) or ""
    except subprocess.TimeoutExpired as error:
        return str(error)


def _note(package: str, folder: Path) -> Path:
    return folder / f"{package}.missing"


_PINGPONG: Final = {
    rows.C: "pingpong",
    rows.BARE: "trio_pingpong.py",
    rows.ASYNCIO: "asyncio_pingpong.py",
    rows.NODE: "pingpong.js",
}
_RELAYS: Final = {rows.RELAY: "relay.py", rows.NODE_RELAY: "relay.js"}
BESIDE: Final[dict[Row, dict[str, str]]] = {
    rows.STREAM: {
        rows.RAW: "raw_stream.py",
        rows.ASYNCIO: "asyncio_stream.py",
        rows.NODE: "stream.js",
    },
    rows.INVOKE_ONE: _PINGPONG,
    rows.INVOKE_MANY: _PINGPONG,
    rows.TOOL: {
        rows.C: "spawn_loop",
        rows.TRIO: "trio_spawn_loop.py",
        rows.NODE: "spawn_loop.js",
    },
    rows.SOCKET_ONE: _RELAYS,
    rows.SOCKET_MANY: _RELAYS,
    rows.RELAYED: {rows.NODE_RELAY: "relay.js"},
}
"""The programs that do the work of a row without us; those in C are named as they are compiled."""


def command(workshop: Workshop, name: str) -> list[str]:
    """Return what runs a program; empty if its language is missing."""
    if name.endswith(".py"):
        return [sys.executable, str(PROGRAMS / name)]
    if name.endswith(".js"):
        return [] if workshop.node is None else [workshop.node, str(PROGRAMS / name)]
    return [workshop.program(name)]


def commands(workshop: Workshop, row: Row) -> dict[str, list[str]]:
    """Return what runs the peers of a row; one whose language is missing is left out."""
    found = {name: command(workshop, program) for name, program in BESIDE[row].items()}
    return {name: words for name, words in found.items() if words}


async def beside(
    workshop: Workshop, row: Row, count: int, *arguments: str, figure: Figure = rate
) -> list[Sample]:
    """Have the peers of a row do something `count` times."""
    return [
        await _peer(row, name, count, [*words, str(count), *arguments], figure)
        for name, words in commands(workshop, row).items()
    ]


async def _peer(
    row: Row, name: str, count: int, words: Sequence[str], figure: Figure = rate
) -> Sample:
    """Run a peer, which prints what it took (s), by the clock and of its own CPU.

    It begins with a quarter as much, to warm up.
    """
    try:
        with trio.fail_after(COMMAND_WITHIN_S):
            done = await trio.run_process(words, capture_stdout=True, capture_stderr=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").split("\n")
        last = next((line for line in reversed(said) if line.strip()), "it said nothing")
        return Sample(row.title, name, None, f"ended with {error.returncode}: {last}")
    except trio.TooSlowError:
        return Sample(row.title, name, None, f"did not end in {COMMAND_WITHIN_S:.0f} s")
    return figure(row, name, count, Cost(*map(float, done.stdout.split())))


async def with_sdk(
    workshop: Workshop, row: Row, count: int, window: int, *, both_ends: bool = False
) -> list[Sample]:
    """Have the MCP SDK's client call a tool, of a server in C or of the SDK's own."""
    if version("mcp", workshop.peers) is None:
        return []
    python = str(program("mcp", "python", workshop.peers))
    native = [workshop.program("mcp_echo")]
    server = [python, str(PROGRAMS / "mcp_server.py")] if both_ends else native
    calls = max(count // (SLOW_PEERS if both_ends else SLOW_PEER), window)
    words = [python, str(PROGRAMS / "mcp_host.py"), str(calls), str(window), *server]
    return [await _peer(row, rows.MCP_BOTH if both_ends else rows.MCP, calls, words)]


if __name__ == "__main__":
    install()
    for missing in (*PACKAGES, S6):
        if (reason := why_missing(missing)) != HOW:
            print(f"peers: {missing} could not be installed: {reason}", file=sys.stderr)
