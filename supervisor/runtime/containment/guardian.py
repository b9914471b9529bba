"""Be the guardian: wait for the daemon to die, then kill all that it left.

    daemon --- pipe ---> guardian

The daemon writes its ledger into the pipe and keeps its end open; the kernel closes it whatever
the daemon dies of. A `bye` before that says that nothing is left. The guardian sleeps in `read`, so
it costs nothing while nothing happens; it leads a session of its own and ignores what a terminal or
a careless `kill` sends to the daemon's group. Standard library only, and few imports, for it stays:
so `_signal` and `named_tuple` stand for `signal` and `typing`, which would be a quarter of it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed has none
import contextlib
import os
import sys

from supervisor.runtime.containment import cgroup_folder, hunt
from supervisor.runtime.containment.ledger import Ledger
from supervisor.runtime.containment.procfs import Stat

WITHIN_S = 30.0
"""How long the guardian goes on killing what does not die; most are gone in milliseconds."""

_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGPIPE")


def main(descriptor: int, record: str) -> None:
    """Guard what the pipe tells of; `record` is the file in which the next daemon looks."""
    for name in _IGNORED:
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.chdir("/")  # not to keep a file system busy
    ledger = _listen(descriptor)
    if ledger.closed:
        return
    while True:
        with contextlib.suppress(hunt.NotKnownError):  # it looks again: no other process will
            killed, survivors = kill_all(ledger, WITHIN_S)
            break
    words = " ".join(map(str, survivors))
    # It is there since the daemon began. If it was removed since, it will not be looked at.
    with contextlib.suppress(OSError):
        file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        os.write(file, f"guardian\t{killed}\t{words}\n".encode())


def kill_all(ledger: Ledger, within_s: float) -> tuple[int, list[int]]:
    """Kill everything of a dead daemon; returns how many there were, and the pids that are left.

    Raises `NotKnownError`.
    """
    seen: set[tuple[int, int]] = set()
    for path in ledger.cgroups:
        seen.update((pid, 0) for pid in cgroup_folder.all_pids(path))
        cgroup_folder.kill(path)

    def find() -> list[Stat]:
        found = ledger.find()
        found += cgroup_folder.members(ledger.cgroups, beside=found)
        seen.update((one.pid, 0) for one in found)
        return found

    survivors = hunt.exterminate(find, within_s)
    for path in ledger.cgroups:
        cgroup_folder.remove_tree(path)
    return len(seen), survivors


def _listen(descriptor: int) -> Ledger:
    ledger = Ledger()
    rest = b""
    while not ledger.closed:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            break
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            ledger.read(line)
    return ledger


def command(descriptor: int, record: str) -> list[str]:
    here = os.path.abspath(__file__)  # noqa: PTH100
    for _ in range(4):  # containment, runtime, supervisor, and the folder they are imported from
        here = os.path.dirname(here)  # noqa: PTH120
    program = (
        "import sys; sys.path.append(sys.argv[1]); "
        "from supervisor.runtime.containment.guardian import main; "
        "main(int(sys.argv[2]), sys.argv[3])"
    )
    return [sys.executable, "-I", "-S", "-c", program, here, str(descriptor), record]
