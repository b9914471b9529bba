"""The scene of processes that were started before they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import psutil
import trio

from scripts.bench.in_process import ask
from scripts.bench.rows import COLD, OURS, WARM, WARM_SHUTDOWN, Row, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.supervised import cpu_ns
from scripts.bench.workshop import PROGRAMS, READY_WITHIN_S, Workshop, daemon
from supervisor.runtime.files.sources import scan

KEPT = 2
LOOK_EVERY_S = 0.05


async def warm(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Run a tool in Python cold and warm, with and without its interpreter's shutdown."""
    samples = await _compared(workshop, sizes, WARM, "quick")
    return samples + await _compared(workshop, sizes, WARM_SHUTDOWN)


async def _compared(workshop: Workshop, sizes: Sizes, row: Row, *words: str) -> list[Sample]:
    """Run the tool cold and warm in turn; each warm one once all are warm again."""
    document = workshop.python_tool("warm", *words, warm=KEPT)
    refused = _refusal(workshop, document)
    documents = [workshop.python_tool("cold", *words), *([] if refused else [document])]
    cold_s: list[float] = []
    warm_s: list[float] = []
    async with daemon(workshop, *documents) as one:
        for _ in range(sizes.warm):
            if not refused:
                await _all_warm()
                warm_s.append((await ask(one, "warm", "run", 1, 1)).wall_s)
                # Its replacement is to start now, and not beside the cold one.
                await _all_warm()
            cold_s.append((await ask(one, "cold", "run", 1, 1)).wall_s)
    ours = (
        Sample(row.title, OURS, None, f"not supported yet: {refused}")
        if refused
        else Sample(row.title, OURS, median(warm_s) * 1000)
    )
    return [ours, Sample(row.title, COLD, median(cold_s) * 1000)]


def _refusal(workshop: Workshop, document: Mapping[str, Any]) -> str:
    """Return why a descriptor cannot be used; empty if it can."""
    found = scan([workshop.descriptors(document)])
    return "; ".join(one.reason for one in found.quarantined)


async def _all_warm() -> None:
    """Wait until there are so many processes, and all wait for their input."""
    with trio.fail_after(READY_WITHIN_S):
        before: Mapping[str, int] = {}
        while True:
            tools = _tools()
            asleep = len(tools) >= KEPT and all(map(_sleeps, tools))
            now = cpu_ns(tools) if asleep else {}
            if now and now == before:
                return
            before = now
            await trio.sleep(LOOK_EVERY_S)


def _tools() -> list[psutil.Process]:
    """Return the processes of the tool."""
    program = str(PROGRAMS / "tool.py")
    children = psutil.Process().children(recursive=True)
    return [process for process in children if program in _command(process)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _sleeps(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_SLEEPING)
    except psutil.NoSuchProcess:
        return False
