"""Reap the children that the daemon never had: orphans that the kernel gave it.

The first process of a container, and a child subreaper, becomes the parent of whatever lost its
own. Such a child leaves a zombie that only the daemon can reap. A blind `waitpid(-1)` would take
the exit statuses of the modules' own processes with it, so each zombie is looked at first
(`WNOWAIT` takes nothing) and reaped by its number, and only if it was adopted.

What was adopted cannot be asked of the kernel; it is what we did not spawn. A zombie that appears
while processes are being spawned may be one of them whose number nobody knows yet, so it is judged
once those spawns are over. Nothing here reads /proc, which may belong to another pid namespace.

Everything runs in the event loop; nothing is locked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import trio

_PR_GET_CHILD_SUBREAPER = 37
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Children:
    """Whose zombies are whose."""

    def __init__(self) -> None:
        self.reaped_orphans = 0
        self._ours: set[int] = set()
        self._births: set[object] = set()
        self._suspect: int | None = None
        self._suspected_since: set[object] = set()
        self._look = trio.Event()

    @contextlib.contextmanager
    def being_born(self) -> Iterator[Callable[[int], None]]:
        """Spawn a process within the block; call what it yields with its pid."""
        birth = object()
        self._births.add(birth)
        try:
            yield self._ours.add
        finally:
            self._births.discard(birth)
            self._look.set()

    def reaped(self, pid: int) -> None:
        """Take note that a process of ours has been reaped; its number may come back."""
        self._ours.discard(pid)
        self._look.set()

    async def reap_orphans(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Reap adopted children as they end, until cancelled."""
        with trio.open_signal_receiver(signal.SIGCHLD) as received:
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_after_each, received)
                while True:
                    self._look = trio.Event()
                    self.sweep()
                    await self._look.wait()

    def sweep(self) -> None:
        """Reap the adopted children that have ended; never waits.

        The kernel shows one zombie at a time. If it is one of ours, those behind it are seen after
        it has been reaped, which is soon, and `reaped` has us look again.
        """
        while (pid := _ended_child()) is not None and self._is_adopted(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
                self.reaped_orphans += 1

    def _is_adopted(self, pid: int) -> bool:
        if pid in self._ours:
            return False
        if pid != self._suspect:
            self._suspect, self._suspected_since = pid, set(self._births)
        self._suspected_since &= self._births
        if self._suspected_since:
            return False
        self._suspect = None
        return True

    async def _look_after_each(self, received: AsyncIterator[int]) -> None:
        async for _ in received:
            self._look.set()


CHILDREN = Children()
"""The kernel keeps one set of children per process, and so do we."""


def adopts_orphans() -> bool:
    """Whether this process is given orphans: as PID 1 of a container, or as a child subreaper."""
    if os.getpid() == 1:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def _ended_child() -> int | None:
    try:
        seen = os.waitid(os.P_ALL, 0, _PEEK)
    except ChildProcessError:
        return None
    return None if seen is None else seen.si_pid
