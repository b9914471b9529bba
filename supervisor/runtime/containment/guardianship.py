"""Keep a guardian (`containment.guardian`) and tell it, and the next daemon, what there is to kill.

The pipe is never waited for. If it is full - the guardian was stopped, say - what is to be told is
dropped, and once there is room again the whole ledger is told anew: it is never longer than there
are instances. The same serves a guardian that takes the place of one that died.

What the next daemon reads is the ledger on disk (`containment.ledger`), written in a thread. Only
the daemon's end waits for it, within a bound: a process that is not on disk when the daemon and its
guardian are killed is found by the marks all the same. What waits for a stalled disk is dropped
when there is too much of it, and the whole is written anew instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog
import trio

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.guardian import command
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.containment.ledger import Leader, Ledger
from supervisor.runtime.containment.spawn import Spawner
from supervisor.runtime.threads import Threads

RESPAWN_S = 0.1
LAST_RESPAWN_S = 60.0
"""A guardian that dies is replaced after a moment, and after longer ones if it goes on dying."""

STEADY_S = 10.0
"""A guardian that lived this long resets the wait before the next start."""

BYE_S = 2.0
"""How long a guardian may take to leave after the goodbye, before it is killed."""

RECORD_BYTES = 1 << 18
"""When the record has grown to this size, it is written anew with what still holds."""

GROUP_S = 0.01
"""How long a line waits for others: one that comes and goes with a lone call costs one write."""

log = structlog.get_logger()

_DOING = "writing the record of instances"


class LedgerFile:
    def __init__(self, path: Path, lines: Callable[[], list[bytes]], threads: Threads) -> None:
        """`lines` gives the whole ledger as it is at the moment."""
        self.path = path
        self._lines = lines
        self._threads = threads
        self._file = -1
        self._written = self._fresh = 0
        self._waiting = bytearray()
        self._stale = False
        """Whether something was dropped that should have been written."""
        self._some = trio.Event()
        self._closing = False

    def begin(self) -> None:
        """Write the whole ledger to a new file in its place; for threads.

        On a full disk there is none, and the log says so.
        """
        try:
            self._begin(self._lines())
        except OSError as error:
            # The guardian knows all the same; only what outlives both of them is not written down.
            words = os.strerror(error.errno or 0)
            log.warning("no record of instances", record=str(self.path), words=words)

    def append(self, line: bytes) -> None:
        """Write a line soon, if there is a file."""
        if self._file < 0:
            return
        self._waiting += line
        if len(self._waiting) > RECORD_BYTES:
            self._waiting.clear()
            self._stale = True
        self._some.set()

    def withdraw(self, line: bytes) -> bool:
        """Drop a line that was appended, unless it has been written; returns whether it was."""
        at = self._waiting.find(line)
        if at >= 0:
            del self._waiting[at : at + len(line)]
        return at >= 0

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await trio.sleep(GROUP_S)
            self._some = trio.Event()
            if self._waiting or self._stale:
                await self._write()

    async def renew(self) -> None:
        """Write the whole ledger anew, where it belongs by now; raises `OSError`."""
        self._waiting.clear()
        await self._threads.run(_DOING, partial(self._begin, self._lines()))

    async def close(self) -> None:
        """Write what waits, within a bound, and close the file; not cancelled."""
        self._closing = True
        with trio.move_on_after(self._threads.end_left_s(), shield=True):
            await self._write()
            with contextlib.suppress(OSError):  # of a disk that fails
                await self._threads.run(_DOING, self._close, abandon_after_s=0)

    def let_go(self) -> None:
        if not self._closing:
            self._close()

    async def _write(self) -> None:
        # Twice what it was when it was new: a ledger that is long is not written anew each time.
        anew = self._stale or self._written > max(RECORD_BYTES, 2 * self._fresh)
        work = (
            partial(self._begin, self._lines())
            if anew
            else partial(self._append, bytes(self._waiting))
        )
        self._waiting.clear()
        self._stale = False
        # A full disk must not keep modules from being started; the marks find them all the same.
        with contextlib.suppress(OSError):
            await self._threads.run(_DOING, work, abandon_after_s=0)

    # In a thread, one at a time.

    def _append(self, data: bytes) -> None:
        if self._file >= 0:
            self._written += os.write(self._file, data)

    def _begin(self, lines: list[bytes]) -> None:
        fresh = self.path.with_suffix(".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(file, b"".join(lines))
            fresh.rename(self.path)
        except OSError:
            os.close(file)
            raise
        self._close()
        self._file = file
        self._written = self._fresh = written

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:  # on a full disk there is none
            os.close(file)


class Guardianship:
    def __init__(self, ledger: Ledger, file: LedgerFile, spawner: Spawner) -> None:
        """The file was begun."""
        self.pid: int | None = None
        self.problem: str | None = None
        """Why there is none, and what that means; None while there is one."""
        self.file = file
        self.ledger = ledger
        self._spawner = spawner
        self._pipe = -1
        self._behind = trio.Event()
        self._telling_anew = False
        """Whether the whole is being told: its head would make what comes meanwhile forgotten."""
        self._announced: set[Leader] = set()
        """Of whom this guardian was told, though the ledger has them not yet."""
        self._using_pipe = threading.Lock()

    def announce(self, leader: Leader) -> None:
        """Tell the guardian of a leader at once; for threads, before `register`."""
        with self._using_pipe:
            if self._pipe >= 0 and not self._behind.is_set() and self._write(leader.line()):
                self._announced.add(leader)

    def register(self, leader: Leader) -> None:
        self.ledger.leaders[leader.pid] = leader
        self.file.append(leader.line())
        if leader in self._announced:
            self._announced.discard(leader)
        else:
            self._tell(leader.line())

    def unregister(self, pid: int) -> None:
        """Tell that an instance is gone, before its pid is free for others."""
        leader = self.ledger.leaders.pop(pid, None)
        if leader is not None:
            gone = f"-\t{pid}\n".encode()
            if not self.file.withdraw(leader.line()):
                self.file.append(gone)
            self._tell(gone)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a guardian until cancelled; started once there is one, or its start is held up.

        Raises `ContainmentError` if the first cannot be started; later ones are tried again.
        """
        pause_s = RESPAWN_S
        while True:
            since = trio.current_time()
            await self._serve(task_status)
            task_status = trio.TASK_STATUS_IGNORED
            if trio.current_time() - since > STEADY_S:
                pause_s = RESPAWN_S
            log.warning("another guardian is started", wait_s=pause_s)
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 2, LAST_RESPAWN_S)

    def close(self) -> None:
        """Say that nothing is left."""
        self.ledger.forget()
        self.file.append(b"bye\n")

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            popen, process, pidfd = await self._begin()
        except OSError as error:
            self.problem = _missing(f"none can be started: {error}")
            first = task_status is not trio.TASK_STATUS_IGNORED
            if first and error.errno != errno.ETIMEDOUT:  # the next try would not be better
                words = (
                    f"no guardian could be started, which ends what a killed daemon left: {error}"
                )
                raise ContainmentError(words) from None
            log.error("no guardian could be started", error=str(error))  # noqa: TRY400
            task_status.started()
            return
        self.pid, self.problem = process.pid, None
        self._behind = trio.Event()
        self._telling_anew = False
        self._announced.clear()
        # At once, and not by the task that catches up: the daemon may be killed before its turn.
        if not all(self._write(line) for line in self.ledger.lines()):
            self._behind.set()
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._catch_up)
                await trio.lowlevel.wait_readable(pidfd)
                nursery.cancel_scope.cancel()
        finally:
            os.close(pidfd)
            self._say_bye()
            self._drop_pipe()
            await self._spawner.end_own(popen, process, BYE_S, name="the guardian")
            self.pid, self.problem = None, _missing("it died")
        log.warning("the guardian died", pid=process.pid)

    async def _begin(self) -> tuple[subprocess.Popen[bytes], procfs.Stat, int]:
        """Start a guardian that waits at our pipe; returns it and a pidfd; raises `OSError`."""
        reading, self._pipe = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe, False)
        try:
            popen, process = await self._spawner.start_own(
                "starting the guardian", partial(_start, reading, str(self.file.path))
            )
            try:
                return popen, process, os.pidfd_open(process.pid)
            except OSError:  # its end would not be noticed
                self._spawner.leave_own(popen, process)
                raise
        except (OSError, trio.Cancelled):
            self._drop_pipe()
            raise
        finally:
            os.close(reading)

    async def _catch_up(self) -> None:
        while True:
            await self._behind.wait()
            self._behind = trio.Event()
            self._telling_anew = True
            self._announced.clear()
            for line in self.ledger.lines():
                while not self._write(line):
                    await trio.lowlevel.wait_writable(self._pipe)
            self._telling_anew = False

    def _tell(self, line: bytes) -> None:
        if self._pipe < 0 or self._behind.is_set():
            return
        if self._telling_anew or not self._write(line):
            self._behind.set()

    def _write(self, line: bytes) -> bool:
        # Shorter than PIPE_BUF, so it is written whole or not at all (pipe(7)).
        try:
            os.write(self._pipe, line)
        except BlockingIOError:
            return False
        except OSError:
            return True  # EPIPE: it died; its successor is told everything
        return True

    def _say_bye(self) -> None:
        # Only an empty ledger is an orderly end. Without the word, it kills what there is.
        if self.ledger.author is None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, b"bye\n")

    def _drop_pipe(self) -> None:
        with self._using_pipe:
            pipe, self._pipe = self._pipe, -1
            os.close(pipe)


def _missing(why: str) -> str:
    return (
        f"there is no guardian ({why}); if the daemon were killed now, what modules started would"
        " go on running until it is started again"
    )


def _start(reading: int, record: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(reading, record),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[reading],
        start_new_session=True,
        # Nothing of the daemon's: a guardian is not to be taken for a module's process.
        env={"LANG": "C.UTF-8"},
    )
