"""The highest rung: a cgroup v2 folder per instance, killed as one.

    <the daemon's own cgroup>/stdiod.PID.START.UUID/NAME#GENERATION

A process per invocation without a memory limit has none, unless the configuration asks for this
rung: the move would cost its call a millisecond, and it is held as on the rung below. Any other is
moved in right after its spawn, so there is a window: what it forks before the move stays outside.
Three things close it:

1. after the move its children are moved too, and theirs, until no new one is outside;
2. a process that was forked in the window *and* orphaned in it is adopted by the daemon, which is a
   subreaper on this rung as well, and is told by brand, session or marker when the instance ends;
3. when the daemon is killed, the guardian looks for brand and marker besides the cgroup.

The kernel has one lock for all cgroups of the machine (`cgroup_mutex`), which `mkdir`, `rmdir`,
`cgroup.procs` and `cgroup.kill` take. The move of a process holds it for an RCU grace period, so
where others move many, a call waits for it for 100 ms and more. So nothing of that is done on the
event loop, and nothing waits for the removal of an instance's cgroup (`Removals`): it is empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import signal
from collections.abc import Iterable
from functools import partial
from urllib.parse import quote

import trio

from supervisor.runtime.containment import cgroup_folder, procfs
from supervisor.runtime.containment.contained import Containment, Rung, signal_each
from supervisor.runtime.containment.orphans import Orphans, SubreaperRung, Subtree
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.threads import Threads

PREFIX = "stdiod."
NAME_CHARS = 200
"""Folders may have names of 255 bytes; the rest is for what tells long ones apart."""

SWEEPS = 16
"""Rounds of looking for children forked before the move; a second one finds none, usually."""

TOGETHER_S = 0.1
"""What ends within that is removed together: a thread costs a lone call more than its `rmdir`."""


class Cgroup2Rung(Rung):
    name = "cgroup2"
    folder: str

    def __init__(self, parent: str, daemon: str, adopted: Orphans, *, with_tools: bool) -> None:
        """Make the folder below `parent`; raises `OSError` with words if it would not do."""
        me = procfs.stat(os.getpid())
        assert me is not None  # noqa: S101 - this process is there
        self._below = SubreaperRung(adopted)
        self._with_tools = with_tools
        self._orphans = adopted
        self.folder = f"{parent}/{PREFIX}{me.pid}.{me.start}.{daemon[:8]}"
        self._lock = -1
        try:
            remove_stale(parent)
            self._lock = _make_locked(self.folder)
            _check(parent, self.folder)
            self._counts_memory = _count_memory(self.folder)
        except OSError:
            self.close()
            raise

    @property
    def of_tools(self) -> Rung:
        return self if self._with_tools else self._below

    def contain(self, instance: str, leader: Stat, brand: int) -> Cgroup:
        folder = self.new_folder(instance)
        try:
            _move(leader.pid, folder)
        except OSError:
            cgroup_folder.remove_tree(folder)
            raise
        outside = Subtree(instance, leader, brand, self._orphans)
        return Cgroup(folder, outside, memory_counted=self._counts_memory)

    def new_folder(self, instance: str) -> str:
        """Make a cgroup; raises `OSError`."""
        wanted = folder = f"{self.folder}/{_folder_name(instance)}"
        for number in itertools.count(2):
            try:
                os.mkdir(folder)  # noqa: PTH102
            except FileExistsError:
                # Of a former instance of that name, and about to be removed.
                folder = f"{wanted}~{number}"
            except FileNotFoundError:
                os.makedirs(folder)  # noqa: PTH103 - ours was removed
                break
            else:
                break
        return folder

    def holds(self, orphan: Stat) -> bool:
        below = os.path.basename(self.folder)  # noqa: PTH119
        with contextlib.suppress(OSError):
            _, _, inside = _path_of(str(orphan.pid)).partition(f"/{below}/")
            return inside != ""
        return False

    def close(self) -> None:
        cgroup_folder.remove_tree(self.folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._below.close()


def _folder_name(instance: str) -> str:
    # Cut to what a file system takes, two long names would be one, and one end two modules' ends.
    quoted = quote(instance, safe="#")
    if len(quoted) <= NAME_CHARS:
        return quoted
    return quoted[:NAME_CHARS] + "~" + hashlib.sha256(instance.encode()).hexdigest()[:16]


class Cgroup(Containment):
    folder: str

    def __init__(self, folder: str, outside: Subtree, *, memory_counted: bool) -> None:
        """`outside` finds what the cgroup does not hold."""
        super().__init__(outside.instance, outside.leader, outside.brand)
        self.folder = folder
        self._memory_counted = memory_counted
        self._tree = outside
        self._emptied = False
        self._breach: tuple[int, int] | None = None

    def signal(self, *numbers: signal.Signals) -> None:
        signal_each(self.find(), *numbers)

    @property
    def kills_at_once(self) -> bool:
        return self._is_empty()

    def kill(self) -> None:
        """Kill all of the cgroup, and the group: a leader may not have been moved yet."""
        if not self._is_empty():
            cgroup_folder.kill(self.folder)
        self._tree.kill()

    def limit_memory(self, size: int) -> None:
        """Set memory.max, where the memory controller was delegated; else leave it to sampling."""
        self.counts_memory = os.path.exists(f"{self.folder}/memory.max")  # noqa: PTH110
        if self.counts_memory:
            # All of it at once: half a tree is of no use to anybody.
            cgroup_folder.write(self.folder, "memory.oom.group", "1")
            cgroup_folder.write(self.folder, "memory.max", str(size))

    def memory_breach(self) -> tuple[int, int] | None:
        """Read memory.events: `oom_kill` counts what the kernel killed for the limit."""
        if self._emptied or not self._memory_counted:
            return self._breach
        if not cgroup_folder.counter(self.folder, "memory.events", "oom_kill"):
            return None
        limit = cgroup_folder.number(self.folder, "memory.max")
        return limit, cgroup_folder.number(self.folder, "memory.peak") or limit

    def find(self) -> list[Stat]:
        return self._with_members(self._tree.find())

    @property
    def may_have_left(self) -> bool:
        return not self._is_empty() or self._tree.may_have_left

    def left(self) -> list[Stat]:
        return self._with_members(self._tree.left())

    def _with_members(self, outside: list[Stat]) -> list[Stat]:
        if self._emptied:
            return outside
        return [
            *outside,
            *(one for one in cgroup_folder.members([self.folder], outside) if one.lives),
        ]

    def remove(self) -> None:
        try:
            os.rmdir(self.folder)  # noqa: PTH106
        except FileNotFoundError:
            pass
        except OSError:  # there may be others below it
            cgroup_folder.remove_tree(self.folder)

    def _is_empty(self) -> bool:
        # Most instances end with no other process in there, and then none can be forked into it. To
        # read that takes no lock for which others could make us wait.
        if not self._emptied and cgroup_folder.is_empty(self.folder):
            self._breach = self.memory_breach()  # as long as the folder is there
            self._emptied = True
        return self._emptied


class Removals:
    """Removes the cgroups of instances that have ended, many at a time; for the event loop."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._ended: list[Containment] = []
        self._some = trio.Event()

    def add(self, containment: Containment) -> None:
        self._ended.append(containment)
        self._some.set()

    async def run(self) -> None:
        """Remove until cancelled; what is left goes with the rung's folder."""
        while True:
            await self._some.wait()
            await trio.sleep(TOGETHER_S)
            self._some = trio.Event()
            ended = self._ended[:]
            with contextlib.suppress(OSError):  # without a thread, it is done with the next ones
                await self._threads.run("removing cgroups", partial(_remove, ended))
                del self._ended[: len(ended)]


