"""The scene of warm processes: the same Python tool, started for the request and before it.

An answer counts once the process has exited with 0, so an interpreter that takes long to shut down
delays it, warm or not. That is measured in a row of its own, with a tool that leaves it at that.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Final

import trio

from scripts.bench.in_process import ask
from scripts.bench.rows import COLD, OURS, WARM, WARM_SHUTDOWN, Row, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAMS, Workshop, daemon, descriptor
from supervisor.runtime.module import Module

LOADED_AFTER_S: Final = 0.5
"""By then a process has loaded what it needs, and waits; how soon is not what is measured."""

LOOK_S: Final = 0.01


async def warm(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Ask a cold and a warm module in turn, each time with a process that has got to wait."""
    quick = await _compare(workshop, sizes, WARM, "quick")
    return quick + await _compare(workshop, sizes, WARM_SHUTDOWN)


async def _compare(workshop: Workshop, sizes: Sizes, row: Row, *words: str) -> list[Sample]:
    command = [sys.executable, str(PROGRAMS / "tool.py"), *words]
    cold = descriptor("cold", command, protocol="narratoria")
    kept = descriptor("warm", command, protocol="narratoria")
    kept["supervision"] = {"warm": 1}
    took: dict[str, list[float]] = {"cold": [], "warm": []}
    async with daemon(workshop, cold, kept) as one:
        for _ in range(sizes.warm_calls):
            await _waiting(one.fleet.modules["warm"])
            for name, times in took.items():
                times.append(await ask(one, name, "run", 1, 1))
    return [
        Sample(row.title, COLD, median(took["cold"]) * 1000),
        Sample(row.title, OURS, median(took["warm"]) * 1000),
    ]


async def _waiting(module: Module) -> None:
    while True:
        life = module.slot.life
        instances = [] if life is None else life.instances()
        if any(one.state == "warm" and one.uptime_s > LOADED_AFTER_S for one in instances):
            return
        await trio.sleep(LOOK_S)
