"""Look at what modules use, and end those who use more than they may.

Only instances with a limit are looked at (all of them under a ceiling), and while there are none
nothing wakes up. A look adds up the resident memory (RSS) of a whole tree, grandchildren too. That
counts shared pages once per process, so a tree found over its limit is measured again by PSS, which
divides them, before anything is done. What is used between two looks is not seen: where a cgroup
counts memory, the kernel keeps the limit instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from protocol.descriptor.model import Limits
from supervisor.policy.verdict import Breach
from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.containment.procfs import Stat

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation

INTERVAL_S = 0.25
"""Between two looks; a look costs some 50 us for each process."""

log = structlog.get_logger()


class Sampler:
    """Looks at all instances that have limits, from one task."""

    def __init__(self, blocking: BlockingWork, ceiling_bytes: int | None = None) -> None:
        """`ceiling_bytes` bounds all modules together; the biggest is ended first."""
        self._blocking = blocking
        self._ceiling_bytes = ceiling_bytes
        self._watched: dict[Incarnation, Limits] = {}
        self._some = trio.Event()

    @contextlib.contextmanager
    def watching(self, instance: Incarnation, limits: Limits) -> Iterator[None]:
        """Look at an instance within this block, if a limit has to be sampled."""
        by_sampling = limits.memory_bytes is not None and not instance.containment.counts_memory
        if self._ceiling_bytes is None and not by_sampling and limits.processes is None:
            yield
            return
        self._watched[instance] = limits
        self._some.set()
        try:
            yield
        finally:
            del self._watched[instance]

    async def run(self) -> None:
        while True:
            if not self._watched:
                self._some = trio.Event()
                await self._some.wait()
            await self._look()
            await trio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        watched = dict(self._watched)
        # In a thread: a tree of a thousand processes is not to hold up the neighbours.
        measure = partial(_measure, watched)
        # In any case: what has begun as many processes as there may be is to be ended.
        found = await self._blocking.run("measuring what modules use", measure, in_any_case=True)
        present = {one: use for one, use in found.items() if one in self._watched}
        for one, (_, breach) in present.items():
            if breach is not None:
                _end(one, breach)
        self._keep_ceiling({one: used for one, (used, breach) in present.items() if not breach})

    def _keep_ceiling(self, used: dict[Incarnation, int]) -> None:
        ceiling, total = self._ceiling_bytes, sum(used.values())
        if ceiling is None or total <= ceiling:
            return
        # One at a time: the next look tells whether that was enough.
        biggest = max(used, key=lambda one: used[one])
        _end(biggest, Breach("memory_ceiling_bytes", ceiling, total, used[biggest]))


def _end(one: Incarnation, breach: Breach) -> None:
    log.warning("over a limit", instance=one.instance, words=breach.words)
    one.breach(breach)


def _measure(watched: dict[Incarnation, Limits]) -> dict[Incarnation, tuple[int, Breach | None]]:
    return {one: _measure_one(one.containment, limits) for one, limits in watched.items()}


def _measure_one(containment: Containment, limits: Limits) -> tuple[int, Breach | None]:
    tree = containment.find()
    used = sum(procfs.rss_bytes(one.thread) for one in tree)
    if limits.processes is not None and len(tree) > limits.processes:
        return used, Breach("processes", limits.processes, len(tree))
    allowed = limits.memory_bytes
    if allowed is None or containment.counts_memory or used <= allowed:
        return used, None
    fair = _fair_bytes(tree)
    return fair, Breach("memory_bytes", allowed, fair) if fair > allowed else None


def _fair_bytes(tree: list[Stat]) -> int:
    return sum(procfs.pss_bytes(one.thread) for one in tree)
