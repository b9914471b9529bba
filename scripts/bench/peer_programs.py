"""Run the peers that are programs of their own: each prints how long its work took (s).

The same of its own CPU may stand behind that.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import trio

from scripts.bench.rows import MCP, MCP_BOTH, Row, Sample
from scripts.bench.sizes import SLOW_PEER, SLOW_PEERS
from scripts.bench.workshop import PROGRAM_WITHIN_S, PROGRAMS, Workshop
from scripts.peers import environments


async def rate(row: Row, peer: str, count: int, command: Sequence[str]) -> Sample:
    """Have a peer do something `count` times; its figure is how often in a second."""
    try:
        took_s, *cpu_s = await _seconds(command)
        return Sample(
            row.title, peer, count / took_s, cpu_us=cpu_s[0] / count * 1e6 if cpu_s else None
        )
    except (subprocess.CalledProcessError, trio.TooSlowError) as error:
        return Sample(row.title, peer, None, _why(error))


async def each_ms(row: Row, peer: str, count: int, command: Sequence[str]) -> Sample:
    """Have a peer do something `count` times; its figure is how long one took (ms)."""
    try:
        return Sample(row.title, peer, (await _seconds(command))[0] / count * 1000)
    except (subprocess.CalledProcessError, trio.TooSlowError) as error:
        return Sample(row.title, peer, None, _why(error))


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
    return [await rate(row, MCP_BOTH if both_ends else MCP, calls, command)]


async def _seconds(command: Sequence[str]) -> list[float]:
    """Return how long it took by the clock and, if the program says so, of its own CPU."""
    with trio.fail_after(PROGRAM_WITHIN_S):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    return list(map(float, done.stdout.split()))


def _why(error: subprocess.CalledProcessError | trio.TooSlowError) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"did not end in {PROGRAM_WITHIN_S:.0f} s"
    said = [line for line in error.stderr.decode(errors="replace").splitlines() if line.strip()]
    return f"ended with {error.returncode}: {said[-1] if said else 'it said nothing'}"
