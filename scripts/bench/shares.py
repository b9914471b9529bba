"""The scene of where our own CPU time goes: what a row that falls short consists of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import psutil
import trio

from scripts.bench import outside, rows
from scripts.bench.in_process import WINDOW, ask, listen
from scripts.bench.machine import cpu_ns, pinned
from scripts.bench.outside import Call, Served, measured, serving
from scripts.bench.rows import Row, Share
from scripts.bench.sampling import Spot, sampled
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Measured, Workshop, daemon
from scripts.checkout import COMMAND_WITHIN_S, started

LONGER = 4
"""How often as much as for a figure is done here, to have samples enough."""

LEAST = 0.01
"""A function that takes a smaller part of the time is not named."""


async def shares(workshop: Workshop, sizes: Sizes) -> list[Share]:
    """Look where the time goes of each row that is mostly ours."""
    return [
        *await _in_process(workshop, sizes),
        *await _outside(workshop, sizes),
        *await trio.to_thread.run_sync(_fleet, workshop, sizes),
    ]


async def _in_process(workshop: Workshop, sizes: Sizes) -> list[Share]:
    found: list[Share] = []
    documents = (workshop.native(), workshop.primes(), workshop.mcp_server(), workshop.tool())
    async with daemon(workshop, *documents) as one:
        primes, server = partial(ask, one, "primes", "echo"), partial(ask, one, "server", "echo")
        for row, work, count in (
            (rows.STREAM, partial(listen, one), sizes.events),
            (rows.INVOKE_ONE, partial(primes, window=1), sizes.sequential),
            (rows.INVOKE_MANY, partial(primes, window=WINDOW), sizes.concurrent),
            (rows.HOSTED_ONE, partial(server, window=1), sizes.sequential),
            (rows.HOSTED_MANY, partial(server, window=WINDOW), sizes.concurrent),
            (rows.TOOL, partial(ask, one, "done", "run", window=1), sizes.spawns),
        ):
            with pinned(row), sampled() as samples:
                cost = await work(count * LONGER)
            found += _shares(row, samples, cost.cpu_s / (count * LONGER))
    return found


async def _outside(workshop: Workshop, sizes: Sizes) -> list[Share]:
    found: list[Share] = []
    over_the_socket: list[tuple[Row, Call, int]] = [
        (rows.RELAYED, outside.listen, sizes.events),
        (rows.SOCKET_ONE, partial(outside.ask, window=1), sizes.sequential),
        (rows.SOCKET_MANY, partial(outside.ask, window=WINDOW), sizes.concurrent),
    ]
    sampling = serving(Sampled(workshop, workshop.native(), workshop.primes()))
    for served, asked in (
        (sampling, over_the_socket),
        (outside.with_http(workshop, Sampled), outside.calls(sizes)),
    ):
        async with served as who:
            for row, call, count in asked:
                found += await trio.to_thread.run_sync(_of_call, row, call, who, count * LONGER)
    return found


def _of_call(row: Row, call: Call, who: Served, count: int) -> list[Share]:
    with pinned(row, who.pid):
        looked(who)
        done, cost = measured(call, who, count)
        return _shares(row, looked(who), cost.cpu_s / done)


def _fleet(workshop: Workshop, sizes: Sizes) -> list[Share]:
    names = [f"idle-{number:03}" for number in range(sizes.fleet)]
    stdiod = Sampled(workshop, *map(workshop.native, names))
    try:
        stdiod.up()
        who = Served(stdiod.socket, stdiod.status()["daemon"]["pid"])
        used_ns = sum(cpu_ns([psutil.Process(who.pid)]).values())
        return _shares(rows.FLEET_START, looked(who), used_ns / 1e9)
    finally:
        stdiod.end()


def _shares(row: Row, samples: Mapping[Spot, int], each_s: float) -> list[Share]:
    whole = sum(samples.values())
    found: Counter[Spot] = Counter()
    for spot, number in samples.items():
        found[spot if number >= whole * LEAST else Spot(spot.part)] += number
    return [
        Share(row.title, spot.part, each_s * 1e6 * number / whole, spot.function)
        for spot, number in found.most_common()
    ]


class Sampled(Measured):
    """A daemon that counts where its time goes (programs/sampled.py), for `looked`."""

    _process: subprocess.Popen[bytes] | None = None

    def up(self, *options: str) -> float:
        """Start it; returns how long it took until all was ready (s)."""
        begin = time.perf_counter()
        module = [sys.executable, "-P", "-m", "scripts.bench.programs.sampled"]
        words = [str(_samples_of(self.socket)), "run", str(self.folder), *options]
        self._process = started([*module, *words], self.folder / "log", self.environment)
        self.run("wait", "--all")
        return time.perf_counter() - begin

    def end(self) -> None:
        """Stop it."""
        super().end()
        if self._process is not None:
            self._process.wait(COMMAND_WITHIN_S)


def looked(who: Served) -> Counter[Spot]:
    """Return what a daemon has counted since this was last asked."""
    folder = _samples_of(who.path)
    number = 1
    while Path(f"{folder}-{number}").exists():
        number += 1
    os.kill(who.pid, signal.SIGRTMIN)
    found = Path(f"{folder}-{number}")
    ends_at = time.monotonic() + COMMAND_WITHIN_S
    while not found.exists():
        assert time.monotonic() < ends_at, "the daemon does not say where its time went"
        time.sleep(0.01)
    counted = json.loads(found.read_text(encoding="utf-8"))
    return Counter({Spot(part, function): number for part, function, number in counted})


def _samples_of(socket: Path) -> Path:
    return socket.with_name("samples")
