"""The scenes whose daemon runs in this very process."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import trio

from protocol.events import Progress
from protocol.response import Response
from scripts.bench import rows
from scripts.bench.machine import cpu_ns, pinned
from scripts.bench.peers import beside, with_sdk
from scripts.bench.rows import OURS, Cost, Row, Sample, each_ms, now, rate, since
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAMS, Workshop, daemon
from scripts.checkout import COMMAND_WITHIN_S, READY_WITHIN_S
from supervisor.kernel.event_feed import EventFeed
from supervisor.kernel.journal import FILE, remembering
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Client
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.supervision.module import Module

WINDOW = 64
APART_S = 0.06
"""Longer than what the kernel remembers of a move into a cgroup."""


class Counting(Client):
    """A client as the faces are one: called back, never waited for."""

    def __init__(self, finished: Callable[[Response], None]) -> None:
        self.events = 0
        self._finished = finished

    def event(self, event: Progress, line: bytes | None) -> None:
        """Count it."""
        del event, line
        self.events += 1

    def finished(self, response: Response) -> None:
        self._finished(response)


async def stream(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Let a module say as much as it can, here and to the peers."""
    native = workshop.program("native")
    samples = await beside(workshop, rows.STREAM, sizes.events, native, "native")
    async with daemon(workshop, workshop.native()) as one:
        await listen(one, sizes.events // 4)
        cost = await listen(one, sizes.events)
    return [*samples, rate(rows.STREAM, OURS, sizes.events, cost)]


async def listen(one: Kernel, count: int, op: str = "stream", **more: Any) -> Cost:
    """Have `native` tell `count` events by an op of its, and return what that took."""
    ended = trio.Event()
    answers: list[Response] = []

    def finished(response: Response) -> None:
        answers.append(response)
        ended.set()

    client = Counting(finished)
    content = {"op": op, "args": {"n": count}, "timeout_s": 600, **more}
    begun = now()
    one.requests.invoke(SUPERVISOR, "native", content, client)
    await ended.wait()
    cost = since(begun)
    assert answers[0].ok, answers[0]
    assert client.events == count, client.events
    return cost


async def invoke(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Echo through `primes`, one at a time and 64 at a time."""
    samples: list[Sample] = []
    asked = long_ways = 0
    for row, window, count in (
        (rows.INVOKE_ONE, 1, sizes.sequential),
        (rows.INVOKE_MANY, WINDOW, sizes.concurrent),
    ):
        with pinned(row):
            primes = workshop.program("primes")
            samples += await beside(workshop, row, count, str(window), primes)
            async with daemon(workshop, workshop.primes()) as one:
                samples.append(await _echoed(one, "primes", row, count, window))
                asked += count // 4 + count
                long_ways += one.requests.long_ways
            samples += await with_sdk(workshop, row, count, window)
            samples += await with_sdk(workshop, row, count, window, both_ends=True)
    return [*samples, Sample(rows.SHORT_WAY.title, OURS, 100 * (1 - long_ways / asked))]


async def hosted(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Call a tool of an MCP server, one at a time and 64 at a time."""
    samples: list[Sample] = []
    for row, window, count in (
        (rows.HOSTED_ONE, 1, sizes.sequential),
        (rows.HOSTED_MANY, WINDOW, sizes.concurrent),
    ):
        with pinned(row):
            async with daemon(workshop, workshop.mcp_server()) as one:
                samples.append(await _echoed(one, "server", row, count, window))
            samples += await with_sdk(workshop, row, count, window)
    return samples


async def _echoed(one: Kernel, module: str, row: Row, count: int, window: int) -> Sample:
    """Have a module echo, warmed up."""
    await ask(one, module, "echo", count // 4, window)
    return rate(row, OURS, count, await ask(one, module, "echo", count, window))


async def tool(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Run a native tool again and again, one process per invocation, and then now and then."""
    done = workshop.program("done")
    samples = await beside(workshop, rows.TOOL, sizes.spawns, done, figure=each_ms)
    async with daemon(workshop, workshop.tool()) as one:
        await ask(one, "done", "run", max(1, sizes.spawns // 4), 1)
        cost = await ask(one, "done", "run", sizes.spawns, 1)
    samples.append(each_ms(rows.TOOL, OURS, sizes.spawns, cost))
    return [*samples, *await _lone_tool(workshop, sizes)]


async def _lone_tool(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    samples: list[Sample] = []
    for name, containment in ((OURS, None), (rows.BELOW_CGROUPS, "subreaper")):
        costs: list[Cost] = []
        async with daemon(workshop, workshop.tool(), containment=containment) as one:
            await ask(one, "done", "run", 2, 1)
            for _ in range(sizes.spawns):
                await trio.sleep(APART_S)
                costs.append(await ask(one, "done", "run", 1, 1))
        middle = Cost(*map(median, zip(*costs, strict=True)))
        samples.append(each_ms(rows.LONE_TOOL, name, 1, middle))
    return samples


async def crash(workshop: Workshop, sizes: Sizes) -> Sample:
    """Kill modules, each one once, as its first crash; a second one would be held back."""
    names = [f"victim-{number}" for number in range(sizes.crashes)]
    latencies: list[float] = []
    async with daemon(workshop, *(workshop.native(name) for name in names)) as one:
        for name in names:
            module = one.fleet.modules[name]
            (victim,) = _pids(module)
            begin = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            await one.fleet.wait_until(lambda: _replaced(module, victim) or None)  # noqa: B023
            latencies.append(time.perf_counter() - begin)
    return Sample(rows.CRASH.title, OURS, median(latencies) * 1000)


async def ask(one: Kernel, module: str, op: str, count: int, window: int) -> Cost:
    """Invoke `count` times, `window` open at once, and return what that took."""
    content = {"op": op, "args": {"n": 1}}
    ended = trio.Event()
    sent = answered = 0

    def submit() -> None:
        nonlocal sent
        sent += 1
        one.requests.invoke(SUPERVISOR, module, content, client)

    def finished(response: Response) -> None:
        nonlocal answered
        assert response.ok, response
        answered += 1
        if sent < count:
            submit()
        elif answered == count:
            ended.set()

    client = Counting(finished)
    begun = now()
    for _ in range(min(window, count)):
        submit()
    await ended.wait()
    return since(begun)


def _pids(module: Module) -> list[int]:
    life = module.workers[0].life
    shown = [] if life is None else life.instances()
    return [instance.pid for instance in shown if instance.pid is not None]


def _replaced(module: Module, victim: int) -> bool:
    return module.state in SERVES and _pids(module) not in ([], [victim])


KEPT = 2
LOOK_EVERY_S = 0.05


async def warm(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Run a tool in Python cold and warm, with and without its interpreter's shutdown."""
    samples = await _compared(workshop, sizes, rows.WARM, "quick")
    return samples + await _compared(workshop, sizes, rows.WARM_SHUTDOWN)


async def _compared(workshop: Workshop, sizes: Sizes, row: Row, *words: str) -> list[Sample]:
    """Run the tool cold and warm in turn; each warm one once all are warm again."""
    took_s: dict[str, list[float]] = {"warm": [], "cold": []}
    documents = [workshop.python_tool(name, *words) for name in took_s]
    documents[0]["supervision"] = {"warm": KEPT}
    async with daemon(workshop, *documents) as one:
        for _ in range(sizes.warm):
            for name, figures in took_s.items():
                # A replacement is to have started by now, and not to do so beside the cold one.
                await _all_warm()
                figures.append((await ask(one, name, "run", 1, 1)).wall_s)
    middle_ms = {name: median(figures) * 1000 for name, figures in took_s.items()}
    return [
        Sample(row.title, OURS, middle_ms["warm"]),
        Sample(row.title, rows.COLD, middle_ms["cold"]),
    ]


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
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if program in process.cmdline():
                found.append(process)
    return found


def _sleeps(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_SLEEPING)
    except psutil.NoSuchProcess:
        return False


MEGABYTE = 1_000_000


async def patch(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Have a module send its patches twice: the first time warms up, the second one counts.

    The answer comes when all of them are in the journal, so that is part of the time.
    """
    async with daemon(workshop, workshop.native()) as one:
        session = one.sessions.new(SUPERVISOR, "bench")
        await listen(one, sizes.patches, "patch", session_id="bench")
        gc.collect()
        before = psutil.Process().memory_info().rss
        cost = await listen(one, sizes.patches, "patch", session_id="bench")
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
        assert session.kept.revision == 2 * sizes.patches, session.kept.revision
        assert session.kept.state["step"] == sizes.patches - 1, session.kept.state
        data_dir = Path(one.facts.data_dir)
    read = await _read(data_dir, 2 * sizes.patches)
    return [
        rate(rows.PATCHES, OURS, sizes.patches, cost),
        Sample(rows.PATCHES_MEMORY.title, OURS, max(0, grown) / MEGABYTE),
        Sample(rows.PATCHES_SIZE.title, OURS, (data_dir / FILE).stat().st_size / 2 / MEGABYTE),
        rate(rows.PATCHES_READ, OURS, 2 * sizes.patches, read),
    ]


async def _read(data_dir: Path, count: int) -> Cost:
    """Read all patches back as `events` does; returns what it took."""
    seen = -1  # the heading comes first

    async def emit(event: Progress | None) -> None:
        nonlocal seen
        seen += event is not None

    async with remembering(data_dir, JournalOptions()) as journal:
        feed = EventFeed(journal, BlockingWork())
        begun = now()
        await feed.send({"since": 0, "last": 0, "event": "session:patch"}, emit, None)
        cost = since(begun)
        feed.close()
    assert seen == count, seen
    return cost


async def journal(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Write entries and read all of them back."""
    del workshop
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        command = [sys.executable, "-m", "scripts.bench.programs.journal"]
        with trio.fail_after(COMMAND_WITHIN_S):
            done = await trio.run_process(
                [*command, folder, str(sizes.entries)], capture_stdout=True
            )
    figures = json.loads(done.stdout)
    return [
        rate(rows.JOURNAL_WRITE, OURS, sizes.entries, Cost(*figures["write"])),
        rate(rows.JOURNAL_READ, OURS, sizes.entries, Cost(*figures["read"])),
        Sample(rows.JOURNAL_SIZE.title, OURS, figures["bytes"] / sizes.entries * 1000 / 1e6),
        Sample(rows.JOURNAL_MEMORY.title, OURS, figures["grown_bytes"] / 1e6),
    ]
