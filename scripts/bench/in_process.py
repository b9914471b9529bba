"""The scenes whose daemon runs in this very process: stream, invoke, per-invocation, crash."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import trio

from protocol.events import Progress
from protocol.response import Response
from scripts.bench.cpus import cpus_for, pinned_to
from scripts.bench.peer_programs import peer, with_sdk
from scripts.bench.rows import (
    ASYNCIO,
    BARE,
    BELOW_CGROUPS,
    CRASH,
    HOSTED_MANY,
    HOSTED_ONE,
    INVOKE_MANY,
    INVOKE_ONE,
    LONE_TOOL,
    NODE,
    OURS,
    RAW,
    SHORT_WAY,
    STREAM,
    TOOL,
    TRIO,
    C,
    Cost,
    Row,
    Sample,
    each_ms,
    now,
    rate,
    since,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAMS, Workshop, daemon
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Client
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.principals import SUPERVISOR
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
    arguments = [str(sizes.events), workshop.program("native"), "native"]
    commands = {
        RAW: [sys.executable, str(PROGRAMS / "raw_stream.py"), *arguments],
        ASYNCIO: [sys.executable, str(PROGRAMS / "asyncio_stream.py"), *arguments],
    }
    if workshop.node is not None:
        commands[NODE] = [workshop.node, str(PROGRAMS / "stream.js"), *arguments]
    samples = [
        await peer(STREAM, name, sizes.events, command) for name, command in commands.items()
    ]
    async with daemon(workshop, workshop.native()) as one:
        await listen(one, sizes.events // 4)
        cost = await listen(one, sizes.events)
    return [*samples, rate(STREAM, OURS, sizes.events, cost)]


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
        (INVOKE_ONE, 1, sizes.sequential),
        (INVOKE_MANY, WINDOW, sizes.concurrent),
    ):
        arguments = [str(count), str(window), workshop.program("primes")]
        commands = {
            C: [workshop.program("pingpong"), *arguments],
            BARE: [sys.executable, str(PROGRAMS / "trio_pingpong.py"), *arguments],
            ASYNCIO: [sys.executable, str(PROGRAMS / "asyncio_pingpong.py"), *arguments],
        }
        if workshop.node is not None:
            commands[NODE] = [workshop.node, str(PROGRAMS / "pingpong.js"), *arguments]
        with pinned_to(cpus_for(row)):
            for name, command in commands.items():
                samples.append(await peer(row, name, count, command))
            async with daemon(workshop, workshop.primes()) as one:
                samples.append(await _echoed(one, "primes", row, count, window))
                asked += count // 4 + count
                long_ways += one.requests.long_ways
            samples += await with_sdk(workshop, row, count, window)
            samples += await with_sdk(workshop, row, count, window, both_ends=True)
    return [*samples, Sample(SHORT_WAY.title, OURS, 100 * (1 - long_ways / asked))]


async def hosted(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Call a tool of an MCP server, one at a time and 64 at a time."""
    samples: list[Sample] = []
    for row, window, count in (
        (HOSTED_ONE, 1, sizes.sequential),
        (HOSTED_MANY, WINDOW, sizes.concurrent),
    ):
        with pinned_to(cpus_for(row)):
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
    arguments = [str(sizes.spawns), workshop.program("done")]
    commands = {
        C: [workshop.program("spawn_loop"), *arguments],
        TRIO: [sys.executable, str(PROGRAMS / "trio_spawn_loop.py"), *arguments],
    }
    if workshop.node is not None:
        commands[NODE] = [workshop.node, str(PROGRAMS / "spawn_loop.js"), *arguments]
    samples = [
        await peer(TOOL, name, sizes.spawns, command, each_ms) for name, command in commands.items()
    ]
    async with daemon(workshop, workshop.tool()) as one:
        await ask(one, "done", "run", max(1, sizes.spawns // 4), 1)
        cost = await ask(one, "done", "run", sizes.spawns, 1)
    samples.append(each_ms(TOOL, OURS, sizes.spawns, cost))
    return [*samples, *await _lone_tool(workshop, sizes)]


async def _lone_tool(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    samples: list[Sample] = []
    for name, containment in ((OURS, None), (BELOW_CGROUPS, "subreaper")):
        costs: list[Cost] = []
        async with daemon(workshop, workshop.tool(), containment=containment) as one:
            await ask(one, "done", "run", 2, 1)
            for _ in range(sizes.spawns):
                await trio.sleep(APART_S)
                costs.append(await ask(one, "done", "run", 1, 1))
        middle = Cost(*map(median, zip(*costs, strict=True)))
        samples.append(each_ms(LONE_TOOL, name, 1, middle))
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
    return Sample(CRASH.title, OURS, median(latencies) * 1000)


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
