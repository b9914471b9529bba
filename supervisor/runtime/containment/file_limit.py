"""How many files the daemon may have open, what the last ones are for, and what modules get.

The kernel gives the lowest number that is free. So a use that takes no number from some bound on
leaves all above it to others, and nothing has to be counted:

    0 ...   clients   ... | ... spawns ... | ... an operator's command, and our own files ... limit

The soft limit is raised to the hard one. Modules get back what the daemon was started with, by
prlimit(2) right after their spawn: programs that do not expect high numbers (select(2)) may be
among them.
"""

from __future__ import annotations

import contextlib
import os
import resource

MOST = 1 << 20
"""The limit is not raised beyond it (fs.nr_open, as kernels come)."""

SPAWNS = 64
"""Numbers for spawns alone: 8 at once (`spawn`), each with three pipes and Popen's own."""

OPERATOR = 64
"""Numbers for an operator's command, and for what the daemon opens itself: journal, logs, /proc."""

SHARE = 8
"""Under a low limit, each of the two is one part in so many of it."""


class FileLimit:
    """The limit on this process's open files (RLIMIT_NOFILE)."""

    def __init__(self) -> None:
        self._given: tuple[int, int] | None = None
        """What it was before it was raised."""

    @classmethod
    def raised(cls) -> FileLimit:
        """Raise the soft limit of this process, which is nothing but the daemon."""
        raised = cls()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):  # then it stays as it is
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                raised._given = soft, hard
        return raised

    def give_back(self, pid: int) -> None:
        """Set the limit of a child just spawned to what it was before."""
        if self._given is not None:
            # It has ended, or has changed its user.
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self._given)

    @property
    def number(self) -> int:
        """The limit now: somebody may have changed it (prlimit(1))."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MOST if soft == resource.RLIM_INFINITY else soft

    @property
    def for_spawns(self) -> int:
        """The bound below which the pipes of modules are."""
        limit = self.number
        return limit - min(OPERATOR, limit // SHARE)

    @property
    def for_clients(self) -> int:
        """The bound below which connections are, but for an operator's."""
        limit = self.number
        return self.for_spawns - min(SPAWNS, limit // SHARE)

    @property
    def used(self) -> int:
        # Since Linux 6.2 the folder's size tells; to list tens of thousands takes milliseconds.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # noqa: PTH116, PTH208
