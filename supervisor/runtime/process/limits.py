"""The limits of a module's processes: those that the kernel keeps, and those that are looked at.

The kernel keeps open files, CPU time, and memory where a cgroup counts it. These are set on the
process right after its spawn, by prlimit(2): what it forks later inherits them. There is a window:
what it has forked or opened before stays as it was. It is as long as one return from `posix_spawn`,
in which an interpreter has not read its first line.

`open_files` and `cpu_s` bound each process, as the kernel counts them; the tree as a whole is
bounded by `memory_bytes` and `processes` (`Sampler`, where no cgroup does it). RLIMIT_NPROC is not
used: it counts all processes of the *user*, and does nothing for root.

Only instances with a limit are looked at (all of them under a ceiling), and while there are none
nothing wakes up. A look adds up the resident memory (RSS) of a whole tree, grandchildren too. That
counts shared pages once per process, so a tree found over its limit is measured again by PSS, which
divides them, before anything is done. What is used between two looks is not seen: where a cgroup
counts memory, the kernel keeps the limit instead.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from protocol.descriptor.model import Limits
from supervisor.policy.verdict import Breach
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.threads import Threads

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation

CPU_GRACE_S = 1
"""SIGXCPU says so first; a process that ignores it is killed this much later."""

INTERVAL_S = 0.25
"""Between two looks; a look costs some 50 us for each process."""

log = structlog.get_logger()


class LimitError(Exception):
    """A limit that was asked for cannot be set; the message says which and why."""


def apply(limits: Limits, containment: Containment) -> None:
    """Set what was asked for on a process just spawned; raises `LimitError`."""
    pid = containment.leader.pid
    if limits.open_files is not None:
        _set(pid, "open_files", resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    if limits.cpu_s is not None:
        _set(pid, "cpu_s", resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + CPU_GRACE_S)
    if limits.memory_bytes is not None:
        try:
            containment.limit_memory(limits.memory_bytes)
        except OSError as error:
            raise LimitError(
                f"the limit memory_bytes of {limits.memory_bytes} cannot be set: {error.strerror}"
            ) from None


def _set(pid: int, name: str, kind: int, soft: int, hard: int) -> None:
    try:
        resource.prlimit(pid, kind, (soft, hard))
    except ProcessLookupError:
        return  # it has ended already
    except (OSError, ValueError) as error:
        highest = resource.getrlimit(kind)[1]
        cause = error.strerror if isinstance(error, OSError) else error
        words = f"the limit {name} of {soft} cannot be set: {cause}"
        if highest != resource.RLIM_INFINITY and hard > highest:
            words += f" (the daemon's own hard limit is {highest})"
        raise LimitError(words) from None


class Sampler:
    """Looks at all instances that have limits, from one task."""

    def __init__(
        self,
        threads: Threads,
        ceiling_bytes: int | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`ceiling_bytes` bounds all modules together; the biggest is ended first."""
        self._threads = threads
        self._interval_s = interval_s
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
            await trio.sleep(self._interval_s)

    async def _look(self) -> None:
        watched = dict(self._watched)
        # In a thread: a tree of a thousand processes is not to hold up the neighbours.
        measure = partial(_measure, watched)
        found = await self._threads.run("measuring what modules use", measure)
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
    fair = sum(procfs.pss_bytes(one.thread) for one in tree)
    return fair, Breach("memory_bytes", allowed, fair) if fair > allowed else None
