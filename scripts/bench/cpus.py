"""Which CPUs the parties of a row run on.

Where each side waits for the other in turn, the scheduler decides whether they share a CPU, and a
wake-up on another one may cost more than what is measured. So in such rows each party, its module
and its client share one CPU. In all other rows each party has all CPUs there are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import psutil

from scripts.bench.rows import Row


def cpus_for(row: Row) -> frozenset[int]:
    """Return the CPUs for each party of a row."""
    cpus = os.sched_getaffinity(0)
    return frozenset({max(cpus)} if row.one_cpu else cpus)


@contextmanager
def pinned_to(cpus: Collection[int], *pids: int) -> Iterator[None]:
    """Have this process and others, with all threads and all children, run on some CPUs only.

    What they start meanwhile does so, too. Afterwards all have the CPUs that this thread had.
    """
    before = os.sched_getaffinity(0)
    _pin(cpus, (os.getpid(), *pids))
    try:
        yield
    finally:
        _pin(before, (os.getpid(), *pids))


def _pin(cpus: Collection[int], pids: Collection[int]) -> None:
    # A thread has CPUs of its own; a new one, and a new process, has those of whoever began it.
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(pid)
            for process in (family, *family.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    for thread in process.threads():
                        with contextlib.suppress(ProcessLookupError):
                            os.sched_setaffinity(thread.id, cpus)
