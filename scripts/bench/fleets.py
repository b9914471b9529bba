"""The rows of whole daemons: a crash and many modules beside other supervisors, the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import psutil

from scripts.bench import peers, rows, sockets
from scripts.bench.findings import Curve
from scripts.bench.machine import cpu_ns
from scripts.bench.rows import OURS, Row, Sample
from scripts.bench.supervisors import CONFIGURE, Births, family, under
from scripts.bench.workshop import Document, Measured, Workshop, with_daemon
from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import SERVES
from supervisor.runtime.supervision.module import Module

ENDED_WITHIN_S = 20.0
FLEET = (rows.FLEET_START, rows.FLEET_IDLE, rows.FLEET_MEMORY, rows.FLEET_STOP)
RUNNING = "persistent modules, all running"
LAZY = "descriptors of lazy modules in one directory"


def crash(workshop: Workshop) -> list[Sample]:
    """Kill modules, each one once: the first crash is what is measured."""
    ours = rows.CRASH.figure(OURS, _our_crash(workshop) * 1000)
    return [ours, *_beside(workshop, (rows.CRASH,), _crash)]


def fleet(workshop: Workshop) -> list[Sample]:
    """Start many modules, watch the supervisor do nothing, stop them."""
    ours = [row.figure(OURS, value) for row, value in zip(FLEET, _our_fleet(workshop), strict=True)]
    return [*ours, *_beside(workshop, FLEET, _fleet)]


def _beside(
    workshop: Workshop,
    of: tuple[Row, ...],
    measure: Callable[[Workshop, str], Iterable[float | None]],
) -> list[Sample]:
    """Measure the other supervisors that are installed; None is what did not end in time."""
    samples: list[Sample] = []
    for name, (package, _) in CONFIGURE.items():
        if peers.version(package, workshop.installed) is None:
            continue
        try:
            for row, value in zip(of, measure(workshop, name), strict=True):
                late = row.failure(name, f"did not end in {ENDED_WITHIN_S:.0f} s")
                samples.append(late if value is None else row.figure(name, value))
        except (TimeoutError, subprocess.SubprocessError) as error:
            samples += [row.failure(name, str(error)) for row in of]
    return samples


def _our_crash(workshop: Workshop) -> float:
    names = [f"victim-{number}" for number in range(workshop.sizes.crashes)]

    async def kill_each(kernel: Kernel) -> float:
        took_s: list[float] = []
        for name in names:
            module = kernel.fleet.modules[name]
            (victim,) = _pids(module)
            begin = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            await kernel.fleet.wait_until(lambda: _is_replaced(module, victim) or None)  # noqa: B023
            took_s.append(time.perf_counter() - begin)
        return median(took_s)

    return with_daemon(workshop, kill_each, *map(workshop.native, names))


def _pids(module: Module) -> list[int]:
    life = module.workers[0].life
    shown = [] if life is None else life.instances()
    return [instance.pid for instance in shown if instance.pid is not None]


def _is_replaced(module: Module, victim: int) -> bool:
    return module.state in SERVES and _pids(module) not in ([], [victim])


def _crash(workshop: Workshop, supervisor: str) -> list[float]:
    names = [f"victim-{number}" for number in range(workshop.sizes.peer_crashes)]
    took_s: list[float] = []
    with under(workshop, supervisor, names) as (_, _, births):
        births.wait_for(len(names))
        births.watch(workshop.sizes.ran_s)
        for number, pid in enumerate(births.alive.copy().values(), start=len(names) + 1):
            began_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            births.wait_for(number)
            took_s.append(births.last_s - began_s)
    return [median(took_s) * 1000]


def _our_fleet(workshop: Workshop) -> tuple[float, float, float, float]:
    births = Births(workshop.new_folder() / "births")
    names = [f"idle-{number:03}" for number in range(workshop.sizes.fleet)]
    stdiod = Measured(workshop, *(workshop.native(name, births=births.path) for name in names))
    try:
        start_s = stdiod.up()
        births.wait_for(len(names))
        status = stdiod.status()
        states = {module["state"] for module in status["modules"]}
        assert states == {"ready"}, states
        helpers = [one for one in family(status["daemon"]["pid"]) if one.pid not in births.pids]
        idle, memory = _watched(workshop, helpers)
        stop_s = stdiod.cost("down").wall_s
        assert births.until(lambda: not births.alive, ENDED_WITHIN_S), "processes are left"
    finally:
        stdiod.end()
        births.close()
    return start_s, idle, memory, stop_s


def _fleet(workshop: Workshop, supervisor: str) -> tuple[float, float, float, float | None]:
    names = [f"idle-{number:03}" for number in range(workshop.sizes.fleet)]
    with under(workshop, supervisor, names) as (process, started_s, births):
        births.wait_for(len(names))
        start_s = births.last_s - started_s
        # Its start goes on for a while after the last process runs.
        births.watch(workshop.sizes.ran_s)
        helpers = [one for one in family(process.pid) if one.pid not in births.pids]
        idle, memory = _watched(workshop, helpers)
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        ended = births.until(lambda: not births.alive, ENDED_WITHIN_S)
        try:
            process.wait(max(0.0, began_s + ENDED_WITHIN_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            ended = False
        return start_s, idle, memory, time.monotonic() - began_s if ended else None


def _watched(workshop: Workshop, processes: list[psutil.Process]) -> tuple[float, float]:
    """Return the CPU time of idle processes (% of a core), and their memory (PSS, MB)."""
    before, begin = cpu_ns(*processes), time.perf_counter()
    time.sleep(workshop.sizes.idle_s)
    after, took_s = cpu_ns(*processes), time.perf_counter() - begin
    # A thread that ended meanwhile takes its own figure with it.
    used_ns = sum(used - before.get(thread, 0) for thread, used in after.items())
    pss_bytes = sum(process.memory_full_info().pss for process in processes)
    return used_ns / 1e9 / took_s * 100, pss_bytes / 1e6


def command(workshop: Workshop) -> list[Sample]:
    """Run verbs, again and again."""
    times = range(workshop.sizes.commands)
    stdiod = Measured(workshop, workshop.python_tool("one"), workshop.python_tool("two"))
    try:
        first_s = stdiod.entry_s()
        stdiod.run("wait", "one", "two")
        costs = {verb: [stdiod.cost(verb) for _ in times] for verb in ("--version", "status")}
        entry_s = median(stdiod.entry_s() for _ in times)
    finally:
        stdiod.end()
    version, status = costs["--version"], costs["status"]
    return [
        row.figure(OURS, seconds * 1000)
        for row, seconds in (
            (rows.VERSION, median(cost.wall_s for cost in version)),
            (rows.VERSION_CPU, median(cost.cpu_s for cost in version)),
            (rows.STATUS, median(cost.wall_s for cost in status)),
            (rows.STATUS_CPU, median(cost.cpu_s for cost in status)),
            (rows.MCP_ENTRY, entry_s),
            (rows.MCP_FIRST, first_s),
        )
    ]


def scale(workshop: Workshop) -> list[Curve]:
    """Measure a daemon with more and more modules, running ones and lazy ones."""
    curves: list[Curve] = []
    for of, sizes in ((RUNNING, workshop.sizes.running), (LAZY, workshop.sizes.lazy)):
        found = [_grown(workshop, size, is_lazy=of == LAZY) for size in sizes]
        for measure, unit in found[0]:
            points = zip(sizes, (values[measure, unit] for values in found), strict=True)
            curves.append(Curve(of, measure, unit, tuple(points)))
    return curves


def _grown(workshop: Workshop, size: int, *, is_lazy: bool) -> dict[tuple[str, str], float]:
    """Return the figures of a daemon of a size, by measure and unit."""
    start = "lazy" if is_lazy else "eager"
    documents = [workshop.native(f"m-{number:05}", start=start) for number in range(size)]
    stdiod = Measured(workshop, *documents)
    first, native = documents[0]["name"], workshop.compiled("native")
    values: dict[tuple[str, str], float] = {}
    try:
        values["start (`stdiod up`)", "s"] = stdiod.up()
        helpers = [one for one in family(stdiod.pid()) if one.exe() != native]
        idle, memory = _watched(workshop, helpers)
        values["memory of the daemon and its guardian (PSS)", "MB"] = memory
        values["idle CPU", "%"] = idle
        with sockets.connected(stdiod.socket) as client:
            first_s = sockets.invoked(client, first, "stream", n=0)
            if is_lazy:
                values["first invoke of a lazy module, which starts it", "ms"] = first_s * 1000
            times = range(workshop.sizes.latencies)
            each_s = median(sockets.invoked(client, first, "stream", n=0) for _ in times)
            values["invoke of one module, median", "ms"] = each_s * 1000
            _change(stdiod, documents[-1])
            # The daemon may have seen the change by itself; then this waits for what it does of it.
            reload_s = sockets.invoked(client, "supervisor", "reload")
            values["reload after one descriptor changed", "s"] = reload_s
        values["stop (`stdiod down`)", "s"] = stdiod.cost("down").wall_s
    finally:
        stdiod.end()
    return values


def _change(stdiod: Measured, document: Document) -> None:
    changed: dict[str, Any] = {**document, "supervision": {**document["supervision"], "queue": 7}}
    (stdiod.folder / f"{document['name']}.json").write_text(json.dumps(changed))
