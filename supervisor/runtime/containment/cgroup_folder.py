"""Use the files of a cgroup v2 folder (Documentation/admin-guide/cgroup-v2.rst).

Kernel facts: `cgroup.kill` (Linux 5.14) kills a whole subtree, forks in progress included, so a
fork bomb has no chance; a folder with no living process and no folder in it can be removed; a
zombie is not listed in `cgroup.procs`, unless other threads of it run; `cgroup.kill` signals the
main threads, and one that has ended takes no signal (complete_signal in kernel/signal.c), so such a
process is signalled as a whole; none of this needs a controller.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed has none
import contextlib
import os
from collections.abc import Iterable

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.procfs import Stat


def write(path: str, file: str, text: str) -> None:
    """Write to one of a cgroup's files; raises `OSError`."""
    descriptor = os.open(f"{path}/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def pids(path: str) -> list[int]:
    """Return the living processes in a cgroup, not those in the folders below it."""
    listed = procfs.read_records(f"{path}/cgroup.procs")
    return [int(word) for word in listed.split() if word != b"0"]


def is_empty(path: str) -> bool:
    """Return whether no process lives in a cgroup or below; False if that cannot be read."""
    return b"populated 0" in procfs.read_bytes(f"{path}/cgroup.events")


def all_pids(path: str) -> list[int]:
    """Return the living processes in a cgroup and below."""
    return [pid for folder in subtree(path) for pid in pids(folder)]


def subtree(path: str) -> list[str]:
    """Return a cgroup's folder and all below it, the deepest first."""
    walked = os.walk(path, topdown=False, onerror=procfs.MISSED.note)
    return [folder for folder, _, _ in walked]


def kill(path: str) -> bool:
    """Kill everything in a cgroup and below; False if it has no `cgroup.kill` (or is gone)."""
    try:
        write(path, "cgroup.kill", "1")
    except OSError:
        return False
    for one in members([path]):
        if one.thread != one.pid:
            procfs.send(one, _signal.SIGKILL)
    return True


def members(paths: Iterable[str], beside: Iterable[Stat] = ()) -> list[Stat]:
    """Return the processes in these cgroups and below that are not among `beside`."""
    known = {one.pid for one in beside}
    found = [pid for path in paths for pid in all_pids(path)]
    return [one for pid in found if pid not in known and (one := procfs.stat(pid)) is not None]


def remove_tree(path: str) -> bool:
    """Remove a cgroup and those below it, as far as they are empty; True if nothing is left."""
    for folder in subtree(path):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106
    return not os.path.exists(path)  # noqa: PTH110


def counter(path: str, file: str, key: str) -> int:
    """Return a figure of a `key value` file, 0 if it is not there."""
    for line in procfs.read_bytes(f"{path}/{file}").splitlines():
        name, _, value = line.partition(b" ")
        if name == key.encode():
            return int(value)
    return 0


def number(path: str, file: str) -> int:
    """Return the figure a file holds, 0 if it holds none (`max`, say) or is not there."""
    text = procfs.read_bytes(f"{path}/{file}").strip()
    return int(text) if text.isdigit() else 0
