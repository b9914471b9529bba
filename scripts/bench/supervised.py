"""The scenes of whole daemons: a crash and many modules beside other supervisors, the command."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import trio

from scripts.bench import in_process, rows
from scripts.bench.findings import (
    FIRST,
    IDLE,
    INVOKE,
    LAZY,
    MEMORY,
    RELOAD,
    RUNNING,
    START,
    STOP,
    Point,
)
from scripts.bench.machine import cpu_ns
from scripts.bench.outside import connected, invoked
from scripts.bench.rows import OURS, Sample
from scripts.bench.sizes import Sizes
from scripts.bench.supervisors import OTHERS, Births, Supervisor, family, under
from scripts.bench.workshop import Measured, Workshop

ENDED_WITHIN_S = 20.0
FLEET = (rows.FLEET_START, rows.FLEET_IDLE, rows.FLEET_MEMORY, rows.FLEET_STOP)


class Lived(NamedTuple):
    """What a fleet took; `stop_s` is None where it did not end in time."""

    start_s: float
    idle: float
    pss_bytes: int
    stop_s: float | None


def others(workshop: Workshop) -> dict[str, type[Supervisor]]:
    """Return the other supervisors that are installed, by the name they have in rows."""
    return {name: kind for name, kind in OTHERS.items() if kind.version(workshop.peers)}


async def crash(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Kill modules, each one once: the first crash is what is measured."""
    samples = [await in_process.crash(workshop, sizes)]
    for name, kind in others(workshop).items():
        try:
            took_s = await trio.to_thread.run_sync(_crash, kind, workshop, sizes)
        except (TimeoutError, subprocess.SubprocessError) as error:
            samples.append(Sample(rows.CRASH.title, name, None, str(error)))
        else:
            samples.append(Sample(rows.CRASH.title, name, took_s * 1000))
    return samples


def _crash(kind: type[Supervisor], workshop: Workshop, sizes: Sizes) -> float:
    names = [f"victim-{number}" for number in range(sizes.peer_crashes)]
    took_s: list[float] = []
    with under(kind, workshop.peers, workshop.program("native"), names) as (_, births):
        births.wait_for(len(names))
        births.watch(sizes.ran_s)
        for number, victim in enumerate(births.alive(), start=len(names) + 1):
            began_s = time.monotonic()
            signal.pidfd_send_signal(victim.pidfd, signal.SIGKILL)
            births.wait_for(number)
            took_s.append(births.lives[-1].born_s - began_s)
    return median(took_s)


