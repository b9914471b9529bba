"""Read what /proc says about processes; one that is gone is None or nothing, never an error.

A pid alone names nobody for long: its number is given to another after the process was reaped. So
a process is named here by its pid and its start time (field 22 of /proc/PID/stat, in clock ticks
since boot), which together are unique until the next boot.

The letter alone does not say that a process is dead. One whose main thread has ended while others
run (pthread_exit) shows `Z`, has no memory, no environment and no files in /proc/PID, and works on:
all of it is to be seen through a thread that runs. /proc/TID is one, too, though no list has it.

What cannot be read because no descriptor or memory is left is not gone: it is not known. It is
nothing here as well, and counted (`MISSED`), for callers that must tell the two apart.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed has none
import errno
import os
import time

from supervisor.runtime.containment.named_tuple import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

READ_BYTES = 16384
"""Nearly all that is read here is shorter."""

LAST_READ_BYTES = 2048
"""Of records that are shorter than this, a read that brings less than this was the last: the kernel
puts as many as fit into a page of 4096 bytes (seq_read_iter in fs/seq_file.c)."""

LINKS_OF_ONE_THREAD = 3
"""Of the folder /proc/PID/task; what a process has forked is then in one list."""

THREADS = 64
"""Of a process with more threads than this, not all are asked for a tracer: one that traces them
all is found by any."""

ENDED = frozenset("ZXx")
"""States of a thread that runs no more: a zombie, or one that is being taken apart."""


class Missed:
    """What could not be read for want of descriptors or memory, in whatever thread.

    If `count` is the same before and after a look, the look was at all there is.
    """

    count = 0

    def note(self, error: OSError) -> None:
        """Count an error that says nothing of the process."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            self.count += 1


MISSED = Missed()


class Stat(NamedTuple):
    pid: int
    state: str
    """The letter of its main thread; if that has ended, of another thread that runs."""
    ppid: int
    pgid: int
    sid: int
    start: int
    """Clock ticks since boot."""
    thread: int
    """The thread whose letter that is: for what a process has no more once its main thread ended,
    namely memory and environment."""

    @property
    def lives(self) -> bool:
        """Whether any thread of it can still run."""
        return self.state not in ENDED


def read_bytes(path: str, last_read_bytes: int = 1) -> bytes:
    """Return a file's bytes; `b""` if the process is gone or is none of our business."""
    try:
        return _contents(path, last_read_bytes)
    except OSError as error:
        MISSED.note(error)
        return b""


def read_records(path: str) -> bytes:
    """Return the bytes of a file of short records: one of /proc/PID, or a list of pids.

    `b""` as in `read_bytes`; it takes one read where that takes two.
    """
    return read_bytes(path, LAST_READ_BYTES)


def _contents(path: str, last_read_bytes: int) -> bytes:
    # A file object would ask for the size (twice) and the position, which mean nothing here: half
    # of the system calls, and more than half of the time.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while True:
            data = os.read(descriptor, READ_BYTES)
            found += data
            if len(data) < last_read_bytes:
                return found
    finally:
        os.close(descriptor)


def stat(pid: int) -> Stat | None:
    fields = _stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 20:  # noqa: PLR2004 - through field 22, the start time
        return None
    state, thread = fields[0].decode(), pid
    if state in ENDED and fields[17] != b"1":  # num_threads
        state, thread = _who_runs(pid, state)
    return Stat(
        pid,
        state,
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        thread,
    )


def _stat_fields(path: str) -> list[bytes]:
    data = read_records(path)
    # The name stands in parentheses and may hold anything, parentheses and newlines too.
    return data[data.rfind(b")") + 1 :].split()


def _who_runs(pid: int, state: str) -> tuple[str, int]:
    # Threads that a tracer holds are dead and still listed.
    for thread in _threads(pid):
        found = _stat_fields(f"/proc/{pid}/task/{thread}/stat")[:1]
        if found and found[0].decode() not in ENDED:
            return found[0].decode(), int(thread)
    return state, pid


def every_process() -> list[Stat]:
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError as error:
        MISSED.note(error)
        return []
    return [found for pid in pids if (found := stat(pid)) is not None]


def children(pid: int) -> list[int] | None:
    """Return the children of a process, of all its threads; None if the kernel has no such list.

    The list (CONFIG_PROC_CHILDREN) may miss one while a neighbour in it exits: look again until
    nothing changes.
    """
    found: list[int] = []
    for thread in _threads(pid):
        listed = children_of_thread(pid, thread)
        if listed is None:
            return None
        found += listed
    return found


def _threads(pid: int) -> list[str]:
    tasks = f"/proc/{pid}/task"
    try:
        # Its links are `.`, `..` and one for each thread (proc_task_getattr in fs/proc/base.c).
        alone = os.stat(tasks).st_nlink == LINKS_OF_ONE_THREAD  # noqa: PTH116
        return [str(pid)] if alone else os.listdir(tasks)  # noqa: PTH208
    except OSError as error:
        MISSED.note(error)
        return []


