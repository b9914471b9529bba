"""The processes that this one adopts as child subreaper, and the instances that they came of.

With PR_SET_CHILD_SUBREAPER (prctl(2)), a descendant that loses its parent becomes the daemon's
child instead of init's: whatever a module's processes do - setsid, double fork - they stay below
the daemon, and an orphan stands in the daemon's own list of children. Kernel facts used:

- orphans go to the first living thread of the subreaper, which is its main thread, so one short
  file lists them all (find_alive_thread in kernel/exit.c);
- they are handed over before the pidfd of the parent that died becomes readable (exit_notify);
- like any child they leave a zombie, which is reaped by its own pid. Never waitpid(-1): it would
  take the exit statuses of the processes that were spawned.

What tells the instance of an orphan, in this order:

1. its session or group, whose number is that of the instance's leader;
2. its brand (`brand`);
3. the variables in its environment;
4. descent: the instance found it below its leader before it became an orphan (`Subtree`).

An orphan that shows none of these is left alone as long as the daemon lives, and killed at its end
(`unknown`).

There may be thousands of orphans, and each module that ends asks for its own. So each is looked at
in a thread, until it shows its instance, which is kept until it is reaped: until then its number is
not given to another process. On the event loop only the list of children is read (`may_be_left`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import threading
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.brand import RLIMIT_LOCKS, Brands
from supervisor.runtime.containment.contained import Containment, Rung
from supervisor.runtime.containment.ledger import (
    DAEMON_VARIABLE,
    INSTANCE_VARIABLE,
    NO_BRAND,
    same_run,
)
from supervisor.runtime.containment.procfs import MISSED, Stat

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

NOBODY = ""
"""The instance of a child that came of no module."""

SOMEBODY = "?"
"""The instance of a process that came of some module, and does not show which."""

LOOKS = 64
"""So often the search is repeated for those whose parents die meanwhile."""

ANCESTORS = 256
"""Of a process with more ancestors it is not known whose it is."""

TURN_S = 2.0
"""How long one look waits for another, which the kernel may hold up, before it goes without."""


def is_subreaper() -> bool:
    value = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(value))
    return bool(value.value)


def set_subreaper(*, on: bool) -> None:
    """Adopt orphans from now on, or leave them to init again; raises `OSError`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(on))


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    unused = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(argument), unused, unused, unused) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Led(NamedTuple):
    """The leader of an instance, and what its processes inherit."""

    process: Stat
    instance: str
    brand: int


class Owner(NamedTuple):
    """The instance that an orphan came of."""

    start: int
    """The orphan's own start: in another program, its number may be another process's by now."""
    instance: str


