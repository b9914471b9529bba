"""What a process did while the host waited for it in vain: computed, or waited itself."""

from __future__ import annotations

import time
from typing import NamedTuple

from supervisor.runtime.containment import procfs

MOST_PROCESSES = 8
"""Of a bigger tree nothing is said: to read it takes too long for the event loop."""

NO_CPU_S = 0.05
"""Less is called none."""

BUSY, IDLE_BY_CHANCE = 0.5, 0.05
"""The part of the time for which a tree computed that was busy, and for which one that happens to
run at the moment may have been idle: on a busy machine an endless loop gets little CPU."""


Mark = tuple[float, float, int]
"""When the host began to wait (`time.monotonic`), the CPU time by then, and how often it heard."""


class Effort(NamedTuple):
    """How much CPU the processes used since then, and whether they are at it."""

    cpu_s: float
    is_busy: bool
    is_mute: bool

    @property
    def words(self) -> str:
        """Say it as a clause."""
        used = "no CPU" if self.cpu_s < NO_CPU_S else f"{self.cpu_s:.1f} s of CPU"
        if self.is_busy:
            mute = ", printed nothing" if self.is_mute else ""
            return f"it used {used}{mute}: an endless loop?"
        if self.is_mute:
            return (
                f"it used {used} and printed nothing: waiting for something, or its output is not "
                "flushed"
            )
        return f"it used {used}: waiting for something?"


class Meter:
    """Reads the CPU time of a process and of those below it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._tree = [pid]
        self.clocks = [procfs.cpu_clock(pid)]
        """Of those that `look` found, for the mark of each call."""

    def look(self) -> None:
        """Find the processes that are below it now: a launcher leaves the work to a child."""
        self._set_tree(procfs.tree(self._pid, MOST_PROCESSES) or [self._pid])

    def mark(self, times_heard: int) -> Mark:
        """Return where it stands."""
        return time.monotonic(), self._cpu_s(), times_heard

    def since(self, mark: Mark, times_heard: int) -> Effort | None:
        """Return what it did since; None where that cannot be known."""
        at, cpu_s, heard = mark
        before, now = set(self._tree) if cpu_s else set(), procfs.tree(self._pid, MOST_PROCESSES)
        if now is None:
            return None
        passed_s = time.monotonic() - at
        began = procfs.now_ticks() - procfs.ticks(passed_s)
        running = False
        for pid in now:
            found = procfs.stat(pid)
            if found is None:
                continue
            if pid not in before and found.start < began and cpu_s:
                self._set_tree(now)
                return None  # how much of its time was before?
            running = running or found.state == "R"
        self._set_tree(now)
        used_s = max(self._cpu_s() - cpu_s, 0.0)
        share = used_s / passed_s if passed_s else 0.0
        is_busy = used_s > NO_CPU_S and (share > BUSY or (running and share > IDLE_BY_CHANCE))
        return Effort(used_s, is_busy, times_heard == heard)

    def _set_tree(self, pids: list[int]) -> None:
        self._tree, self.clocks = pids, [procfs.cpu_clock(one) for one in pids]

    def _cpu_s(self) -> float:
        return sum(filter(None, map(procfs.cpu_s, self._tree)))