def children_of_thread(pid: int, thread: int | str) -> list[int] | None:
    """Return the children that a thread forked or was given; None if there is no such list."""
    try:
        listed = _contents(f"/proc/{pid}/task/{thread}/children", LAST_READ_BYTES)
        return [int(word) for word in listed.split()]
    except FileNotFoundError:
        return [] if not os.path.exists(f"/proc/{pid}/task/{thread}") else None  # noqa: PTH110
    except OSError as error:
        MISSED.note(error)
        return []


def descendants(pid: int) -> list[int]:
    """Return the living and dead processes below one, its children first."""
    found: list[int] = []
    seen = {pid}
    level = [pid]
    while level:
        below: list[int] = []
        for parent in level:
            listed = children(parent)
            if listed is None:
                return _descendants_by_scan(pid)
            below += [child for child in listed if child not in seen]
            seen.update(below)
        found += below
        level = below
    return found


def _descendants_by_scan(pid: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for one in every_process():
        below.setdefault(one.ppid, []).append(one.pid)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in below.get(parent, ())]
        found += level
    return found


def has_variables(thread: int, *entries: str) -> bool:
    """Whether each of the `NAME=value` stands in the environment the process was started with."""
    environment = b"\0" + read_bytes(f"/proc/{thread}/environ")
    return all(b"\0" + os.fsencode(entry) + b"\0" in environment for entry in entries)


def variable(thread: int, name: str) -> str | None:
    """Return a variable of the environment that the process was started with."""
    environment = b"\0" + read_bytes(f"/proc/{thread}/environ")
    _, found, rest = environment.partition(b"\0" + os.fsencode(name) + b"=")
    return os.fsdecode(rest.partition(b"\0")[0]) if found else None


def name(pid: int) -> str:
    """Return the short name of a process (comm), which a kernel thread and a zombie have too."""
    return read_records(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n")


def tracer(pid: int) -> int | None:
    """Return the pid of the tracer of a process or of a thread of it, dead ones too (ptrace(2))."""
    for thread in _threads(pid)[:THREADS]:
        status = read_bytes(f"/proc/{pid}/task/{thread}/status")
        _, _, rest = status.partition(b"\nTracerPid:")
        found = rest.split(None, 1)[:1]
        if found and found[0] != b"0":
            return int(found[0])
    return None


def exit_status(pid: int) -> int | None:
    """Return the wait status of a zombie that nobody has reaped; None if it is not shown to us."""
    fields = read_records(f"/proc/{pid}/stat").split()
    try:
        # For processes of others the kernel writes 0 there (do_task_stat in fs/proc/array.c).
        shown = os.geteuid() in (0, os.stat(f"/proc/{pid}").st_uid)  # noqa: PTH116
    except OSError:
        return None
    return int(fields[-1]) if shown and fields else None


def brand(pid: int) -> int:
    """Return the soft limit RLIMIT_LOCKS of a process, of a zombie too; -1 if it has none."""
    _, _, rest = read_bytes(f"/proc/{pid}/limits").partition(b"\nMax file locks")
    soft = rest.split(None, 1)[:1]
    return int(soft[0]) if soft and soft[0].isdigit() else -1


def rss_bytes(thread: int) -> int:
    """Return the resident memory of a process, pages that it shares included."""
    fields = read_records(f"/proc/{thread}/statm").split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0


def rss_bytes_of_process(pid: int) -> int:
    """As `rss_bytes`, of a process whose main thread may have ended."""
    found = rss_bytes(pid)
    if found:
        return found
    now = stat(pid)
    return 0 if now is None or now.thread == pid else rss_bytes(now.thread)


def cpu_s(pid: int) -> float | None:
    """Return the processor time of all threads of a process together."""
    fields = _stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 13:  # noqa: PLR2004 - through field 15, after utime the stime
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def run_delay_s(pid: int) -> float:
    """Return for how long a process could have run and was not let (s).

    Of its threads, that which had to wait longest counts. 0 where the kernel does not tell.
    """
    found = (read_bytes(f"/proc/{pid}/task/{thread}/schedstat").split() for thread in _threads(pid))
    return max((int(fields[1]) for fields in found if len(fields) > 1), default=0) / 1e9


def pss_bytes(thread: int) -> int:
    """Return its resident memory with each shared page divided by those who share it.

    The kernel walks the page tables for this figure: it costs milliseconds per GB, where
    `rss_bytes` costs microseconds. Without the right to read it, this is `rss_bytes`.
    """
    for line in read_bytes(f"/proc/{thread}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return rss_bytes(thread)


def now_ticks() -> int:
    """Return this moment in clock ticks since boot, as a process's start is told."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


def boot_id() -> str:
    """Return what names this boot of the machine; start times mean nothing in another one."""
    return read_bytes("/proc/sys/kernel/random/boot_id").decode(errors="replace").strip()


def send(process: Stat, *numbers: int) -> bool:
    """Signal this very process, and no other that may have its number by now.

    The pidfd is taken first and the start time looked at after: from then on the descriptor means
    that process, whatever becomes of the number. Returns False if it is gone or not ours to signal.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = stat(process.pid)
        if now is None or now.start != process.start or not now.lives:
            return False
        for number in numbers:
            _signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
