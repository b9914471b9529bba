"""A number that a process hands on to all that it forks, whatever that does to hide.

It is the soft limit RLIMIT_LOCKS. Linux has not looked at this limit since 2.4.25 (getrlimit(2)),
but keeps it for each process: it goes through fork, exec, setsid and the death of a parent; it is
in no environment and under no descriptor; and everybody may read it in /proc/PID/limits, of a
zombie too. Only a program that sets this very limit loses it.

    brand = the run's number << SERIAL_BITS | a serial number of the instance

A limit belongs to a process, not to a thread. So where this process is nothing but the daemon, it
takes the brand itself for the moment of the fork, one thread after the other: the child has it
before its first instruction. A fork returns only when its child has become another program, which
a slow disk may hold up; but the limits are copied before the child is listed as a child (kernel:
copy_process), so from then on the next one may have its turn. Inside another program, which may be
forking something else in that moment, the child gets the brand right after its spawn instead.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import threading
from collections.abc import Iterator
from typing import NamedTuple

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.ledger import NO_BRAND, SERIAL_BITS

LOOK_S = 0.005
"""How often a thread checks whether the one before it has forked; most have sooner."""

RLIMIT_LOCKS = 10
"""The same on all of Linux (include/uapi/asm-generic/resource.h); Python has no name for it."""

HIGHEST = 1 << 62
FEWEST_RUNS = 1 << 32
"""Two runs must not have one number, or the end of one would kill the other's modules."""


class _Turn(NamedTuple):
    """The thread that forks at the moment, and its brand, which no other has."""

    thread: int
    brand: int


class Brands:
    def __init__(self, *, whole_process: bool) -> None:
        """`whole_process`: this process is nothing but the daemon, and may be branded itself."""
        _, hard = self._own = resource.getrlimit(RLIMIT_LOCKS)
        runs = (HIGHEST if hard == resource.RLIM_INFINITY else min(hard, HIGHEST)) >> SERIAL_BITS
        self.run = _random(runs) << SERIAL_BITS if runs >= FEWEST_RUNS else NO_BRAND
        self._serials = itertools.count()
        self._takes_it_itself = whole_process
        self._turns = threading.Condition()
        self._turn: _Turn | None = None
        with self.forking(self.run):
            if whole_process and procfs.brand(os.getpid()) != self.run:
                self.run = NO_BRAND  # a kernel that is Linux by name only, or a /proc without it

    def next(self) -> int:
        """Return the brand for one more process; `NO_BRAND` if the hard limit is too low."""
        if self.run == NO_BRAND:
            return NO_BRAND
        return self.run | next(self._serials) % (1 << SERIAL_BITS)

    @contextlib.contextmanager
    def forking(self, brand: int) -> Iterator[None]:
        """Fork within this block, and `put` the brand on the child after it."""
        if brand == NO_BRAND or not self._takes_it_itself:
            yield
            return
        turn = _Turn(threading.get_native_id(), brand)
        with self._turns:
            while self._turn is not None and not _has_forked(self._turn):
                self._turns.wait(LOOK_S)
            self._turn = turn
            self._limit(brand)
        try:
            yield
        finally:
            with self._turns:
                if self._turn is turn:  # else another has its turn, and undoes it
                    self._turn = None
                    self._limit(self._own[0])
                    self._turns.notify()

    def put(self, pid: int, brand: int) -> None:
        """Brand a child just spawned, unless it was born with it."""
        if brand == NO_BRAND or self._takes_it_itself:
            return
        _, hard = self._own
        # It has ended, or has changed its user: the other marks have to do.
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, RLIMIT_LOCKS, (brand, hard))

    def _limit(self, soft: int) -> None:
        # Refused if the hard limit was lowered since: the other marks have to do.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(RLIMIT_LOCKS, (soft, self._own[1]))

    def remove(self, pid: int) -> None:
        """Take any brand from a child that is no module's: the guardian outlives the modules."""
        _, hard = self._own
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, RLIMIT_LOCKS, (hard, hard))


def _has_forked(turn: _Turn) -> bool:
    # Where the kernel has no list of children, this waits until the program has begun.
    children = procfs.children_of_thread(os.getpid(), turn.thread) or []
    # The newest is listed last (copy_process), and orphans are added to the main thread's alone.
    if turn.thread != os.getpid():
        children = children[-1:]
    return any(procfs.brand(pid) == turn.brand for pid in children)


def _random(below: int) -> int:
    return int.from_bytes(os.urandom(16), "little") % below
