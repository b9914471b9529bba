"""The processes this one adopts as child subreaper, and the instances that they came of.

With PR_SET_CHILD_SUBREAPER (prctl(2)), a descendant that loses its parent becomes the daemon's
child instead of init's: whatever a module's processes do - setsid, double fork - they stay below
the daemon, and an orphan stands in the daemon's own list of children. Kernel facts used:

- orphans go to the first living thread of the subreaper, which is its main thread, so one short
  file lists them all (find_alive_thread in kernel/exit.c);
- they are handed over before the pidfd of the parent that died becomes readable (exit_notify);
- like any child they leave a zombie, which is reaped by its own pid. Never waitpid(-1): it would
  take the exit statuses of the processes that were spawned.

An orphan is told by its session or group, which is its leader's number, by its brand or by its
environment marker, or because it was seen below its leader before. One that shows nothing of that
is a stray: it is given to the only instance that can have started it, when all instances that were
there at its start have ended but one.

There may be thousands, and each module that ends asks for its own. So each is looked at once, in a
thread, and what it was told by is kept until it is reaped: until then its number is its own, and
nobody else's. On the event loop only the list of children is read, to see whether it has somebody
who was not looked at yet (`may_be_left`).

The middle rung rests on that (`SubreaperRung`): nothing of a module leaves the daemon's tree.
Finding the processes of an instance costs as much as the instance has processes, not as much as the
machine has: its leader's descendants, and those of the daemon's adopted children that came of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator
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

KNOWN = 64
"""Fewer processes that are known to be an instance's are not worth looking through."""

LOOKS = 64
"""So often the search is repeated for those whose parents die meanwhile."""

ANCESTORS = 256
"""Of a process with more of them it is not known whose it is."""

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


class Known(NamedTuple):
    """A process that was seen to be of an instance."""

    start: int
    instance: str


class Led(NamedTuple):
    """The leader of an instance, and what tells those who came of it."""

    process: Stat
    instance: str
    brand: int


class Looked(NamedTuple):
    """The children at one look, and the living ones among them that show no owner."""

    at: set[int]
    strays: tuple[Stat, ...]
    number: int
    """How many looks had begun; of two, the greater one is the newer."""


