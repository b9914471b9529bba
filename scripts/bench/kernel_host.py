"""kernel_host MODE COUNT WINDOW FOLDER CONTAINMENT: do the work of a row in a daemon in-process.

It serves the descriptors of FOLDER as `stdiod run` does, and its only client is this process too.
MODE is a function of MODES, or an op of the only module, which is then invoked with WINDOW calls
open at once.

Prints a line for each figure: the seconds that COUNT took, and those of its own CPU, or one number.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import structlog
import trio

from protocol.events import Progress
from protocol.response import Response
from scripts.bench.contenders import Cost
from scripts.checkout import READY_WITHIN_S
from supervisor.daemon import collector
from supervisor.daemon.daemon_signals import Continued
from supervisor.kernel.journal import FILE, Journal
from supervisor.kernel.kernel import Client, JournalOptions, Kernel, Party
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.containment.procfs import rss_bytes
from supervisor.runtime.files.sources import scan
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import RunDelay, Stalls
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import LOOP

ALONE_S: Final = 0.06
"""Longer than what the kernel remembers of a move into a cgroup."""
WARM_S: Final = 0.3
"""Longer than the start of a Python program that is kept warm."""
MEGABYTE: Final = 1_000_000
AT_ONCE: Final = 20_000
"""Journal entries between two flushes: fewer than can wait, so that none is dropped."""


class Calls(Client):
    """A client as the faces are: called back, never waited for."""

    def __init__(self, kernel: Kernel, tool: str, given: dict[str, Any], count: int) -> None:
        self.events = 0
        self._kernel, self._tool, self._given, self._left = kernel, tool, given, count
        self._open = 0
        self._party = Party(SUPERVISOR)
        self._ended = trio.Event()

    async def run(self, window: int = 1) -> Cost:
        """Make all calls, `window` of them open at once."""
        began = Cost.now()
        for _ in range(window):
            self._begin()
        await self._ended.wait()
        return began.since()

    def _begin(self) -> None:
        if self._left:
            self._left -= 1
            self._open += 1
            self._kernel.begin(self._party, self._tool, "invoke", self._given, self)
        elif not self._open:
            self._ended.set()

    def event(self, event: Progress, line: bytes | None) -> None:
        del event, line
        self.events += 1

    def finished(self, response: Response) -> None:
        assert response.ok, response
        self._open -= 1
        self._begin()


async def ask(kernel: Kernel, op: str, count: int = 1, window: int = 1) -> Cost:
    """Ask the only module."""
    [name] = kernel.fleet.modules
    return await Calls(kernel, name, {"op": op, "args": {"n": 1}}, count).run(window)


async def listen(kernel: Kernel, tool: str, op: str, count: int, **given: Any) -> Cost:
    """Make one call that sends `count` events."""
    call = Calls(kernel, tool, {"op": op, "timeout_s": 600, **given}, 1)
    cost = await call.run()
    assert call.events == count, call.events
    return cost


async def read_back(kernel: Kernel, count: int, **only: Any) -> Cost:
    """Read entries of the journal; the first event says whose they are."""
    return await listen(kernel, "supervisor", "events", count + 1, args={"last": 0, **only})


# --- Modes -------------------------------------------------------------------

Figures = list[Cost | float | Callable[[], float]]
"""One that can be called is taken once the daemon has ended."""


async def invoke(op: str, kernel: Kernel, count: int, window: int) -> Figures:
    await ask(kernel, op, count // 4, window)
    return [await ask(kernel, op, count, window)]


async def stream(kernel: Kernel, count: int, _: int) -> Figures:
    """Take events of the module `native`."""
    await listen(kernel, "native", "stream", count // 4, args={"n": count // 4})
    return [await listen(kernel, "native", "stream", count, args={"n": count})]


async def short_way(kernel: Kernel, count: int, window: int) -> Figures:
    """Invoke one at a time, and many; return the share that took the short way (%)."""
    for at_once in (1, window):
        await ask(kernel, "echo", count, at_once)
    return [100 * (1 - kernel.requests.guarded_calls / (2 * count))]


async def apart(pause_s: float, kernel: Kernel, count: int, _: int) -> Figures:
    """Run the only tool, again some time after the last run."""
    await ask(kernel, "run", 2)
    costs = []
    for _ in range(count):
        await trio.sleep(pause_s)
        costs.append(await ask(kernel, "run"))
    return [Cost(*(median(seconds) * count for seconds in zip(*costs, strict=True)))]


async def crash(kernel: Kernel, _: int, __: int) -> Figures:
    """Kill each of the modules once, until it is ready again."""
    took_s = []
    for module in kernel.fleet.modules.values():
        [victim] = pids(module)
        began_s = time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        await kernel.fleet.wait_until(partial(is_replaced, module, victim))
        took_s.append(time.perf_counter() - began_s)
    return [median(took_s) * 1000]


def pids(module: Module) -> list[int]:
    return [instance.pid for instance, _ in module.instances() if instance.pid is not None]


def is_replaced(module: Module, victim: int) -> bool | None:
    """Return True, or None as `wait_until` wants it."""
    return (module.state in SERVES and pids(module) not in ([], [victim])) or None


async def patch(kernel: Kernel, count: int, _: int) -> Figures:
    """Merge state patches in a session, and read them back from the journal.

    The answer comes when all patches are in the journal, so that is part of the time.
    """
    session = kernel.sessions.new(SUPERVISOR, "bench")
    merge = partial(listen, kernel, "native", "patch", count)
    given = {"args": {"n": count}, "session_id": "bench"}
    await merge(**given)
    gc.collect()
    before = rss_bytes(os.getpid())
    cost = await merge(**given)
    gc.collect()
    grown = rss_bytes(os.getpid()) - before
    assert session.kept.revision == 2 * count, session.kept.revision
    assert session.kept.state["step"] == count - 1, session.kept.state
    reading = await read_back(kernel, 2 * count, since=0, event="session:patch")
    of_a_round = partial(journal_mb, kernel, 1 / 2)
    return [cost, max(0, grown) / MEGABYTE, of_a_round, reading.per(2)]


async def journal(kernel: Kernel, count: int, _: int) -> Figures:
    """Write entries as a busy daemon does, and read them back."""
    journal = kernel.facts.journal
    assert journal is not None
    await write(journal, min(count, AT_ONCE))
    since, before, began = journal.state.last_seq, peak_bytes(), Cost.now()
    await write(journal, count)
    writing = began.since()
    reading = await read_back(kernel, count, since=since, event="module:invoke")
    grown = peak_bytes() - before
    assert journal.dropped == 0
    return [writing, reading, partial(journal_mb, kernel, 1000 / count), grown / MEGABYTE]


async def write(journal: Journal, count: int) -> None:
    """Record what an invocation leaves, `count` times, until it is durable."""
    for first in range(0, count, AT_ONCE):
        for number in range(first, min(first + AT_ONCE, count)):
            journal.record(
                "module:invoke",
                module="primes",
                status="ok",
                duration_ms=3,
                data={"op": "echo"},
                request_id=f"r{number}",
                span_id=journal.new_span(),
            )
        durable = trio.Event()
        journal.flush(lambda failure: durable.set() if failure is None else None)  # noqa: B023
        await durable.wait()


def journal_mb(kernel: Kernel, share: float) -> float:
    return (Path(kernel.facts.data_dir) / FILE).stat().st_size * share / MEGABYTE


def peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


MODES: Final[dict[str, Callable[[Kernel, int, int], Awaitable[Figures]]]] = {
    "stream": stream,
    "short-way": short_way,
    "alone": partial(apart, ALONE_S),
    "warm": partial(apart, WARM_S),
    "crash": crash,
    "patch": patch,
    "journal": journal,
}


async def main(mode: str, count: int, window: int, folder: Path, containment: str | None) -> None:
    """Run a daemon as `serve` does, with all modules ready, and print the figures of a mode."""
    collector.put_off()
    async with Kernel(
        scan([folder]),
        data_dir=folder / "data",
        memory=JournalOptions(),
        containment=containment,
        whole_process=True,
    ) as kernel:
        with trio.fail_after(READY_WITHIN_S):
            await kernel.wait_ready()
        async with trio.open_nursery() as nursery:
            collector.begin()
            memory = partial(rss_bytes, os.getpid())
            nursery.start_soon(collector.collect_all, kernel.is_calm, memory)
            figures = await MODES.get(mode, partial(invoke, mode))(kernel, count, window)
            nursery.cancel_scope.cancel()
    for figure in figures:
        print(*figure if isinstance(figure, Cost) else [figure() if callable(figure) else figure])


if __name__ == "__main__":
    mode, count, window, folder, containment = sys.argv[1:]
    # The lives of its modules do not belong among the figures.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.callbacks.append(LOOP.collecting)
    with closing(RunDelay()) as run_delay:
        stalls = Stalls(run_delay=run_delay, continued=Continued())
        words = (mode, int(count), int(window), Path(folder), containment or None)
        run_timed(main, *words, stalls=stalls)
