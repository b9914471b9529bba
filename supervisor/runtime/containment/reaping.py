"""Take the exit status of a child that has ended, and never wait for one.

A process that has ended can't be reaped while a tracer (gdb, strace: ptrace(2)) holds it: the
kernel shows the zombie to the tracer alone until that lets go (wait_consider_task in
kernel/exit.c). If it holds threads of the process, the pidfd says nothing either: only the last
thread that is released makes it readable. Both may last for as long as somebody sits before a
debugger, so each call here returns at once, and the tracer is named.
"""

from __future__ import annotations

import os
import select
from typing import NamedTuple

from supervisor.policy.verdict import Tracer
from supervisor.runtime.containment import procfs

_HELD = ("T", "t")
"""Stopped by a signal, and by a tracer (proc(5))."""

REAP_AGAIN_S = 0.25
"""How often a held process is tried again: a parent is not told that a tracer has let go."""


class End(NamedTuple):
    """How a process ended; neither is known of a child that another part of the program reaped."""

    exit_code: int | None = None
    signal: int | None = None


def has_ended(pidfd: int, within_s: float = 0.0) -> bool:
    """Whether a pidfd says so, after a wait of `within_s` at the most."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def reapable(pidfd: int) -> bool:
    """Whether `reap` would return an end now."""
    try:
        return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def reap(pidfd: int) -> End | None:
    """Reap a child; None if it has not ended, or a tracer holds it."""
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return End()  # this process is part of a program that ignores SIGCHLD
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return End(exit_code=found.si_status)
    return End(signal=found.si_status)


def end_of_held(pid: int) -> End:
    """Return how a process ended that can't be reaped yet, as far as /proc tells."""
    status = procfs.exit_status(pid)
    if status is None:
        return End()
    if os.WIFSIGNALED(status):
        return End(signal=os.WTERMSIG(status))
    return End(exit_code=os.waitstatus_to_exitcode(status))


def why_held(pid: int) -> str | None:
    """Return what keeps a living process from running, a signal or a tracer, if anything does."""
    found = procfs.stat(pid)
    if found is None or found.state not in _HELD:
        return None
    tracer = tracer_of(pid)
    return "a signal has stopped" if tracer is None else f"{tracer.words} traces"


def tracer_of(pid: int | None) -> Tracer | None:
    """Return the tracer of a process, or of one of its threads, if there is one."""
    tracer = None if pid is None else procfs.tracer(pid)
    return None if tracer is None else Tracer(tracer, procfs.name(tracer))
