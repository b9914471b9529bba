"""The lowest rung: the leader's session and group, and a search of /proc for who has left them.

Works everywhere. What it cannot find is a process that left the session, wiped its environment and
lost its parent, all three.
"""

from __future__ import annotations

import os

from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.led_group import LedGroup
from supervisor.runtime.containment.ledger import DAEMON_VARIABLE, INSTANCE_VARIABLE
from supervisor.runtime.containment.procfs import Stat


class ProcessGroupRung:
    """Contain by session and environment marker."""

    name = "process_group"
    folder = None

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon

    def contain(self, instance: str, leader: Stat) -> ProcessGroup:
        """Take note of the leader."""
        return ProcessGroup(instance, leader, self._daemon)

    def close(self) -> None:
        """Do nothing: nothing was done."""


class ProcessGroup(LedGroup):
    """The session of one leader."""

    def __init__(self, instance: str, leader: Stat, daemon: str) -> None:
        super().__init__(instance, leader)
        self._marks = (f"{DAEMON_VARIABLE}={daemon}", f"{INSTANCE_VARIABLE}={instance}")

    def find(self) -> list[Stat]:
        """Search all of /proc."""
        everybody = [one for one in procfs.every_process() if one.pid != os.getpid()]
        chosen = [one for one in everybody if one.lives and self._names(one)]
        return [one for one in hunt.with_descendants(chosen, everybody) if one.lives]

    def remove(self) -> None:
        """Do nothing: a session ends with its last process."""

    def _names(self, one: Stat) -> bool:
        leader = self.leader
        if one.start < leader.start:
            return False
        return leader.pid in (one.sid, one.pgid) or procfs.has_variables(one.pid, *self._marks)
