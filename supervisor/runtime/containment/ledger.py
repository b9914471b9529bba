r"""What has to be killed should the daemon die: written as lines, read back as a `Ledger`.

The same lines go to the guardian's pipe and to a file for the next daemon:

    daemon\tUUID\tPID\tSTART\tBOOT\tBRAND    the writer
    cgroup\tPATH                              all its cgroups are below this one
    +\tPID\tSTART\tINSTANCE                   a leader of a session
    -\tPID
    bye                                       an orderly end: nothing is left

A process is one of this daemon's if it has a brand of the run's (`brand`), or carries
`STDIOD_DAEMON=UUID` in its environment, or belongs to a leader's session or group, or descends from
one such. The marks are of one run of a daemon: a guardian that is still at work for a former one
must not touch the next one's processes, nor the next daemon itself.
"""

from __future__ import annotations

import os

from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.named_tuple import NamedTuple
from supervisor.runtime.containment.procfs import Stat

DAEMON_VARIABLE = "STDIOD_DAEMON"
"""Names the daemon (a UUID per run) in the environment of its modules' processes."""

INSTANCE_VARIABLE = "STDIOD_INSTANCE"
"""Names the instance (`name#generation`) in the environment of its processes."""


SERIAL_BITS = 22
"""The low bits of a brand: a serial number, which comes again after 4 million processes."""

NO_BRAND = -1


def same_run(one: int, other: int) -> bool:
    """Whether two brands are of the same run of a daemon; `NO_BRAND` is of none."""
    return one >= 0 and other >= 0 and one >> SERIAL_BITS == other >> SERIAL_BITS


class Author(NamedTuple):
    """The daemon that writes a ledger, and the marks its modules' processes carry."""

    daemon: str
    pid: int
    start: int
    boot: str
    brand: int = NO_BRAND
    """The brand of this run, with no serial number in it."""

    def line(self) -> bytes:
        return ("daemon\t" + "\t".join(str(field) for field in self) + "\n").encode()


class Leader(NamedTuple):
    pid: int
    start: int
    instance: str

    def line(self) -> bytes:
        return f"+\t{self.pid}\t{self.start}\t{self.instance}\n".encode(errors="replace")


class Ledger:
    def __init__(self) -> None:
        self.author: Author | None = None
        self.cgroups: list[str] = []
        self.leaders: dict[int, Leader] = {}
        self.closed = False

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    def lines(self) -> list[bytes]:
        """Return the shortest lines that say the same."""
        head = [] if self.author is None else [self.author.line()]
        cgroups = [os.fsencode(f"cgroup\t{path}\n") for path in self.cgroups]
        return head + cgroups + [leader.line() for leader in self.leaders.values()]

    def read(self, line: bytes) -> None:
        """Take one line; one that cannot be understood, such as a cut one, says nothing."""
        word, *fields = os.fsdecode(line.rstrip(b"\n")).split("\t")
        try:
            match word:
                case "daemon":
                    # Former versions wrote the number of a descriptor before the brand.
                    name, pid, start, boot, *_, brand = fields
                    # A new beginning, after the guardian or the file was too slow for the old one.
                    self.forget()
                    self.author = Author(name, int(pid), int(start), boot, int(brand))
                case "cgroup":
                    self.cgroups.append(fields[0])
                case "+":
                    leader = Leader(int(fields[0]), int(fields[1]), fields[2])
                    self.leaders[leader.pid] = leader
                case "-":
                    self.leaders.pop(int(fields[0]), None)
                case "bye":
                    self.closed = True
        except (ValueError, IndexError, TypeError):
            return

    def find(self) -> list[Stat]:
        """Find all living processes of this daemon's modules, wherever they went.

        Of each, as little is read as decides: of one that began before the daemon, nothing more.
        """
        everybody = [one for one in procfs.every_process() if one.pid != os.getpid()]
        chosen = [one for one in everybody if one.lives and self._names(one)]
        return [one for one in hunt.with_descendants(chosen, everybody) if one.lives]

    def _names(self, one: Stat) -> bool:
        author = self.author
        if author is None or one.pid == author.pid or one.start < author.start:
            return False
        leader = self.leaders.get(one.sid) or self.leaders.get(one.pgid)
        if leader is not None and one.start >= leader.start:
            return True
        if author.brand >= 0 and same_run(procfs.brand(one.pid), author.brand):
            return True
        return procfs.has_variables(one.thread, f"{DAEMON_VARIABLE}={author.daemon}")