class Orphans:
    """The children of this process that it did not spawn.

    With `whole_process`, this process does nothing but be the daemon, so every child not spawned by
    it is an orphan of a module. Without (the daemon runs inside another program), a child counts as
    one only on evidence; a zombie that was never seen alive shows none, and stays until that
    program ends.
    """

    def __init__(self, daemon: str, *, whole_process: bool) -> None:
        self.brands = Brands(whole_process=whole_process)
        self._daemon = f"{DAEMON_VARIABLE}={daemon}"
        self._whole_process = whole_process
        # The first process of a container adopts the orphans of others too (`docker exec`), and one
        # that a shell became by `exec` those of what the shell had started.
        alone = os.getpid() != 1 and not _living_children()
        self._adopts_modules_only = whole_process and alone
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self.looks_begun = 0
        self._saw_all = True
        """Whether the last look missed nothing (`procfs.MISSED`), so that others can use it."""
        self._last = Looked(set(), (), 0)
        self._spawning = 0
        self._spawned: dict[int, Stat] = {}
        self._leaders: dict[int, Led] = {}
        self._known: dict[int, Known] = {}
        self._adopted: dict[int, Known] = {}
        """The orphans whose instance is known; until reaped."""
        self._left: dict[int, Callable[[], None]] = {}
        self.put_off = False
        """Whether the last `collect` left a zombie for later: it must be called again."""
        self.reaped_count = 0
        self._look_at = KNOWN
        """How many known ones there may be before those that are gone are forgotten."""

    @contextlib.contextmanager
    def spawning(self) -> Iterator[None]:
        """Spawn within this block, and call `spawned` before its end.

        In between there is a child of which nothing was told yet; what carries no evidence may not
        be taken for an orphan then.
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
            self._spawned[process.pid] = process
            self._adopted.pop(process.pid, None)

    def leads(self, led: Led) -> None:
        with self._lock:
            self._leaders[led.process.pid] = led

    def reaped(self, process: Stat) -> None:
        with self._lock:
            self._spawned.pop(process.pid, None)
            self._leaders.pop(process.pid, None)

    def leave(self, process: Stat, reaped: Callable[[], None]) -> None:
        """Reap a child that has ended, or is about to, with the orphans; calls `reaped` then."""
        with self._lock:
            self._left[process.pid] = reaped
        self.reaped(process)

    def untold(self, thread: int) -> list[Stat]:
        """Return the children of a thread that spawns of which `spawned` has not told yet."""
        listed = procfs.children_of_thread(os.getpid(), thread) or ()
        with self._lock:
            new = set(listed).difference(self._spawned)
        return [one for pid in new if (one := procfs.stat(pid)) is not None]

    def may_be_left(self, instance: str | None = None) -> bool:
        """Whether an orphan may be of this instance, or of any; costs one short file.

        On the event loop, so no process is looked at: an orphan not seen before may be anything's.
        """
        missed = MISSED.count
        listed = self._listed()
        if listed is None or self._left or MISSED.count != missed:
            return True
        if instance is None or not self._whole_process:
            return bool(listed)  # others may reap here, so that a number says little
        with self._lock:
            whose = map(self._adopted.get, listed)
            return any(one is None or one.instance == instance for one in whose)

    def look(self) -> Looked:
        """Look at the orphans that were not looked at yet; for threads.

        A caller that comes during a look waits for one that began after it came, which all that
        wait have in common.
        """
        asked = self.looks_begun
        with self._in_turn() as own_turn:
            if own_turn and (self.looks_begun == asked or not self._saw_all):
                self.looks_begun += 1
                missed = MISSED.count
                listed = self._listed_or_found()
                self._last = Looked(listed, tuple(self._look(listed)), self.looks_begun)
                self._saw_all = MISSED.count == missed
            return self._last

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[bool]:
        # The kernel may hold up a look at a process; others do not wait for that one.
        own_turn = self._looking.acquire(timeout=TURN_S)
        try:
            yield own_turn
        finally:
            if own_turn:
                self._looking.release()

    def _look(self, listed: set[int]) -> Iterator[Stat]:
        me, own = os.getpid(), os.getsid(0)
        with self._lock:
            for pid in self._adopted.keys() - listed:
                del self._adopted[pid]
        for pid in listed:
            if self._whole_process and pid in self._adopted:
                continue
            one = procfs.stat(pid)
            if one is None or one.ppid != me:
                continue
            # No process gets into a session from outside: one in the daemon's own came of no
            # module, and is left alone while it lives. As PID 1 of a container, the daemon reaps
            # it all the same.
            instance = NOBODY if one.sid == own and one.lives else self._instance(one)
            with self._lock:
                # A child of which `spawned` has not told yet shows its brand, if there is one.
                untold = self._spawning and self.brands.run == NO_BRAND
                if instance is not None and pid not in self._spawned:
                    self._adopted[pid] = known = Known(one.start, instance)
                    if instance:
                        self._known[pid] = known
            may_be_stray = one.lives and not untold and self._adopts_modules_only
            if instance is None and may_be_stray and not self._shows_the_run(one):
                yield one

    def _listed(self) -> set[int] | None:
        """Return the children that were not spawned here; None if the kernel has no such list."""
        me = os.getpid()
        first = procfs.children_of_thread(me, me)
        if first is None:
            return None
        # Read twice: the kernel may pass over one while its neighbour in the list exits.
        return self._not_spawned({*first, *(procfs.children_of_thread(me, me) or ())})

    def _listed_or_found(self) -> set[int]:
        listed = self._listed()
        if listed is None:
            me = os.getpid()
            listed = self._not_spawned(
                {one.pid for one in procfs.every_process() if one.ppid == me}
            )
        return listed

    def _not_spawned(self, listed: set[int]) -> set[int]:
        with self._lock:
            listed.difference_update(self._spawned)
        return listed

    def _instance(self, one: Stat) -> str | None:
        """Return the instance that an orphan shows it is of, if it does."""
        seen = self._owner_seen(one)
        if seen is not None:
            return seen
        brand = procfs.brand(one.pid)
        with self._lock:
            leaders = tuple(self._leaders.values())
            led = self._leaders.get(one.sid) or self._leaders.get(one.pgid)
        if led is not None and one.start >= led.process.start:
            return led.instance
        if same_run(brand, self.brands.run):
            # One of an instance that has ended, or a child of which `spawned` has not told yet.
            return next((led.instance for led in leaders if led.brand == brand), None)
        if procfs.has_variables(one.thread, self._daemon):
            name = procfs.variable(one.thread, INSTANCE_VARIABLE)
            return next((led.instance for led in leaders if led.instance == name), None)
        return None

    def whose(self, pid: int, holds: Callable[[Stat], bool]) -> str | None:
        """Return the instance that a process came of; None if it is no module's. For threads.

        One that is gone, or that a cgroup `holds`, or that stands below this process and shows
        nothing, is `SOMEBODY`'s.
        """
        me = os.getpid()
        if pid in (0, 1, me):  # 0: of another namespace, in which no module of ours is
            return None
        missed = MISSED.count
        found = self._whose_by_files(pid, me, holds)
        if found in (None, SOMEBODY) and MISSED.count != missed:
            return self._whose_without_files(pid)
        return found

    def _whose_by_files(self, pid: int, me: int, holds: Callable[[Stat], bool]) -> str | None:
        lineage, complete = self._lineage(pid, me)
        below = complete and lineage[-1].ppid == me
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

    def _lineage(self, pid: int, me: int) -> tuple[list[Stat], bool]:
        """Return a process and its ancestors below init or this process, and whether all are."""
        lineage: list[Stat] = []
        for _ in range(LOOKS):  # a parent may end meanwhile
            lineage, next_pid = [], pid
            while next_pid not in (0, 1, me) and len(lineage) < ANCESTORS:
                one = procfs.stat(next_pid)
                if one is None:
                    break
                lineage.append(one)
                next_pid = one.ppid
            else:
                return lineage, next_pid in (0, 1, me)
            if not lineage:
                break
        return lineage, False

    def _shows_the_run(self, one: Stat) -> bool:
        brand = procfs.brand(one.pid)
        return same_run(brand, self.brands.run) or procfs.has_variables(one.thread, self._daemon)

    def of(self, held: Containment) -> list[Stat]:
        """Return the living orphans that came of an instance; for threads.

        Empty only if there are none: a process that dies hands over its children before it shows
        that it is dead, so that new ones are listed then, and looked at.
        """
        leader, found = held.leader, list[Stat]()
        for _ in range(LOOKS):
            looked = self.look()
            with self._lock:
                adopted = tuple(self._adopted.items())
            found = [one for one in looked.strays if self._is_left_over(one, leader)]
            for pid, known in adopted:
                if known.instance == held.instance:
                    one = procfs.stat(pid)
                    if one is not None and one.start == known.start and one.lives:
                        found.append(one)
            found = [one for one in found if one.start >= leader.start]
            if found or self._listed_or_found() <= looked.at:
                break
        self.remember(found, held.instance)
        return found

    def remember(self, processes: Iterable[Stat], instance: str) -> None:
        """Note that these are of the instance, so that they are told and reaped if adopted.

        And that they are its own to the end: one that exits loses its environment (exit_mm) some
        time before its files (exit_files), and is a zombie only then (exit_notify).
        """
        with self._lock:
            self._known.update((one.pid, Known(one.start, instance)) for one in processes)

    def ownerless(self, strays: Iterable[Stat]) -> list[Stat]:
        """Return those that no living instance can own: all began after they did."""
        strays = tuple(strays)
        if not strays:
            return []
        with self._lock:
            if self._spawning:  # perhaps of the one that is just beginning
                return []
            since = min((led.process.start for led in self._leaders.values()), default=None)
        return [one for one in strays if since is None or one.start < since]

    def collect(self) -> None:
        """Reap the orphans that have ended, one by one; for threads, after a `look`.

        During a spawn, one that shows no evidence may be the new child: it is put off, and there
        will be no further signal for it.
        """
        with self._in_turn() as own_turn:
            # Else its number may be another's while it is still thought to be its own.
            if own_turn:
                self._collect()
            else:
                self.put_off = self._whole_process

    def _collect(self) -> None:
        self._collect_the_left()
        reaped, put_off, missed = 0, False, MISSED.count
        for pid in self._listed_or_found():
            with contextlib.suppress(OSError):
                # None of one that a tracer holds; the end of that one, or of another, comes here.
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    continue
                if not self._may_reap(pid):
                    put_off = put_off or self._whole_process
                    continue
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
                    reaped += 1
                    with self._lock:
                        self._adopted.pop(pid, None)
        with self._lock:
            self.reaped_count += reaped
        self.put_off = put_off or MISSED.count != missed
        self._forget_the_gone()

    def _collect_the_left(self) -> None:
        for pid in tuple(self._left):
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None:
                    continue
            with self._lock:
                reaped = self._left.pop(pid, None)
                self._adopted.pop(pid, None)
            if reaped is not None:
                reaped()

    def _forget_the_gone(self) -> None:
        # One that is gone is harmless, since start times are compared: only its room counts. Each
        # look is at no more than have come since the last one, so it costs O(1) on average.
        with self._lock:
            if len(self._known) < self._look_at:
                return
            known = tuple(self._known.items())
        for pid, one in known:
            missed = MISSED.count
            now = procfs.stat(pid)
            if MISSED.count == missed and (now is None or now.start != one.start):
                with self._lock:
                    self._known.pop(pid, None)
        with self._lock:
            self._look_at = max(KNOWN, 2 * len(self._known))

    def _may_reap(self, pid: int) -> bool:
        one = procfs.stat(pid)
        if one is not None and self._owner_seen(one) is not None:
            return True
        with self._lock:
            return self._whole_process and not self._spawning and pid not in self._spawned

    def _owner_seen(self, one: Stat) -> str | None:
        with self._lock:
            known = self._known.get(one.pid)
        return known.instance if known is not None and known.start == one.start else None

    def _is_left_over(self, one: Stat, leader: Stat) -> bool:
        with self._lock:
            if not self._adopts_modules_only or self._spawning:
                return False
            others = [
                other
                for pid, other in self._leaders.items()
                if pid != leader.pid and other.process.start <= one.start
            ]
            if one.pid in self._spawned or one.sid in self._spawned:
                return False
        return not others


def _living_children() -> list[Stat]:
    found = [procfs.stat(pid) for pid in procfs.descendants(os.getpid())]
    return [one for one in found if one is not None and one.lives]


class SubreaperRung(Rung):
    """Makes this process a subreaper until `close`."""

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
        self._orphans.remember(processes, self.instance)
