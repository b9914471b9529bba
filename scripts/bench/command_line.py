"""The scene of the command's own time: alone, asking a daemon, and as an MCP client's server."""

from __future__ import annotations

from statistics import median

import trio

from scripts.bench.rows import (
    MCP_ENTRY,
    MCP_FIRST,
    OURS,
    STATUS,
    STATUS_CPU,
    VERSION,
    VERSION_CPU,
    Sample,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Stdiod, Workshop


async def command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Run verbs, again and again."""
    return await trio.to_thread.run_sync(_command, workshop, sizes)


def _command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    stdiod = Stdiod(workshop, workshop.python_tool("one"), workshop.python_tool("two"))
    samples: list[Sample] = []
    try:
        first_s = stdiod.entry_s()
        stdiod.run("wait", "one", "two")
        for verb, wall, cpu in (
            ("--version", VERSION, VERSION_CPU),
            ("status", STATUS, STATUS_CPU),
        ):
            costs = [stdiod.cost(verb) for _ in range(sizes.commands)]
            samples += [
                Sample(wall.title, OURS, median(cost.wall_s for cost in costs) * 1000),
                Sample(cpu.title, OURS, median(cost.cpu_s for cost in costs) * 1000),
            ]
        entry_s = median(stdiod.entry_s() for _ in range(sizes.commands))
    finally:
        stdiod.end()
    return [
        *samples,
        Sample(MCP_ENTRY.title, OURS, entry_s * 1000),
        Sample(MCP_FIRST.title, OURS, first_s * 1000),
    ]
