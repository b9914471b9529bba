"""Kill a set of processes that may be growing while it is being killed.

A process that forks faster than it is found outlives any single pass. So those found are stopped
first: a stopped process cannot fork, and one that a fork had begun before is found in the next
round. When a round finds no new one, none is left that could run away, and all are killed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed has none
import errno
import os
import time
from collections.abc import Callable, Iterable

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.procfs import Stat

ROUNDS = 64
"""A bomb doubles at most once between two looks; each look stops all it sees."""

PASS_S = 0.5
"""One pass ends after this long even if the set still grows; the next pass goes on."""

FIRST_PAUSE_S = 0.001
LAST_PAUSE_S = 0.05


class NotKnownError(OSError):
    """Not all processes could be looked at, for want of descriptors or memory (`procfs.MISSED`)."""

    def __init__(self) -> None:
        super().__init__(
            errno.EMFILE, "too few descriptors, or too little memory, to look at /proc"
        )


Find = Callable[[], Iterable[Stat]]
"""Finds the processes to kill; may name dead ones."""


def strike(find: Find) -> list[Stat]:
    """Stop and then kill everything `find` finds, until it finds no new one; never waits.

    Returns those that were found alive; they need a moment to be gone.
    """
    until = time.monotonic() + PASS_S
    stopped: dict[tuple[int, int], Stat] = {}
    for _ in range(ROUNDS):
        new = [one for one in find() if one.lives and (one.pid, one.start) not in stopped]
        for one in new:
            stopped[one.pid, one.start] = one
            procfs.send(one, _signal.SIGSTOP)
        if not new or time.monotonic() > until:
            break
    for one in stopped.values():
        procfs.send(one, _signal.SIGKILL)
    return list(stopped.values())


def exterminate(find: Find, within_s: float) -> list[int]:
    """Strike until none is found; returns the pids that could not be killed in time.

    Raises `NotKnownError` if it is not known then whether there are others.
    """
    until = time.monotonic() + within_s
    pause_s = FIRST_PAUSE_S
    while True:
        missed = procfs.MISSED.count
        left = strike(find)
        is_all = procfs.MISSED.count == missed
        if is_all and not left:
            return []
        if time.monotonic() > until:
            if not is_all:
                raise NotKnownError
            return sorted(one.pid for one in left)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, LAST_PAUSE_S)


def with_descendants(chosen: Iterable[Stat], everybody: Iterable[Stat]) -> list[Stat]:
    """Add to the chosen all that descend from them; never this process, nor init."""
    below: dict[int, list[Stat]] = {}
    for one in everybody:
        below.setdefault(one.ppid, []).append(one)
    found: dict[int, Stat] = {}
    level = list(chosen)
    while level:
        level = [one for one in level if one.pid not in found and one.pid not in (1, os.getpid())]
        found.update((one.pid, one) for one in level)
        level = [child for one in level for child in below.get(one.pid, ())]
    return list(found.values())
