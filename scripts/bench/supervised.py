"""The scenes beside other supervisors: a crash, and many modules at once."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import trio

from scripts.bench import in_process
from scripts.bench.rows import (
    CRASH,
    FLEET_IDLE,
    FLEET_MEMORY,
    FLEET_START,
    FLEET_STOP,
    OURS,
    SUPERVISORD,
    Sample,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Stdiod, Workshop
from scripts.peers.births import Births
from scripts.peers.supervisor import Supervisor
from scripts.peers.supervisors import PEERS
from scripts.peers.turn import born, family, under

ENDED_WITHIN_S = 20.0
FLEET = (FLEET_START, FLEET_IDLE, FLEET_MEMORY, FLEET_STOP)


class Native(NamedTuple):
    """The module of programs/native.c, as other supervisors run it."""

    name: str
    path: str
    whole_group: bool = False

    def command(self, births: Path) -> list[str]:
        """Have it connect to `births`."""
        return [self.path, self.name, str(births)]


class Lived(NamedTuple):
    """What a fleet took; `stop_s` is None where it did not end in time."""

    start_s: float
    idle: float
    pss_bytes: int
    stop_s: float | None


def others() -> dict[str, type[Supervisor]]:
    """Return the other supervisors that are installed, by the name they have in rows."""
    found = (peer for peer in PEERS if peer.name != OURS and peer.version() is not None)
    return {SUPERVISORD if peer.name == "supervisor" else peer.name: peer for peer in found}


async def crash(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Kill modules, each one once: the first crash is what is measured."""
    samples = [await in_process.crash(workshop, sizes)]
    for name, peer in others().items():
        try:
            took_s = await trio.to_thread.run_sync(_crash, peer, workshop, sizes)
        except (TimeoutError, subprocess.SubprocessError) as error:
            samples.append(Sample(CRASH.title, name, None, str(error)))
        else:
            samples.append(Sample(CRASH.title, name, took_s * 1000))
    return samples


def _crash(peer: type[Supervisor], workshop: Workshop, sizes: Sizes) -> float:
    path, count = workshop.program("native"), sizes.peer_crashes
    victims = [Native(f"victim-{number}", path) for number in range(count)]
    took_s: list[float] = []
    with under(peer, *victims) as (_, births):
        born(births, count, "child")
        births.watch(sizes.ran_s)
        for number, victim in enumerate(births.alive("child"), start=count + 1):
            began_s = time.monotonic()
            signal.pidfd_send_signal(victim.pidfd, signal.SIGKILL)
            born(births, number, "child")
            took_s.append(births.of("child")[-1].born_s - began_s)
    return median(took_s)


async def fleet(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Start many modules, watch the supervisor do nothing, stop them."""
    lived = await trio.to_thread.run_sync(_fleet, workshop, sizes)
    samples = list(_samples(OURS, lived))
    for name, peer in others().items():
        try:
            lived = await trio.to_thread.run_sync(_other_fleet, peer, workshop, sizes)
        except (TimeoutError, subprocess.SubprocessError) as error:
            samples += [Sample(row.title, name, None, str(error)) for row in FLEET]
        else:
            samples += _samples(name, lived)
    return samples


def _samples(name: str, lived: Lived) -> Iterable[Sample]:
    yield Sample(FLEET_START.title, name, lived.start_s)
    yield Sample(FLEET_IDLE.title, name, lived.idle * 100)
    yield Sample(FLEET_MEMORY.title, name, lived.pss_bytes / 1e6)
    why = "" if lived.stop_s is not None else f"did not end in {ENDED_WITHIN_S:.0f} s"
    yield Sample(FLEET_STOP.title, name, lived.stop_s, why)


def _fleet(workshop: Workshop, sizes: Sizes) -> Lived:
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder,
        Births(Path(folder, "births")) as births,
    ):
        names = [f"idle-{number:03}" for number in range(sizes.fleet)]
        stdiod = Stdiod(workshop, *(workshop.native(name, births=births.path) for name in names))
        try:
            start_s = stdiod.up()
            born(births, sizes.fleet, "child")
            status = stdiod.status()
            states = {module["state"] for module in status["modules"]}
            assert states == {"ready"}, states
            helpers = helpers_of(status["daemon"]["pid"], births)
            idle, pss_bytes = watched(helpers, sizes.idle_s)
            stop_s = stdiod.cost("down").wall_s
            assert births.until(lambda: not births.alive(), ENDED_WITHIN_S), "processes are left"
        finally:
            stdiod.end()
    return Lived(start_s, idle, pss_bytes, stop_s)


def _other_fleet(peer: type[Supervisor], workshop: Workshop, sizes: Sizes) -> Lived:
    path = workshop.program("native")
    programs = [Native(f"idle-{number:03}", path) for number in range(sizes.fleet)]
    with under(peer, *programs) as (supervisor, births):
        born(births, sizes.fleet, "child")
        start_s = births.of("child")[-1].born_s - supervisor.started_s
        # Its start goes on for a while after the last process runs.
        births.watch(sizes.ran_s)
        helpers = helpers_of(supervisor.process.pid, births)
        idle, pss_bytes = watched(helpers, sizes.idle_s)
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


def cpu_ns(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Return the CPU time of each thread, by the scheduler's nanoseconds where it counts them.

    The clock ticks that `ps` shows are 10 ms each: half a percent of two seconds.
    """
    used: dict[str, int] = {}
    for process in processes:
        for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                used[str(thread)] = int(thread.read_text().split()[0])
        if not any(key.startswith(f"/proc/{process.pid}/") for key in used):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[str(process.pid)] = round((times.user + times.system) * 1e9)
    return used
