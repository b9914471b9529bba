"""The lowest rung: the leader's session and group, and a search of /proc for what has left them.

Works everywhere. What it cannot find is a process that left the session, wiped its environment,
lost its parent and set its RLIMIT_LOCKS anew (`brand`), all four.
"""

from __future__ import annotations

import os

from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.contained import Containment, Rung
from supervisor.runtime.containment.ledger import DAEMON_VARIABLE, INSTANCE_VARIABLE
from supervisor.runtime.containment.procfs import Stat


class ProcessGroupRung(Rung):
    """Contain by session and environment marker."""

    name = "process_group"

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon

    def contain(self, instance: str, leader: Stat, brand: int) -> ProcessGroup:
        return ProcessGroup(instance, leader, brand, self._daemon)


class ProcessGroup(Containment):
    """The session of one leader."""

    def __init__(self, instance: str, leader: Stat, brand: int, daemon: str) -> None:
        super().__init__(instance, leader, brand)
        self._marks = (f"{DAEMON_VARIABLE}={daemon}", f"{INSTANCE_VARIABLE}={instance}")
        self._found: frozenset[tuple[int, int]] = frozenset()

    @property
    def may_have_left(self) -> bool:
        return True

    def find(self) -> list[Stat]:
        everybody = [one for one in procfs.every_process() if one.pid != os.getpid()]
        chosen = [one for one in everybody if one.lives and self._names(one)]
        found = [one for one in hunt.with_descendants(chosen, everybody) if one.lives]
        # One that exits has no marks any more some time before it is gone.
        self._found = frozenset((one.pid, one.start) for one in found)
        return found

    def _names(self, one: Stat) -> bool:
        leader = self.leader
        if one.start < leader.start:
            return False
        if leader.pid in (one.sid, one.pgid) or (one.pid, one.start) in self._found:
            return True
        if self.brand >= 0 and procfs.brand(one.pid) == self.brand:
            return True
        return procfs.has_variables(one.thread, *self._marks)
