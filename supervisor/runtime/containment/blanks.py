"""Keep a blank at hand: a process that was born in its cgroup and waits for a program (`spawner`).

A call of a process per invocation that comes alone would wait for a move into a cgroup longer than
for all else; it takes the blank instead. Calls that come one upon the other find none, since a move
costs next to nothing when there was one a moment ago: they are spawned in the usual way, and the
next blank is made when it has been quiet for `QUIET_S`. Nothing runs, and there is neither spawner
nor blank, before the first such call.

A blank is contained, branded and dies with the daemon as any module's process. Whatever is wrong
with it, with its spawner or with this kernel, the call is spawned in the usual way.
"""

from __future__ import annotations

import contextlib
import itertools
import marshal
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from supervisor.runtime.containment import cgroup_folder, spawner
from supervisor.runtime.containment.procfs import Stat
from supervisor.runtime.containment.reaping import has_ended, why_held
from supervisor.runtime.containment.spawn_threads import SpawnTooSlowError

if TYPE_CHECKING:
    from supervisor.runtime.containment.cgroup2 import Cgroup, Cgroup2Rung
    from supervisor.runtime.containment.custody import Custody

QUIET_S = 0.02
"""How long after the last spawn a blank is made: it is not to compete with calls that follow."""

ANSWERS_WITHIN_S = 5.0
"""A spawner answers in a millisecond, and in some 50 when it has just been started."""

LOOK_S = 0.25
"""How often it is checked meanwhile whether a signal or a tracer holds it."""

CLOSES_WITHIN_S = 2 * ANSWERS_WITHIN_S
"""How long the daemon's end waits for a blank that is just being made."""

FAILURES = 5
"""After so many failures in a row no blank is made any more."""

log = structlog.get_logger()


class Refusal(NamedTuple):
    """Why a blank could not become a program."""

    step: str
    """`chdir` or `exec`."""
    code: int


class Blank:
    """A process that can become a program once."""

    def __init__(self, pidfd: int, containment: Cgroup, channel: socket.socket) -> None:
        self.pid = containment.leader.pid
        self.pidfd = pidfd
        self.containment = containment
        self.spent = False
        """Whether it was told to become a program."""
        self._channel = channel

    @property
    def exited(self) -> bool:
        return has_ended(self.pidfd)

    def become(
        self,
        program: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        streams: Sequence[int],
    ) -> int:
        """Make it become a program; returns the pipe of its complaint, for `refusal`.

        `streams` are its stdin, stdout and stderr. Raises `OSError` if it could not be told.
        """
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        words = [os.fsencode(word) for word in command]
        told = marshal.dumps((os.fsencode(program), words, variables, os.fsencode(folder)))
        complaint, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            socket.send_fds(self._channel, [told], [*streams, theirs])
        except OSError:
            os.close(complaint)
            raise
        finally:
            os.close(theirs)
        return complaint

    def refusal(self, complaint: int) -> Refusal | None:
        """Return None once it has become the program, or why it has not."""
        try:
            # Closed by `execve`; so its end says that there is nothing to complain about.
            said = os.read(complaint, 100).split()
        finally:
            os.close(complaint)
        self.let_go()
        return Refusal(said[0].decode(), int(said[1])) if said else None

    def undo(self, custody: Custody) -> None:
        """Kill and release it; for a thread that spawns."""
        self.let_go()
        self.containment.kill()
        custody.abandon(self.pid)
        custody.release(self.containment)
        os.close(self.pidfd)

    def let_go(self) -> None:
        """Close the socket at which it waits, which ends a blank that still does."""
        self._channel.close()


class _Spawner:
    """The spawner process, seen from the daemon."""

    def __init__(self, process: Stat, channel: socket.socket) -> None:
        self.process = process
        self.pidfd = os.pidfd_open(process.pid)
        self._channel = channel
        channel.settimeout(LOOK_S)

    def bear(self, brand: int, folder: str, its_end: socket.socket) -> int:
        """Make a blank in a cgroup; returns its pid, or raises `OSError`."""
        cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            told = spawner.BRAND.pack(brand)
            socket.send_fds(self._channel, [told], [its_end.fileno(), cgroup])
            answer = self._hear()
        finally:
            os.close(cgroup)
        if not answer:
            raise ConnectionResetError("it died")
        (pid,) = spawner.BORN.unpack(answer)
        if pid < 0:
            raise UnbornError(-pid, os.strerror(-pid))
        return int(pid)

    def _hear(self) -> bytes:
        """Wait for its answer, unless it is held; raises `TimeoutError`."""
        until = time.monotonic() + ANSWERS_WITHIN_S
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return self._channel.recv(spawner.BORN.size)
            if (held := why_held(self.process.pid)) is not None:
                raise TimeoutError(f"{held} the process that makes them")
        raise TimeoutError(f"it did not answer within {ANSWERS_WITHIN_S:g} s")

    def close(self) -> None:
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)  # it may be stopped
        os.close(self.pidfd)


class UnbornError(OSError):
    """This kernel makes no process in a cgroup, or does not let us."""