class Orphans:
    """The children of this process that it did not spawn.

    With `whole_process`, this process does nothing but be the daemon, so every child not spawned by
    it is an orphan of a module. Without (the daemon runs inside another program), a child counts as
    one only if it shows an instance; a zombie that shows none stays until that program ends.
    """

    def __init__(self, daemon: str, *, whole_process: bool) -> None:
        self.brands = Brands(whole_process=whole_process)
        self._daemon = f"{DAEMON_VARIABLE}={daemon}"
        self._whole_process = whole_process
        # The first process of a container adopts the orphans of others too (`docker exec`), and one
        # that a shell became by `exec` those of what the shell had started.
        self._adopts_modules_only = (
            whole_process and os.getpid() != 1 and not _has_living_descendants()
        )
        self._lock = threading.Lock()
        """Held for each step that reads or changes more than one of the tables below."""
        self._turn = threading.Lock()
        """Held by the one thread that looks at orphans or reaps them."""
        self._spawning = 0
        self._spawned: set[int] = set()
        self._leaders: dict[int, Led] = {}
        self._owners: dict[int, Owner] = {}
        """Of the orphans that show their instance, until they are reaped."""
        self._left: set[int] = set()
        self.reaped_count = 0

    # The children that are spawned, which are no orphans.

    @contextlib.contextmanager
    def spawning(self) -> Iterator[None]:
        """Spawn within this block, and call `spawned` before its end.

        In between, the new child cannot be told from an orphan that shows nothing.
        """
        with self._lock:
            self._spawning += 1
        try:
            yield
        finally:
            with self._lock:
                self._spawning -= 1

    def spawned(self, process: Stat) -> None:
        """Note a process that its spawner reaps."""
        with self._lock:
            self._spawned.add(process.pid)
            self._owners.pop(process.pid, None)

    def leads(self, led: Led) -> None:
        with self._lock:
            self._leaders[led.process.pid] = led

    def reaped(self, process: Stat) -> None:
        """Forget a process that was spawned, and the instance that it led."""
        with self._lock:
            self._spawned.discard(process.pid)
            self._leaders.pop(process.pid, None)

    def leave(self, process: Stat) -> None:
        """Reap a spawned process, which has ended or is about to, with the orphans."""
        with self._lock:
            self._left.add(process.pid)
        self.reaped(process)

    def untold(self, thread: int) -> list[Stat]:
        """Return the children that a spawning thread has forked and not yet told by `spawned`."""
        listed = procfs.children_of_thread(os.getpid(), thread) or ()
        with self._lock:
            new = set(listed).difference(self._spawned)
        return [one for pid in new if (one := procfs.stat(pid)) is not None]

    # The orphans.

    def may_be_left(self, instance: str | None = None) -> bool:
        """Whether an orphan may be of this instance, or there is any; costs one short file.

        For the event loop: it looks at no process, and one that was not looked at may be anything.
        """
        missed = MISSED.count
        listed = self._listed_by_kernel()
        if listed is None or self._left or MISSED.count != missed:
            return True
        if instance is None or not self._whole_process:
            return bool(listed)  # others may reap here, so that a number says little
        owners = (self._owners.get(pid) for pid in listed)
        return any(owner is None or owner.instance == instance for owner in owners)

    def look(self) -> set[int]:
        """Find the instances of new orphans; returns the pids of all orphans. For threads."""
        with self._in_turn() as has_turn:
            listed = self._listed()
            if has_turn:
                with self._lock:
                    for pid in self._owners.keys() - listed:
                        del self._owners[pid]
                for pid in listed:
                    self._look_at(pid)
            return listed

    def of(self, instance: str, seen: Collection[tuple[int, int]] = ()) -> list[Stat]:
        """Return the living orphans of an instance; for threads.

        Those in `seen` (pid, start) are its own if they show nothing else. Empty only if there are
        none: a process that dies hands over its children before it shows that it is dead, so that
        new ones are listed then.
        """
        found: list[Stat] = []
        for _ in range(LOOKS):
            listed = self.look()
            found = [one for pid in listed if (one := self._living(pid, instance, seen))]
            if found or self._listed() <= listed:
                break
        return found

    def unknown(self) -> list[Stat]:
        """Return the living orphans that show nothing; for threads, once no instance lives.

        Empty if they may be somebody else's.
        """
        is_spawning = bool(self._spawning)
        if not self._adopts_modules_only or (is_spawning and self.brands.run == NO_BRAND):
            return []
        unknown = self.look() - self._owners.keys()
        stats = (procfs.stat(pid) for pid in unknown)
        found = [one for one in stats if one is not None and one.lives and one.ppid == os.getpid()]
        # A child that is being spawned has the brand from its first instruction.
        return [one for one in found if not (is_spawning and self._shows_the_run(one))]

    def collect(self) -> bool:
        """Reap the orphans that have ended, one by one; for threads, after a `look`.

        Returns whether there is none that has to be reaped later: during a spawn, one that shows
        nothing may be the new child, and there will be no further signal for it.
        """
        missed, is_all = MISSED.count, True
        with self._in_turn() as has_turn:
            # Without its turn, it could reap one that a look is at, and whose number is free then.
            if not has_turn:
                return False
            for pid in {*self._left, *self._listed()}:
                with contextlib.suppress(ChildProcessError):
                    # None of one that a tracer holds; the end of that one, or of another, leads
                    # here again.
                    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                        continue
                    if not self._may_reap(pid):
                        is_all = not self._whole_process
                        continue
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                    if pid not in self._left:
                        self.reaped_count += 1
                with self._lock:
                    self._left.discard(pid)
                    self._owners.pop(pid, None)
        return is_all and MISSED.count == missed

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[bool]:
        # The kernel may hold up a look at a process; others do not wait for that one.
        has_turn = self._turn.acquire(timeout=TURN_S)
        try:
            yield has_turn
        finally:
            if has_turn:
                self._turn.release()

    def _listed(self) -> set[int]:
        """Return the pids of the children that were not spawned here."""
        listed = self._listed_by_kernel()
        if listed is None:
            me = os.getpid()
            found = {one.pid for one in procfs.every_process() if one.ppid == me}
            with self._lock:
                listed = found - self._spawned
        return listed

    def _listed_by_kernel(self) -> set[int] | None:
        """Return the same; None if the kernel has no list of children."""
        me = os.getpid()
        first = procfs.children_of_thread(me, me)
        if first is None:
            return None
        # Read twice: the kernel may pass over one while its neighbour in the list exits.
        found = {*first, *(procfs.children_of_thread(me, me) or ())}
        with self._lock:
            return found - self._spawned

    def _look_at(self, pid: int) -> None:
        if self._whole_process and pid in self._owners:
            return
        one = procfs.stat(pid)
        if one is None or one.ppid != os.getpid():
            return
        # No process gets into a session from outside: one in the daemon's own came of no module,
        # and is left alone while it lives. As PID 1 of a container, the daemon reaps it all the
        # same.
        instance = NOBODY if one.sid == os.getsid(0) and one.lives else self._instance(one)
        with self._lock:
            if instance is not None and pid not in self._spawned:
                self._owners[pid] = Owner(one.start, instance)

    def _instance(self, one: Stat) -> str | None:
        """Return the living instance that a process shows it is of, if it does."""
        with self._lock:
            leaders = tuple(self._leaders.values())
            led = self._leaders.get(one.sid) or self._leaders.get(one.pgid)
        if led is not None and one.start >= led.process.start:
            return led.instance
        brand = procfs.brand(one.pid)
        if same_run(brand, self.brands.run):
            return next((led.instance for led in leaders if led.brand == brand), None)
        if procfs.has_variables(one.thread, self._daemon):
            name = procfs.variable(one.thread, INSTANCE_VARIABLE)
            return next((led.instance for led in leaders if led.instance == name), None)
        return None

    def _living(self, pid: int, instance: str, seen: Collection[tuple[int, int]]) -> Stat | None:
        owner = self._owners.get(pid)
        if owner is not None and owner.instance != instance:
            return None
        one = procfs.stat(pid)
        if one is None or not one.lives or one.ppid != os.getpid():
            return None
        is_its = (pid, one.start) in seen if owner is None else one.start == owner.start
        return one if is_its else None

    def _may_reap(self, pid: int) -> bool:
        if pid in self._left:
            return True
        owner = self._owners.get(pid)
        if owner is not None and owner.instance:
            one = None if self._whole_process else procfs.stat(pid)
            return self._whole_process or (one is not None and one.start == owner.start)
        with self._lock:
            return self._whole_process and not self._spawning and pid not in self._spawned

    # Processes of any parent.

    def whose(self, pid: int, holds: Callable[[Stat], bool]) -> str | None:
        """Return the instance that a process came of; None if it is no module's. For threads.

        A process that has ended, that a cgroup `holds`, or that descends from this one without a
        mark is `SOMEBODY`'s.
        """
        if pid in (0, 1, os.getpid()):  # 0: of another namespace, in which no module of ours is
            return None
        missed = MISSED.count
        found = self._whose_by_files(pid, holds)
        if found in (None, SOMEBODY) and MISSED.count != missed:
            return self._whose_without_files(pid)
        return found

    def _whose_by_files(self, pid: int, holds: Callable[[Stat], bool]) -> str | None:
        lineage, complete = _lineage(pid)
        below = complete and lineage[-1].ppid == os.getpid()
        for one in lineage if below else lineage[:1]:
            instance = self._instance(one)
            if instance:
                return instance
            if self._shows_the_run(one) or holds(one):
                return SOMEBODY
        if not complete:
            return SOMEBODY
        if not below or not self._adopts_modules_only or lineage[-1].sid == os.getsid(0):
            return None
        with self._lock:  # one that leads no instance, and was spawned, is the daemon's own
            is_own = lineage[-1].pid in self._spawned and not self._spawning
        return None if is_own else SOMEBODY

    def _whose_without_files(self, pid: int) -> str | None:
        """Return the instance of a process by its session and brand: no descriptor is left."""
        try:
            sid, (brand, _) = os.getsid(pid), resource.prlimit(pid, RLIMIT_LOCKS)
        except (OSError, ValueError):
            return SOMEBODY
        with self._lock:
            led = self._leaders.get(sid)
            by_brand = [one.instance for one in self._leaders.values() if one.brand == brand]
        if led is not None:
            return led.instance
        if same_run(brand, self.brands.run):
            return by_brand[0] if by_brand else SOMEBODY
        return None

    def _shows_the_run(self, one: Stat) -> bool:
        brand = procfs.brand(one.pid)
        return same_run(brand, self.brands.run) or procfs.has_variables(one.thread, self._daemon)