async def fleet(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Start many modules, watch the supervisor do nothing, stop them."""
    samples = list(_samples(OURS, await trio.to_thread.run_sync(_fleet, workshop, sizes)))
    for name, kind in others(workshop).items():
        try:
            lived = await trio.to_thread.run_sync(_other_fleet, kind, workshop, sizes)
        except (TimeoutError, subprocess.SubprocessError) as error:
            samples += [Sample(row.title, name, None, str(error)) for row in FLEET]
        else:
            samples += _samples(name, lived)
    return samples


def _samples(name: str, lived: Lived) -> Iterable[Sample]:
    yield Sample(rows.FLEET_START.title, name, lived.start_s)
    yield Sample(rows.FLEET_IDLE.title, name, lived.idle * 100)
    yield Sample(rows.FLEET_MEMORY.title, name, lived.pss_bytes / 1e6)
    why = "" if lived.stop_s is not None else f"did not end in {ENDED_WITHIN_S:.0f} s"
    yield Sample(rows.FLEET_STOP.title, name, lived.stop_s, why)


def _fleet(workshop: Workshop, sizes: Sizes) -> Lived:
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder, ExitStack() as stack:
        births = Births(Path(folder, "births"))
        stack.callback(births.close)
        names = [f"idle-{number:03}" for number in range(sizes.fleet)]
        stdiod = Measured(workshop, *(workshop.native(name, births=births.path) for name in names))
        stack.callback(stdiod.end)
        start_s = stdiod.up()
        births.wait_for(sizes.fleet)
        status = stdiod.status()
        states = {module["state"] for module in status["modules"]}
        assert states == {"ready"}, states
        idle, pss_bytes = watched(helpers_of(status["daemon"]["pid"], births), sizes.idle_s)
        stop_s = stdiod.cost("down").wall_s
        assert births.until(lambda: not births.alive(), ENDED_WITHIN_S), "processes are left"
    return Lived(start_s, idle, pss_bytes, stop_s)


def _other_fleet(kind: type[Supervisor], workshop: Workshop, sizes: Sizes) -> Lived:
    names = [f"idle-{number:03}" for number in range(sizes.fleet)]
    with under(kind, workshop.peers, workshop.program("native"), names) as (supervisor, births):
        births.wait_for(sizes.fleet)
        start_s = births.lives[-1].born_s - supervisor.started_s
        # Its start goes on for a while after the last process runs.
        births.watch(sizes.ran_s)
        idle, pss_bytes = watched(helpers_of(supervisor.process.pid, births), sizes.idle_s)
        began_s = time.monotonic()
        supervisor.process.send_signal(signal.SIGTERM)
        ended = births.until(lambda: not births.alive(), ENDED_WITHIN_S)
        try:
            supervisor.process.wait(max(0.0, began_s + ENDED_WITHIN_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            ended = False
        return Lived(start_s, idle, pss_bytes, time.monotonic() - began_s if ended else None)


def helpers_of(pid: int, births: Births) -> list[psutil.Process]:
    """Return a supervisor and its helpers, without what it runs."""
    theirs = {life.pid for life in births.lives}
    return [process for process in family(pid) if process.pid not in theirs]


def watched(helpers: Iterable[psutil.Process], seconds: float) -> tuple[float, int]:
    """Return the share of a core that some processes use when idle, and their memory (PSS)."""
    processes = list(helpers)
    before, since = cpu_ns(processes), time.perf_counter()
    time.sleep(seconds)
    after, took_s = cpu_ns(processes), time.perf_counter() - since
    # A thread that ended meanwhile takes its own figure with it.
    used_ns = sum(used - before.get(thread, 0) for thread, used in after.items())
    return used_ns / 1e9 / took_s, sum(process.memory_full_info().pss for process in processes)


async def command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Run verbs, again and again."""
    return await trio.to_thread.run_sync(_command, workshop, sizes)


def _command(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    stdiod = Measured(workshop, workshop.python_tool("one"), workshop.python_tool("two"))
    samples: list[Sample] = []
    try:
        first_s = stdiod.entry_s()
        stdiod.run("wait", "one", "two")
        for verb, wall, cpu in (
            ("--version", rows.VERSION, rows.VERSION_CPU),
            ("status", rows.STATUS, rows.STATUS_CPU),
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
        Sample(rows.MCP_ENTRY.title, OURS, entry_s * 1000),
        Sample(rows.MCP_FIRST.title, OURS, first_s * 1000),
    ]


async def scale(workshop: Workshop, sizes: Sizes) -> list[Point]:
    """Measure a daemon with more and more modules, running ones and lazy ones."""
    points: list[Point] = []
    for of, counts in ((RUNNING, sizes.running), (LAZY, sizes.lazy)):
        for size in counts:
            points += await trio.to_thread.run_sync(_measured, workshop, sizes, of, size)
    return points


def _measured(workshop: Workshop, sizes: Sizes, of: str, size: int) -> list[Point]:
    start = "lazy" if of == LAZY else "eager"
    documents = [workshop.native(f"m-{number:05}", start=start) for number in range(size)]
    stdiod = Measured(workshop, *documents)
    try:
        start_s = stdiod.up()
        daemon = stdiod.status()["daemon"]["pid"]
        idle, pss_bytes = watched(_helpers(daemon, workshop), sizes.idle_s)
        values = {START: start_s, MEMORY: pss_bytes / 1e6, IDLE: idle * 100}
        with connected(stdiod.socket) as client:
            first_s = invoked(client, documents[0]["name"], "stream", n=0)
            values |= {FIRST: first_s * 1000} if of == LAZY else {}
            latencies_s = [
                invoked(client, documents[0]["name"], "stream", n=0) for _ in range(sizes.latencies)
            ]
            values[INVOKE] = median(latencies_s) * 1000
            _change(stdiod, documents[-1])
            # The daemon may have seen the change by itself; then this waits for what it does of it.
            values[RELOAD] = invoked(client, "supervisor", "reload")
        values[STOP] = stdiod.cost("down").wall_s
    finally:
        stdiod.end()
    return [Point(of, measure, size, value) for measure, value in values.items()]


def _change(stdiod: Measured, document: Mapping[str, Any]) -> None:
    supervision = {**document["supervision"], "queue": 7}
    text = json.dumps({**document, "supervision": supervision})
    (stdiod.folder / f"{document['name']}.json").write_text(text)


def _helpers(pid: int, workshop: Workshop) -> Iterator[psutil.Process]:
    module = workshop.program("native")
    return (process for process in family(pid) if process.exe() != module)
