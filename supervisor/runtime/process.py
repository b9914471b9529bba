"""One operating system process with its three pipes: spawned, contained, signalled, reaped.

Kernel facts this file stands on:

- The process leads a session and a group of its own, so one signal reaches all that stay in it;
  who leaves it is for `containment`.
- A pidfd becomes readable when the process has ended, before it is reaped; until it is reaped its
  number, which is the group's number too, cannot be given to another. So the group is killed
  first and the leader reaped after (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import trio

from protocol.descriptor import Descriptor, Limits
from supervisor.policy.verdict import Suspect
from supervisor.runtime.containment import hunt
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.custody import Custody
from supervisor.runtime.environment import UnsetVariableError, module_environment
from supervisor.runtime.limits import LimitError, apply
from supervisor.runtime.opening import Opening
from supervisor.runtime.pipes import Pipes
from supervisor.runtime.program import (
    SpawnError,
    explain,
    find_program,
    module_folder,
    named_program,
    working_folder,
)

BUSY_RETRIES_S = (0.01, 0.02, 0.05, 0.1, 0.2)
"""ETXTBSY is over as soon as whoever writes the program closes it; so it is worth a little wait."""

GONE_WITHIN_S = 2.0
"""Killed processes are gone within milliseconds, unless the kernel holds them in a driver."""


class Held(NamedTuple):
    """By whom a process is held, and how."""

    custody: Custody
    containment: Containment


class Process:
    """A spawned process; whoever holds it must call `reap` once it has ended."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        pidfd: int,
        pipes: list[int],
        held: Held,
        opening: Opening | None = None,
    ) -> None:
        """Take over the descriptors: the pidfd, and our ends of stdin, stdout and stderr."""
        self.pid = popen.pid
        self.opening = opening
        """What is written to it by `begin`."""
        self.containment = held.containment
        self.possible_survivors: tuple[Suspect, ...] = ()
        """Who may be of it and is nobody's for certain; known once it is reaped."""
        self._custody = held.custody
        self.stdout, self.stderr = pipes[1], pipes[2]
        self._stdin: int | None = pipes[0]
        self._popen = popen
        self._pidfd = pidfd

    @property
    def stdin(self) -> int | None:
        """Our end of its stdin, or None once that is closed."""
        return self._stdin

    @property
    def exited(self) -> bool:
        """Whether the process has ended, reaped or not."""
        if self._popen.returncode is not None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def begin(self) -> None:
        """Write the opening, unless it was; called before the event loop knows of the pipe."""
        if self.opening is None or self._stdin is None:
            return
        if self.opening.write(self._stdin):
            os.close(self._stdin)
            self._stdin = None

    def close_stdin(self) -> None:
        """Let the process see the end of its input."""
        if self._stdin is not None:
            trio.lowlevel.notify_closing(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    async def wait_exited(self) -> None:
        """Return when the process has ended; it is not reaped by that."""
        await trio.lowlevel.wait_readable(self._pidfd)

    def signal(self, *signals: signal.Signals) -> None:
        """Signal the whole containment; without effect once `reap` was called."""
        if self._popen.returncode is None:
            self.containment.signal(*signals)

    def kill(self) -> None:
        """Kill the whole containment; without effect once `reap` was called."""
        if self._popen.returncode is None:
            self.containment.kill()

    async def kill_the_rest(self) -> tuple[int, ...]:
        """Kill whoever the ended leader left, wherever they went, and see them gone.

        Returns the pids of those that are not gone `GONE_WITHIN_S` later. Not to be cancelled: it
        is how a cancelled instance ends, and it is bounded.
        """
        self.kill()
        if not self.containment.left():
            return ()
        with trio.CancelScope(shield=True):
            left = await trio.to_thread.run_sync(
                hunt.exterminate, self.containment.left, GONE_WITHIN_S
            )
        return tuple(left)

    def reap(self) -> tuple[int | None, int | None]:
        """Kill what is left, reap the ended leader, close everything.

        Returns (exit code, None) or (None, signal number).
        """
        self.kill()
        self._custody.about_to_reap(self.containment)
        status = self._popen.wait()
        self._custody.release(self.containment)
        self.possible_survivors = self._custody.possible_survivors(self.containment.leader.start)
        self.close_stdin()
        for descriptor in (self.stdout, self.stderr, self._pidfd):
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
        return (status, None) if status >= 0 else (None, -status)


async def spawn(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    custody: Custody,
    opening: Opening | None = None,
) -> Process:
    """Start a module's command, contained; raises `SpawnError` with the reason in words."""
    for pause_s in (*BUSY_RETRIES_S, None):
        try:
            # Not abandoned when cancelled: a process that nobody holds would be a leak.
            process = await custody.spawn_threads.run(
                partial(_spawn, descriptor, host, instance, custody, opening)
            )
        except SpawnError as error:
            if error.code != errno.ETXTBSY or pause_s is None:
                raise
            await trio.sleep(pause_s)
        else:
            custody.register(process.containment)
            process.begin()
            return process
    raise AssertionError  # the last pause is None, so the loop returned or raised


def check_program(descriptor: Descriptor, host: Mapping[str, str], instance: str) -> None:
    """Raise `SpawnError` if a module's command could not be run; runs nothing."""
    working_folder(descriptor)
    find_program(descriptor, _environment(descriptor, host, instance))


def _environment(descriptor: Descriptor, host: Mapping[str, str], instance: str) -> dict[str, str]:
    try:
        return module_environment(descriptor.transport, host, instance)
    except UnsetVariableError as error:
        raise SpawnError(str(error)) from None


def _spawn(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    custody: Custody,
    opening: Opening | None,
) -> Process:
    environment = _environment(descriptor, host, instance) | custody.marks
    folder = module_folder(descriptor)
    # Whether a path leads to a program, and the folder is there, `exec` and `chdir` will tell.
    program = named_program(descriptor) or find_program(descriptor, environment)
    with Pipes() as pipes, custody.spawning() as brand:
        try:
            stdin, stdout, stderr = pipes.open()
            with custody.forking(brand):
                popen = subprocess.Popen(
                    descriptor.transport.command,
                    executable=program,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=folder,
                    env=environment,
                    pass_fds=custody.inherited,
                    start_new_session=True,
                )
        except OSError as error:
            # Popen names the folder when the child could not enter it.
            if error.filename == folder:
                working_folder(descriptor)
                message = f"its working folder {folder} cannot be entered: {error.strerror}"
                raise SpawnError(message, error.errno) from None
            raise SpawnError(explain(error, program), error.errno) from None
        limits = descriptor.supervision.limits
        pidfd, containment = _take(popen, program, instance, custody, limits, brand=brand)
        ours = pipes.keep()
    process = Process(popen, pidfd, ours, Held(custody, containment), opening)
    if not custody.registers_each:
        process.begin()
    return process


def _take(
    popen: subprocess.Popen[bytes],
    program: str,
    instance: str,
    custody: Custody,
    limits: Limits,
    *,
    brand: int,
) -> tuple[int, Containment]:
    """Contain and limit a process just spawned, or kill it: none may run that is not held."""
    try:
        containment = custody.take(popen.pid, instance, brand)
    except OSError as error:
        _abandon(popen)
        words = f"its processes cannot be contained ({custody.containment}): {error}"
        raise SpawnError(words, error.errno) from None
    try:
        apply(limits, containment)
        pidfd = os.pidfd_open(popen.pid)
    except (LimitError, OSError) as error:
        containment.kill()
        _abandon(popen)
        custody.release(containment)
        if isinstance(error, LimitError):
            raise SpawnError(str(error)) from None
        raise SpawnError(explain(error, program), error.errno) from None
    return pidfd, containment


def _abandon(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()
