"""What a rung gives for each instance: a hold on the leader and on all that came of it.

The lowest rung is here, too. It works everywhere: the leader's session and group, and a search of
/proc for what has left them. What it cannot find is a process that left the session, wiped its
environment, lost its parent and set its RLIMIT_LOCKS anew (`brand`), all four.
"""

from __future__ import annotations

import contextlib
import os
import signal

from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.ledger import DAEMON_VARIABLE, INSTANCE_VARIABLE
from supervisor.runtime.containment.procfs import Stat


class Containment:
    """The processes of one instance, from just after the spawn until the leader is reaped.

    By default the kernel holds nothing together but the leader's group: each rung has its own way
    to find who left it, and the memory of all of it is sampled.

    `signal`, `find` and `left` are for threads, since they look at processes, of which there may be
    thousands; so are `remove`, and `kill` unless it `kills_at_once`, since the kernel may make them
    wait (`cgroup2`). The rest does not wait.
    """

    folder: str | None = None
    """Its cgroup, if it has one."""
    counts_memory = False
    """Whether the kernel keeps the memory limit of the whole tree."""

    def __init__(self, instance: str, leader: Stat, brand: int) -> None:
        self.instance = instance
        """The instance's id, `name#generation`."""
        self.leader = leader
        """The process that was spawned."""
        self.brand = brand
        """The number its processes inherit (`brand`)."""

    def find(self) -> list[Stat]:
        """Find all of its living processes, those that ran away too."""
        raise NotImplementedError

    @property
    def may_have_left(self) -> bool:
        """Whether `left` may find anybody, once the leader has ended; cheap."""
        raise NotImplementedError

    def left(self) -> list[Stat]:
        """Find those that live on after the leader, which has ended: `find`, but cheaper."""
        return self.find()

    def signal(self, *numbers: signal.Signals) -> None:
        """Signal all that is in it; a process that is just being forked may miss it."""
        signal_group(self.leader, *numbers)
        signal_each([one for one in self.find() if one.pgid != self.leader.pid], *numbers)

    def kill(self) -> None:
        """Kill all that can be killed in one go; what ran away is for `find` and `hunt`."""
        signal_group(self.leader, signal.SIGKILL)

    @property
    def kills_at_once(self) -> bool:
        """Whether `kill` takes next to no time now; else it is for a thread."""
        return True

    def limit_memory(self, size: int) -> None:
        """Make the kernel keep this limit (bytes), if it can; raises `OSError` if it should."""

    def memory_breach(self) -> tuple[int, int] | None:
        """Return (limit, most ever used) in bytes, if the kernel killed for it."""
        return None

    def remove(self) -> None:
        """Let go of it, once the leader is reaped; for threads."""


class Rung:
    """One way to contain, for all instances of a daemon."""

    name: str
    """What `status` calls it."""
    folder: str | None = None
    """The cgroup that everything is below, if there is one."""

    @property
    def of_tools(self) -> Rung:
        """The rung that holds processes per invocation without a memory limit."""
        return self

    def contain(self, instance: str, leader: Stat, brand: int) -> Containment:
        """Take hold of a process just spawned; raises `OSError` if it cannot be held so."""
        raise NotImplementedError

    def holds(self, orphan: Stat) -> bool:
        """Whether an instance's containment has it, whatever it shows."""
        del orphan
        return False

    def close(self) -> None:
        """Undo what the rung did to this process and machine."""


class ProcessGroupRung(Rung):
    """The lowest rung: contain by session, brand and environment."""

    name = "process_group"

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon

    def contain(self, instance: str, leader: Stat, brand: int) -> ProcessGroup:
        return ProcessGroup(instance, leader, brand, self._daemon)


class ProcessGroup(Containment):
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


def signal_group(leader: Stat, *numbers: signal.Signals) -> None:
    """Signal a leader's group; only right until the leader is reaped, when its number is free."""
    for number in numbers:
        # EPERM: each member left has changed its user; ESRCH: none is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)


def signal_each(processes: list[Stat], *numbers: signal.Signals) -> None:
    for one in processes:
        procfs.send(one, *numbers)
