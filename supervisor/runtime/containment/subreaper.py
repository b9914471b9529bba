"""The middle rung: the daemon adopts orphans, so that nothing of a module leaves its tree.

Finding the processes of an instance costs as much as the instance has processes, not as much as
the machine has: its leader's descendants, and those of the daemon's adopted children that came of
it (`orphans` says how they are told).
"""

from __future__ import annotations

from supervisor.runtime.containment import orphans, procfs
from supervisor.runtime.containment.contained import Containment, Rung
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.containment.procfs import Stat


class SubreaperRung(Rung):
    """Makes this process a subreaper until `close`."""

    name = "subreaper"

    def __init__(self, adopted: Orphans) -> None:
        """Raises `OSError` if the kernel refuses."""
        self._orphans = adopted
        self._was = orphans.is_subreaper()
        orphans.set_subreaper(on=True)

    def contain(self, instance: str, leader: Stat, brand: int) -> Subtree:
        return Subtree(instance, leader, brand, self._orphans)

    def close(self) -> None:
        orphans.set_subreaper(on=self._was)


class Subtree(Containment):
    """What descends from one leader."""

    def __init__(self, instance: str, leader: Stat, brand: int, adopted: Orphans) -> None:
        super().__init__(instance, leader, brand)
        self._orphans = adopted

    @property
    def may_have_left(self) -> bool:
        """Whether an orphan was adopted that is not another instance's for certain."""
        return self._orphans.may_be_left(self.instance)

    def find(self) -> list[Stat]:
        leader = procfs.stat(self.leader.pid)
        if leader is not None and leader.start == self.leader.start and leader.lives:
            return self._below(leader)
        return self._below()

    def left(self) -> list[Stat]:
        return self._below()

    def _below(self, *leader: Stat) -> list[Stat]:
        # What came of a leader that has ended is adopted, or below an adopted process.
        roots = {one.pid: one for one in (*self._orphans.of(self), *leader)}
        below = [pid for root in roots for pid in procfs.descendants(root)]
        found = [one for pid in below if (one := procfs.stat(pid)) is not None]
        self.remember(found)
        return [one for one in (*roots.values(), *found) if one.lives]

    def remember(self, processes: list[Stat]) -> None:
        """Note that these are of this instance, in case they are adopted."""
        self._orphans.remember(processes, self.instance)
