"""The scenes that look from outside: 200 modules under one daemon, and the command's own time."""

from __future__ import annotations

import json
import time
from statistics import median

import psutil
import trio

from scripts.bench.rows import (
    FLEET_IDLE,
    FLEET_MEMORY,
    FLEET_START,
    FLEET_STOP,
    OURS,
    STATUS,
    VERSION,
    Sample,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Stdiod, Workshop

FLEET = 200


async def fleet(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Start 200 modules, watch the daemon do nothing, stop them."""
    return await trio.to_thread.run_sync(_fleet, workshop, sizes)


def _fleet(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    stdiod = Stdiod(workshop, *(workshop.native(f"idle-{n:03}") for n in range(FLEET)))
    data = ("--data-dir", str(stdiod.folder / "data"))
    try:
        start_s = stdiod.time("up", str(stdiod.folder), *data)
        status = json.loads(stdiod.run("status", "--json"))
        states = [module["state"] for module in status["modules"]]
        assert states == ["ready"] * FLEET, states
        daemon = psutil.Process(status["daemon"]["pid"])
        cpu, since = _cpu_s(daemon), time.perf_counter()
        time.sleep(sizes.idle_s)
        idle = (_cpu_s(daemon) - cpu) / (time.perf_counter() - since)
        memory = daemon.memory_info().rss
        stop_s = stdiod.time("down")
        assert _is_gone(daemon), "down returned and the daemon still runs"
    finally:
        stdiod.down()
    return [
        Sample(FLEET_START.title, OURS, start_s),
        Sample(FLEET_IDLE.title, OURS, idle * 100),
        Sample(FLEET_MEMORY.title, OURS, memory / 1e6),
        Sample(FLEET_STOP.title, OURS, stop_s),
    ]


async def command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Time the command itself: alone, and asking a daemon."""
    return await trio.to_thread.run_sync(_command, workshop, sizes)


def _command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    stdiod = Stdiod(workshop, workshop.native(), workshop.tool())
    try:
        stdiod.up()
        version_s = median(stdiod.time("--version") for _ in range(sizes.commands))
        status_s = median(stdiod.time("status") for _ in range(sizes.commands))
    finally:
        stdiod.down()
    return [
        Sample(VERSION.title, OURS, version_s * 1000),
        Sample(STATUS.title, OURS, status_s * 1000),
    ]


def _is_gone(process: psutil.Process) -> bool:
    try:
        # Its parent is the system's first process, which may take its time to reap it.
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