def _lineage(pid: int) -> tuple[list[Stat], bool]:
    """Return a process and its ancestors below init or this process, and whether all are."""
    ends = (0, 1, os.getpid())
    lineage: list[Stat] = []
    for _ in range(LOOKS):  # a parent may end meanwhile
        lineage, next_pid = [], pid
        while next_pid not in ends and len(lineage) < ANCESTORS:
            one = procfs.stat(next_pid)
            if one is None:
                break
            lineage.append(one)
            next_pid = one.ppid
        else:
            return lineage, next_pid in ends
        if not lineage:
            break
    return lineage, False


def _has_living_descendants() -> bool:
    found = map(procfs.stat, procfs.descendants(os.getpid()))
    return any(one is not None and one.lives for one in found)


class SubreaperRung(Rung):
    """Makes this process a subreaper until `close`.

    Finding the processes of an instance costs as much as the instance has processes, not as much as
    the machine has: its leader's descendants, and those of its orphans.
    """

    name = "subreaper"

    def __init__(self, adopted: Orphans) -> None:
        """Raises `OSError` if the kernel refuses."""
        self._orphans = adopted
        self._was = is_subreaper()
        set_subreaper(on=True)

    def contain(self, instance: str, leader: Stat, brand: int) -> Subtree:
        return Subtree(instance, leader, brand, self._orphans)

    def close(self) -> None:
        set_subreaper(on=self._was)


class Subtree(Containment):
    def __init__(self, instance: str, leader: Stat, brand: int, adopted: Orphans) -> None:
        super().__init__(instance, leader, brand)
        self._orphans = adopted
        self._seen: frozenset[tuple[int, int]] = frozenset()
        """The living processes (pid, start) that a search found."""

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
        orphans = self._orphans.of(self.instance, self._seen)
        roots = {one.pid: one for one in (*orphans, *leader)}
        below = [pid for root in roots for pid in procfs.descendants(root)]
        stats = (procfs.stat(pid) for pid in below)
        found = [*roots.values(), *(one for one in stats if one is not None and one.lives)]
        # One whose parent exits in the midst of the search may be missing from it.
        missing = self._seen.difference((one.pid, one.start) for one in found)
        self._seen = frozenset(
            (one.pid, one.start)
            for one in (*found, *(procfs.stat(pid) for pid, _ in missing))
            if one is not None and one.lives
        )
        return found
