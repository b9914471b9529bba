"""One operating system process with its three pipes: contained, signalled, reaped.

Kernel facts this file and `spawning` stand on:

- The process leads a session and a group of its own, so one signal reaches all that stay in it;
  who leaves it is for `containment`.
- A pidfd becomes readable when the process has ended, before it is reaped; until it is reaped its
  number, which is the group's number too, cannot be given to another. So the group is killed
  first and the leader reaped after (docs/architecture.md).
- A tracer may keep it from being reaped, for hours (`reaping`). So nothing here waits for a child:
  what can't be reaped yet is tried again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from supervisor.policy.verdict import Tracer
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.contained import Containment, signal_group
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.containment.reaping import (
    End,
    end_of_held,
    has_ended,
    reap,
    reapable,
    tracer_of,
)
from supervisor.runtime.turns import SharedTurn

KILLS = 8
"""So many cgroups are killed at once: the kernel takes tens of milliseconds for one."""

QUICK_S = 0.001
"""How long the end of one that is told nothing more is waited for before anybody listens to it:
most tools in a compiled language end within it, and what they said is read in one go."""

HELD_UP_S = 5.0
"""A signal takes a thread no longer than that, unless the kernel holds it up. It is not waited for
then, but its process is not reaped before it is done: the thread knows that one by its number."""

GONE_WITHIN_S = 2.0
"""Killed processes are gone within milliseconds, unless the kernel holds them in a driver."""


class Opening:
    """What a process finds on its stdin, perhaps before it first looks.

    It is written by the thread that spawns, once the process is contained and limited and dies with
    the daemon: the process works while the event loop gets ready to listen.
    """

    def __init__(self, data: bytes, *, closes_stdin: bool) -> None:
        """`closes_stdin`: nothing comes after `data`."""
        self._data = data
        self._closes_stdin = closes_stdin
        self._begun = False
        self._written = 0
        self.withheld = False
        """Set when it is not to be written; without effect once it was begun."""

    @property
    def written(self) -> bytes:
        return self._data[: self._written]

    @property
    def left(self) -> bytes:
        """What the pipe had no room for; nothing of an opening that was withheld."""
        return self._data[self._written :] if self._begun else b""

    def write(self, stdin: int) -> bool:
        """Write what a pipe takes this moment, once; returns whether it is to be closed then."""
        if self.withheld or self._begun:
            return False
        self._begun = True
        # Whatever is wrong with the pipe, the writer of the rest will meet it too.
        with contextlib.suppress(OSError):
            self._written = os.write(stdin, self._data)
        return self._closes_stdin and not self.left


class Process:
    """A spawned process; once it has ended, `reap` has to be called until it returns an end."""

    def __init__(
        self,
        pidfd: int,
        pipes: list[int],
        registry: ProcessRegistry,
        containment: Containment,
        *,
        unset_variables: Sequence[str],
        opening: Opening | None = None,
    ) -> None:
        """Take over the descriptors: the pidfd, and our ends of stdin, stdout and stderr."""
        self.pid = containment.leader.pid
        self.opening = opening
        """What is written to it by `begin`."""
        self.containment = containment
        self.remove_container: Callable[[], Awaitable[str]] | None = None
        self.unset_variables = unset_variables
        """The names in `pass_env` for which it got no value."""
        self._registry = registry
        self.stdout, self.stderr = pipes[1], pipes[2]
        self.stdin: int | None = pipes[0]
        """Our end; None once it is closed."""
        self._pidfd = pidfd
        self._let_go = False
        self._at_work: set[object] = set()
        """Not empty while a thread signals it, or looks for what it left."""

    @property
    def exited(self) -> bool:
        """Whether the process has ended, reaped or not, as far as its pidfd tells."""
        return self._let_go or has_ended(self._pidfd)

    @property
    def is_dead(self) -> bool:
        """Whether none of its threads runs, though a tracer may keep its pidfd from saying so."""
        if self.exited:
            return True
        missed = procfs.MISSED.count
        now = procfs.stat(self.pid)
        if now is None:
            return procfs.MISSED.count == missed
        return not now.lives

    @property
    def is_held(self) -> bool:
        """Whether it is dead, and a tracer keeps that from being seen."""
        return self.is_dead and self.tracer is not None

    @property
    def tracer(self) -> Tracer | None:
        return None if self._let_go else tracer_of(self.pid)

    @property
    def end(self) -> End:
        """How it ended, before it is reaped, as far as this is shown to us."""
        return end_of_held(self.pid)

    def begin(self) -> None:
        """Write the opening, then wait for a quick one to end; for the thread that spawns."""
        if self.opening is None or self.stdin is None:
            return
        if self.opening.write(self.stdin):
            os.close(self.stdin)
            self.stdin = None
            has_ended(self._pidfd, QUICK_S)

    def close_stdin(self) -> None:
        if self.stdin is not None:
            trio.lowlevel.notify_closing(self.stdin)
            os.close(self.stdin)
            self.stdin = None

    @property
    def ends(self) -> SharedTurn:
        """The turns in which ended processes are seen to."""
        return self._registry.ends

    async def wait_exited(self) -> None:
        """Return when the process has ended; it is not reaped by that."""
        await trio.lowlevel.wait_readable(self._pidfd)

    async def signal(self, *signals: signal.Signals) -> None:
        if self._let_go:
            return
        await self._in_thread("signalling processes", partial(self.containment.signal, *signals))

    async def kill(self) -> None:
        """Kill the whole containment; without effect once `reap` was called, and not cancelled.

        The leader must not be reaped meanwhile.
        """
        if self._let_go:
            return
        if self.containment.kills_at_once:
            self.containment.kill()
            return
        if not self._at_work:  # else another thread would be held up, too
            await self._in_thread("killing processes", self.containment.kill)
        # Whatever became of the thread, and of those that it had to wait for.
        if not self._let_go:
            signal_group(self.containment.leader, signal.SIGKILL)

    async def _in_thread(self, doing: str, work: Callable[[], None]) -> None:
        """Do it in a thread, and go on after `HELD_UP_S`; not cancelled."""
        await self._registry.threads.run_or_leave(
            doing, work, self._at_work, leave_after_s=HELD_UP_S, at_once=KILLS
        )

    async def kill_the_rest(self) -> tuple[int, ...]:
        """Kill what the ended leader left, wherever it went, and wait until it is gone.

        Returns the pids of those that are not gone `GONE_WITHIN_S` later. Not to be cancelled: it
        is how a cancelled instance ends, and it is bounded.
        """
        await self.kill()
        return await self._registry.end_the_rest(self.containment, GONE_WITHIN_S, self._at_work)

    def reap(self) -> End | None:
        """Kill what is left of the group, reap the ended leader, close everything.

        None, and nothing is closed, while it can't be reaped; it must be called again then.
        """
        if self._at_work:
            return None
        signal_group(self.containment.leader, signal.SIGKILL)
        if not reapable(self._pidfd):
            return None
        self._registry.about_to_reap(self.containment)
        end = reap(self._pidfd)
        self._release()
        return end

    def abandon(self) -> None:
        """Let go of a dead leader that can't be reaped; its next parent will, after the daemon."""
        self._registry.about_to_reap(self.containment)
        self._release()

    def _release(self) -> None:
        self._let_go = True
        self._registry.release_on_loop(self.containment)
        self.close_stdin()
        for descriptor in (self.stdout, self.stderr, self._pidfd):
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
