"""Run the peers that are programs of their own: each prints what its work took (s).

The first figure is by the clock, the second of its own CPU. Each begins with a quarter as much, to
warm up.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

import trio

from scripts.bench.rows import MCP, MCP_BOTH, Cost, Row, Sample, rate
from scripts.bench.sizes import SLOW_PEER, SLOW_PEERS
from scripts.bench.workshop import PROGRAM_WITHIN_S, PROGRAMS, Workshop
from scripts.peers import environments

Figure = Callable[[Row, str, int, Cost], Sample]


async def peer(
    row: Row, name: str, count: int, command: Sequence[str], figure: Figure = rate
) -> Sample:
    """Have a peer do something `count` times."""
    try:
        return figure(row, name, count, await _cost(command))
    except (subprocess.CalledProcessError, trio.TooSlowError) as error:
        return Sample(row.title, name, None, _why(error))


async def with_sdk(
    workshop: Workshop, row: Row, count: int, window: int, *, both_ends: bool = False
) -> list[Sample]:
    """Have the MCP SDK's client call a tool, of a server in C or of the SDK's own."""
    if environments.version("mcp", workshop.peers) is None:
        return []
    python = str(environments.program("mcp", "python", workshop.peers))
    native = [workshop.program("mcp_echo")]
    server = [python, str(PROGRAMS / "mcp_server.py")] if both_ends else native
    calls = max(count // (SLOW_PEERS if both_ends else SLOW_PEER), window)
    command = [python, str(PROGRAMS / "mcp_host.py"), str(calls), str(window), *server]
    return [await peer(row, MCP_BOTH if both_ends else MCP, calls, command)]


async def _cost(command: Sequence[str]) -> Cost:
    with trio.fail_after(PROGRAM_WITHIN_S):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    return Cost(*map(float, done.stdout.split()))


def _why(error: subprocess.CalledProcessError | trio.TooSlowError) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"did not end in {PROGRAM_WITHIN_S:.0f} s"
    said = [line for line in error.stderr.decode(errors="replace").splitlines() if line.strip()]
    return f"ended with {error.returncode}: {said[-1] if said else 'it said nothing'}"
