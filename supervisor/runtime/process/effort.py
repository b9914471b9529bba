"""Tell whether a process that did not answer in time used CPU, or waited for something.

`Incarnation.ask` marks the CPU time at which a request began; `effort` compares that with now.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from supervisor.runtime.containment import procfs

if TYPE_CHECKING:
    from supervisor.runtime.process.incarnation import Incarnation

MOST_PROCESSES = 8
"""Of a bigger tree the rest is not read: that takes too long for the event loop."""

NO_CPU_S = 0.05
"""Less is called none."""

MARK_S = 0.01
"""Requests of so long a time share one look at the CPU clocks: each is a system call."""

BUSY, IDLE_BY_CHANCE = 0.5, 0.05
"""The part of its time for which one computed that was busy, and for which one that happens to run
at the moment may have been idle: on a busy machine an endless loop gets little CPU."""


class Mark(msgspec.Struct, frozen=True):
    """Where a process stood when the host began to wait for it (`CLOCK_BOOTTIME`)."""

    incarnation: Incarnation
    at_s: float
    cpu_s: dict[int, float]
    """By `cpu_clock`, of it and of those below it; empty if it was not there."""
    times_heard: int


class Effort(NamedTuple):
    """A clause on the work of a process and its children, their CPU time, and if they are busy."""

    words: str = ""
    cpu_s: float | None = None
    is_busy: bool = False


def cpu_clock(pid: int) -> int:
    """Return the clock of a process for `time.clock_gettime`, as clock_getcpuclockid(3) does."""
    return ~pid << 3 | 2


def tree(pid: int) -> list[int]:
    """Return a process and those below it: a launcher leaves the work to a child."""
    found = [pid]
    for one in found:
        if len(found) < MOST_PROCESSES:
            found += procfs.children(one) or ()
    return found[:MOST_PROCESSES]


def effort(since: Mark | None) -> Effort:
    """Return what a process did since then; empty where that cannot be known."""
    if since is None or since.incarnation.pid is None:
        return Effort()
    used_s, is_running = 0.0, False
    since.incarnation.clocks = []  # there may be others by the next request
    for one in filter(None, map(procfs.stat, tree(since.incarnation.pid))):
        before = since.cpu_s.get(cpu_clock(one.pid))
        if before is None and since.cpu_s and one.start < int(since.at_s * procfs.TICKS_PER_S):
            return Effort()  # how much of its time was before?
        used_s += max((procfs.cpu_s(one.pid) or 0.0) - (before or 0.0), 0.0)
        is_running = is_running or one.state == "R"
    share = used_s / (time.clock_gettime(time.CLOCK_BOOTTIME) - since.at_s)
    is_busy = used_s > NO_CPU_S and (share > BUSY or (is_running and share > IDLE_BY_CHANCE))
    is_mute = since.times_heard == since.incarnation.times_heard
    words = "; it used no CPU" if used_s < NO_CPU_S else f"; it used {used_s:.1f} s of CPU"
    if is_busy:
        words += f"{', printed nothing' if is_mute else ''}: an endless loop?"
    elif is_mute:
        words += " and printed nothing: waiting for something, or its output is not flushed"
    else:
        words += ": waiting for something?"
    return Effort(words, round(used_s, 2), is_busy)