def _remove(ended: Iterable[Containment]) -> None:
    for one in ended:
        one.remove()


def _count_memory(folder: str) -> bool:
    # Only if the controller was delegated to us; else memory is sampled.
    try:
        cgroup_folder.write(folder, "cgroup.subtree_control", "+memory")
    except OSError:
        return False
    return True


def _move(leader: int, folder: str) -> None:
    # ESRCH: it has ended already; what it forked is found by descent.
    with contextlib.suppress(ProcessLookupError):
        cgroup_folder.write(folder, "cgroup.procs", str(leader))
    moved = {leader}
    for _ in range(SWEEPS):
        missed = procfs.MISSED.count
        new = [pid for pid in procfs.descendants(leader) if pid not in moved]
        if not new and procfs.MISSED.count == missed:
            return
        for pid in new:
            moved.add(pid)
            with contextlib.suppress(OSError):
                cgroup_folder.write(folder, "cgroup.procs", str(pid))


def own_folder() -> str:
    """Return the folder of this process's cgroup v2; raises `OSError` with words.

    Found through /proc/self/mountinfo, since on a hybrid host cgroup v2 is mounted beside the v1
    controllers, often at /sys/fs/cgroup/unified.
    """
    path = _path_of("self")
    for line in procfs.read_bytes("/proc/self/mountinfo").splitlines():
        fields, _, kind = line.partition(b" - ")
        words = fields.split()
        if kind.split()[:1] != [b"cgroup2"]:
            continue
        root, mounted = (os.fsdecode(_unescaped(word)) for word in words[3:5])
        inside = os.path.relpath(path, root)
        if not inside.startswith(".."):
            return os.path.normpath(f"{mounted}/{inside}")
    raise OSError("cgroup v2 is not mounted where this process can see it")


def _path_of(process: str) -> str:
    for line in procfs.read_bytes(f"/proc/{process}/cgroup").splitlines():
        if line.startswith(b"0::"):
            return os.fsdecode(line[3:])
    raise OSError("this kernel has no cgroup v2")


def _unescaped(word: bytes) -> bytes:
    # Space, tab, newline and backslash are written in octal there (proc(5)).
    for octal, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        word = word.replace(octal, byte)
    return word


def _check(parent: str, folder: str) -> None:
    if "\n" in folder or "\t" in folder:
        raise OSError(f"the cgroup {folder!r} has a name that no program expects")
    if not os.path.exists(f"{folder}/cgroup.kill"):  # noqa: PTH110
        raise OSError("this kernel has no cgroup.kill (Linux 5.14 has it)")
    # A move needs the right to write to where it goes, and to what is above both ends.
    for place in (folder, parent):
        if not os.access(f"{place}/cgroup.procs", os.W_OK):
            raise OSError(f"no process may be moved within {parent}: it is not delegated")
    kind = procfs.read_bytes(f"{folder}/cgroup.type").strip()
    if kind not in (b"", b"domain"):
        raise OSError(f"the cgroup {parent} takes no processes (cgroup.type: {kind.decode()})")


def _make_locked(folder: str) -> int:
    """Make a folder that `remove_stale` lets be; returns the descriptor that holds its lock."""
    while True:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # Another daemon that has it is removing the empty folder: a matter of moments.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(folder):  # noqa: PTH110
                return lock
            os.close(lock)


def remove_stale(parent: str) -> None:
    """Remove the empty folders of daemons that are no more.

    A daemon that lives holds the lock of its folder. Its pid would not do: it may be in another PID
    namespace.
    """
    for name in os.listdir(parent):  # noqa: PTH208
        if not name.startswith(PREFIX):
            continue
        folder = f"{parent}/{name}"
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                cgroup_folder.remove_tree(folder)
            finally:
                os.close(lock)
