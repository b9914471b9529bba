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

from scripts import own_environment
from scripts.bench.rows import MCP, MCP_BOTH, Cost, Row, Sample, rate
from scripts.bench.workshop import PEERS, PROGRAM_WITHIN_S, PROGRAMS, Workshop

PACKAGES: Final = ("mcp", "supervisor", "circus")
S6: Final = "s6"
HOW: Final = "not installed; `make bench-peers` does that"

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
            why = own_environment.install(folder / package, (package,))
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
        return own_environment.run(apt) or ""
    except subprocess.TimeoutExpired as error:
        return str(error)


def _note(package: str, folder: Path) -> Path:
    return folder / f"{package}.missing"


async def peer(
    row: Row,
    name: str,
    count: int,
    command: Sequence[str],
    figure: Callable[[Row, str, int, Cost], Sample] = rate,
) -> Sample:
    """Have a peer do something `count` times, after a quarter as many.

    It prints what that took (s), by the clock and of its own CPU.
    """
    try:
        with trio.fail_after(PROGRAM_WITHIN_S):
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").split("\n")
        last = next((line for line in reversed(said) if line.strip()), "it said nothing")
        return Sample(row.title, name, None, f"ended with {error.returncode}: {last}")
    except trio.TooSlowError:
        return Sample(row.title, name, None, f"did not end in {PROGRAM_WITHIN_S:.0f} s")
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
    command = [python, str(PROGRAMS / "mcp_host.py"), str(calls), str(window), *server]
    return [await peer(row, MCP_BOTH if both_ends else MCP, calls, command)]


if __name__ == "__main__":
    install()
    for missing in (*PACKAGES, S6):
        if (reason := why_missing(missing)) != HOW:
            print(f"peers: {missing} could not be installed: {reason}", file=sys.stderr)
