"""What the rungs below `cgroup2` share: a leader's process group, and those found outside of it.

The kernel holds nothing together here but the group: who is beside it has to be found, and the
memory of all of it is sampled.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod

from supervisor.runtime.containment.contained import signal_each, signal_group
from supervisor.runtime.containment.procfs import Stat


class LedGroup(ABC):
    """The group of one leader; each rung has its own way to find who left it."""

    counts_memory = False
    kills_at_once = True

    def __init__(self, instance: str, leader: Stat, brand: int) -> None:
        self.instance = instance
        self.leader = leader
        self.brand = brand

    @property
    @abstractmethod
    def may_have_left(self) -> bool:
        """Whether `left` may find anybody."""

    @abstractmethod
    def find(self) -> list[Stat]:
        """Find all of its living processes, those that ran away too."""

    def left(self) -> list[Stat]:
        """Find those that live on after the leader."""
        return self.find()

    def signal(self, *numbers: signal.Signals) -> None:
        """Signal the group, and those who left it one by one."""
        signal_group(self.leader, *numbers)
        signal_each([one for one in self.find() if one.pgid != self.leader.pid], *numbers)

    def kill(self) -> None:
        signal_group(self.leader, signal.SIGKILL)

    def limit_memory(self, size: int) -> None:  # noqa: B027 - these rungs have nothing to do here
        """Leave it to sampling."""

    def memory_breach(self) -> tuple[int, int] | None:
        """Return None: the kernel does not count here."""
        return None