class Blanks:
    """The spawner and the blank of one daemon; for the event loop, but for `_make` and below."""

    def __init__(self, custody: Custody, rung: Cgroup2Rung) -> None:
        self._custody = custody
        self._rung = rung
        self._spawner: _Spawner | None = None
        self._blank: Blank | None = None
        self._numbers = itertools.count(1)
        self._needed = trio.Event()
        self._running = trio.CancelScope()
        self._over = trio.Event()
        self._spawned_at = 0.0
        self._failures = 0

    @property
    def spawner_pid(self) -> int | None:
        return None if self._spawner is None else self._spawner.process.pid

    @property
    def blank_pid(self) -> int | None:
        return None if self._blank is None else self._blank.pid

    def take(self) -> Blank | None:
        """Return the blank, if there is one; the next one is made later."""
        self._spawned_at = trio.current_time()
        self._needed.set()
        self.look()
        blank, self._blank = self._blank, None
        held = None if blank is None else why_held(blank.pid)
        if blank is None or held is None:
            return blank
        # Now, while nothing was made of it: it would become the program once it is let go.
        log.warning("a process that waits for a program is not used", pid=blank.pid, held=held)
        self._discard(blank)
        return None

    def give_back(self, blank: Blank) -> None:
        if self._blank is None and not self._over.is_set():
            self._blank = blank
        else:
            self._discard(blank)

    def look(self) -> None:
        """Drop a blank and a spawner that are dead; called when some child has ended."""
        if self._blank is not None and self._blank.exited:
            blank, self._blank = self._blank, None
            self._discard(blank)
        if self._spawner is not None and has_ended(self._spawner.pidfd):
            log.warning("the spawner died", pid=self.spawner_pid)
            self._drop_spawner()

    async def run(self) -> None:
        """Make blanks when it is quiet, until cancelled."""
        with self._running:
            try:
                while self._failures < FAILURES:
                    await self._needed.wait()
                    self._needed = trio.Event()
                    await self._until_quiet()
                    if self._blank is None:
                        await self._make_one()
                log.warning("lone calls are spawned in the usual way from now on")
            finally:
                self._over.set()

    async def _until_quiet(self) -> None:
        # Prolonged by what is spawned meanwhile, which therefore need not wake anybody.
        while (left_s := self._spawned_at + QUIET_S - trio.current_time()) > 0:  # noqa: ASYNC110
            await trio.sleep(left_s)

    async def _make_one(self) -> None:
        try:
            self._blank = await self._custody.spawn_threads.run(
                "making a process in a cgroup", self._make
            )
        except (OSError, SpawnTooSlowError) as error:
            self._failures = FAILURES if isinstance(error, UnbornError) else self._failures + 1
            log.info("no process could be made in a cgroup", words=str(error))
            self._drop_spawner()
        else:
            self._failures = 0

    async def close(self) -> None:
        """End spawner and blank; called once, and not to be cancelled."""
        self._running.cancel()
        with trio.move_on_after(CLOSES_WITHIN_S, shield=True):
            await self._over.wait()
        if self._blank is not None:
            blank, self._blank = self._blank, None
            self._discard(blank)
        self._drop_spawner()

    def _discard(self, blank: Blank) -> None:
        blank.let_go()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(blank.pidfd, signal.SIGKILL)  # it may be stopped
        os.close(blank.pidfd)
        containment = blank.containment
        self._custody.leave(containment.leader, partial(self._custody.release, containment))

    def _drop_spawner(self) -> None:
        dropped, self._spawner = self._spawner, None
        if dropped is not None:
            dropped.close()
            self._custody.leave(dropped.process)

    # In a thread for spawns.

    def _make(self) -> Blank:
        with self._custody.spawning() as brand:
            if self._spawner is None:
                self._spawner = self._start(brand)
            name = f"blank.{next(self._numbers)}"
            folder = self._rung.new_folder(name)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, contextlib.ExitStack() as undone:
                undone.callback(self._undo, folder, ours)
                pid = self._spawner.bear(brand, folder, theirs)
                pidfd = os.pidfd_open(pid)
                undone.callback(os.close, pidfd)
                containment = self._custody.take_born(pid, name, brand, folder)
                undone.pop_all()
            return Blank(pidfd, containment, ours)

    def _undo(self, folder: str, ours: socket.socket) -> None:
        # Before the socket at which it waits is closed. The spawner may have died with its answer,
        # so that a blank is there of which nothing was told.
        for pid in cgroup_folder.pids(folder):
            self._custody.abandon(pid)
        ours.close()
        cgroup_folder.remove_tree(folder)

    def _start(self, brand: int) -> _Spawner:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undone:
            undone.callback(ours.close)
            with self._custody.forking(brand):
                popen = subprocess.Popen(
                    spawner.command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *self._custody.inherited),
                    start_new_session=True,
                    # The marks of the modules' processes: it is to die with the daemon, too.
                    env={"LANG": "C.UTF-8", **self._custody.marks},
                )
            popen.returncode = 0  # it is reaped by its pidfd, and not by Popen, too
            process = self._custody.take_helper(popen.pid, brand)
            undone.callback(self._custody.abandon, popen.pid)
            made = _Spawner(process, ours)
            undone.pop_all()
        return made
