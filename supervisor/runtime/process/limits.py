"""Set the limits that the kernel keeps: open files, CPU time, memory where a cgroup counts it.

They are set on the process right after its spawn, by prlimit(2): what it forks later inherits them.
There is a window: what it has forked or opened before stays as it was. It is as long as one return
from `posix_spawn`, in which an interpreter has not read its first line.

`open_files` and `cpu_s` bound each process, as the kernel counts them; the tree as a whole is
bounded by `memory_bytes` and `processes` (`memory.Sampler`, where no cgroup does it). RLIMIT_NPROC
is not used: it counts all processes of the *user*, and does nothing for root.
"""

from __future__ import annotations

import resource

from protocol.descriptor.model import Limits
from supervisor.runtime.containment.contained import Containment

CPU_GRACE_S = 1
"""SIGXCPU says so first; a process that ignores it is killed this much later."""


class LimitError(Exception):
    """A limit that was asked for cannot be set; the message says which and why."""


def apply(limits: Limits, containment: Containment) -> None:
    """Set what was asked for on a process just spawned; raises `LimitError`."""
    pid = containment.leader.pid
    if limits.open_files is not None:
        _set(pid, "open_files", resource.RLIMIT_NOFILE, limits.open_files, limits.open_files)
    if limits.cpu_s is not None:
        _set(pid, "cpu_s", resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + CPU_GRACE_S)
    if limits.memory_bytes is not None:
        try:
            containment.limit_memory(limits.memory_bytes)
        except OSError as error:
            raise LimitError(
                f"the limit memory_bytes of {limits.memory_bytes} cannot be set: {error.strerror}"
            ) from None


def _set(pid: int, name: str, kind: int, soft: int, hard: int) -> None:
    try:
        resource.prlimit(pid, kind, (soft, hard))
    except ProcessLookupError:
        return  # it has ended already
    except (OSError, ValueError) as error:
        highest = resource.getrlimit(kind)[1]
        cause = error.strerror if isinstance(error, OSError) else error
        words = f"the limit {name} of {soft} cannot be set: {cause}"
        if highest != resource.RLIM_INFINITY and hard > highest:
            words += f" (the daemon's own hard limit is {highest})"
        raise LimitError(words) from None
