"""One operating system process with its three pipes: spawned, contained, signalled, reaped.

Kernel facts this file stands on:

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
import errno
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import trio

from protocol.descriptor.model import Descriptor, Limits
from supervisor.policy.verdict import Suspect, Tracer
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.contained import Containment, signal_group
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.process.blanks import Blank
from supervisor.runtime.process.environment import UnsetVariableError, module_environment
from supervisor.runtime.process.limits import LimitError, apply
from supervisor.runtime.process.opening import Opening
from supervisor.runtime.process.pipes import Pipes, close_all
from supervisor.runtime.process.program import (
    SpawnError,
    explain,
    find_program,
    module_folder,
    named_program,
    working_folder,
)
from supervisor.runtime.process.reaping import (
    End,
    end_of_held,
    reap,
    reapable,
    tracer_of,
    why_held,
)
from supervisor.runtime.process.spawn_threads import Late, SpawnTooSlowError
from supervisor.runtime.turns import SharedTurn

BUSY_RETRIES_S = (0.01, 0.02, 0.05, 0.1, 0.2)
"""ETXTBSY is over as soon as whoever writes the program closes it; so it is worth a little wait."""

KILLS = 8
"""So many cgroups are killed at once: the kernel takes tens of milliseconds for one."""

QUICK_S = 0.001
"""How long the end of one that is told nothing more is waited for before anybody listens to it:
most tools in a compiled language end within it, and what they said is read in one go."""

HELD_UP_S = 5.0
"""A signal takes a thread no longer than that, unless the kernel holds it up. Nobody waits for it
then, but its process is not reaped before it is done: it knows that one by its number."""

GONE_WITHIN_S = 2.0
"""Killed processes are gone within milliseconds, unless the kernel holds them in a driver."""


class Held(NamedTuple):
    """By whom a process is held, and how."""

    custody: Custody
    containment: Containment
    since: int
    """When it began to be what it is (clock ticks since boot)."""


NOTHING: Mapping[str, str] = MappingProxyType({})


class Wanted(NamedTuple):
    """What is to be spawned."""

    descriptor: Descriptor
    host: Mapping[str, str]
    instance: str
    custody: Custody
    opening: Opening | None
    late: Late
    """Set when nobody waits for it any more: what is made from then on is undone."""
    one_output: bool = False
    """Whether what it writes to stdout comes on stderr."""
    variables: Mapping[str, str] = NOTHING
    """Of its one request, beside those of its module."""


class Process:
    """A spawned process; once it has ended, whoever holds it must call `reap` until that is so."""

    def __init__(
        self,
        pid: int,
        pidfd: int,
        pipes: list[int],
        held: Held,
        opening: Opening | None = None,
    ) -> None:
        """Take over the descriptors: the pidfd, and our ends of stdin, stdout and stderr."""
        self.pid = pid
        self.opening = opening
        """What is written to it by `begin`."""
        self.containment = held.containment
        self.possible_survivors: tuple[Suspect, ...] = ()
        """Who may be of it and is nobody's for certain; known once it is reaped."""
        self._custody = held.custody
        self._since = held.since
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
        return self._let_go or _readable(self._pidfd)

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
        """Who traces it; nobody once it is reaped."""
        return None if self._let_go else tracer_of(self.pid)

    @property
    def end(self) -> End:
        """How it ended, before it is reaped, as far as this is shown to us."""
        return end_of_held(self.pid)

    def begin(self) -> None:
        """Write the opening, unless it was; called before the event loop knows of the pipe."""
        if self.opening is None or self.stdin is None:
            return
        if self.opening.write(self.stdin):
            os.close(self.stdin)
            self.stdin = None

    def begin_in_thread(self) -> None:
        """Begin in the thread that spawns; then wait for a quick one to end."""
        self.begin()
        if self.stdin is None:
            _readable(self._pidfd, QUICK_S)

    async def begin_on_loop(self) -> None:
        """Do the same on the event loop; not cancelled."""
        self.begin()
        if self.stdin is None:
            with trio.move_on_after(QUICK_S, shield=True):
                await self.wait_exited()

    def close_stdin(self) -> None:
        """Let the process see the end of its input."""
        if self.stdin is not None:
            trio.lowlevel.notify_closing(self.stdin)
            os.close(self.stdin)
            self.stdin = None

    @property
    def ends(self) -> SharedTurn:
        """In which it is seen to once it has ended."""
        return self._custody.ends

    async def wait_exited(self) -> None:
        """Return when the process has ended; it is not reaped by that."""
        await trio.lowlevel.wait_readable(self._pidfd)

    async def signal(self, *signals: signal.Signals) -> None:
        """Signal the whole containment; as `kill`."""
        if self._let_go:
            return
        await self._in_thread("signalling processes", partial(self.containment.signal, *signals))

    async def kill(self) -> None:
        """Kill the whole containment; without effect once `reap` was called, and not cancelled.

        Whoever calls it sees to it that nobody reaps the leader meanwhile.
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
        """Have it done, and go on after `HELD_UP_S`; not cancelled."""
        await self._custody.blocking.run_or_leave(
            doing, work, self._at_work, leave_after_s=HELD_UP_S, at_once=KILLS
        )

    async def kill_the_rest(self) -> tuple[int, ...]:
        """Kill whoever the ended leader left, wherever they went, and see them gone.

        Returns the pids of those that are not gone `GONE_WITHIN_S` later. Not to be cancelled: it
        is how a cancelled instance ends, and it is bounded.
        """
        await self.kill()
        return await self._custody.end_the_rest(self.containment, GONE_WITHIN_S, self._at_work)

    def reap(self) -> End | None:
        """Kill what is left of the group, reap the ended leader, close everything.

        None, and nothing is closed, while it can't be reaped; it must be called again then.
        """
        if self._at_work:
            return None
        signal_group(self.containment.leader, signal.SIGKILL)
        if not reapable(self._pidfd):
            return None
        self._custody.about_to_reap(self.containment)
        end = reap(self._pidfd)
        self._release()
        return end

    def abandon(self) -> None:
        """Let go of a dead leader that can't be reaped: who adopts it when the daemon ends will."""
        self._custody.about_to_reap(self.containment)
        self._release()

    def _release(self) -> None:
        self._let_go = True
        self._custody.release_on_loop(self.containment)
        self.possible_survivors = self._custody.strays.possible_survivors(self._since)
        self.close_stdin()
        for descriptor in (self.stdout, self.stderr, self._pidfd):
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)


async def spawn(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    custody: Custody,
    opening: Opening | None = None,
    *,
    one_output: bool = False,
    variables: Mapping[str, str] = NOTHING,
) -> Process:
    """Start a module's command, contained; raises `SpawnError` with the reason in words.

    With `one_output` it writes to one place, in the order in which it does: all is stderr. The
    `variables` are of its one request.
    """
    wanted = Wanted(descriptor, host, instance, custody, opening, Late(), one_output, variables)
    if opening is None or one_output:  # nobody waits for its answer
        return await _spawn_in_thread(wanted, None)
    with custody.blank() as blank:
        return await _spawn_in_thread(wanted, blank)


async def _spawn_in_thread(wanted: Wanted, blank: Blank | None) -> Process:
    custody = wanted.custody
    for pause_s in (*BUSY_RETRIES_S, None):
        try:
            # Not cancelled: a process that nobody holds would be a leak.
            process = await custody.spawn_threads.run(
                f"spawning {wanted.instance}",
                partial(_spawn, wanted, blank),
                look=partial(_look, wanted),
                late=partial(_give_up, wanted, blank),
            )
        except SpawnTooSlowError as error:
            raise SpawnError(str(error), errno.ETIMEDOUT) from None
        except OSError as error:  # there is no thread for it
            raise SpawnError(explain(error, wanted.instance), error.errno) from None
        except SpawnError as error:
            if error.code != errno.ETXTBSY or pause_s is None:
                raise
            await trio.sleep(pause_s)
        else:
            custody.register(process.containment)
            if custody.registers_each:
                await process.begin_on_loop()
            return process
    raise AssertionError  # the last pause is None, so the loop returned or raised


def _environment(descriptor: Descriptor, host: Mapping[str, str], instance: str) -> dict[str, str]:
    try:
        return module_environment(descriptor.transport, host, instance)
    except UnsetVariableError as error:
        raise SpawnError(str(error)) from None


def _look(wanted: Wanted) -> tuple[dict[str, str], str]:
    descriptor, host, instance, custody, *_, variables = wanted
    environment = {**_environment(descriptor, host, instance), **variables, **custody.marks}
    # Whether a path leads to a program, and the folder is there, `exec` and `chdir` will tell.
    return environment, named_program(descriptor) or find_program(descriptor, environment)


def _give_up(wanted: Wanted, blank: Blank | None, thread: int) -> None:
    """End what waits for its program, so that the thread goes on."""
    wanted.custody.end_untold(thread, wanted.late)
    if blank is not None and blank.spent:
        wanted.late.held_by = why_held(blank.pid)
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(blank.pidfd, signal.SIGKILL)


def _spawn(
    wanted: Wanted, blank: Blank | None, environment: dict[str, str], program: str
) -> Process:
    descriptor, _, instance, custody, opening, late, one_output, _ = wanted
    folder = module_folder(descriptor)
    if blank is not None and not blank.spent:
        filled = _fill(blank, wanted, program, environment)
        if filled is not None:
            return filled
    with Pipes(custody.file_limit.for_spawns) as pipes, custody.spawning() as brand:
        try:
            stdin, stdout, stderr = pipes.open()
            with custody.forking(brand):
                popen = subprocess.Popen(
                    descriptor.transport.command,
                    executable=program,
                    stdin=stdin,
                    stdout=stderr if one_output else stdout,
                    stderr=stderr,
                    cwd=folder,
                    env=environment,
                    pass_fds=custody.inherited,
                    start_new_session=True,
                )
        except OSError as error:
            # Popen names the folder when the child could not enter it.
            step = "chdir" if error.filename == folder else "exec"
            raise _refused(descriptor, program, step, error) from None
        except ValueError as error:
            raise _unspeakable(error) from None
        # It is reaped by its pidfd. Without this, Popen would try, too, when it is collected.
        popen.returncode = 0
        if late.is_set():
            custody.abandon(popen.pid)
            raise SpawnError(str(SpawnTooSlowError(late.held_by)), errno.ETIMEDOUT)
        limits = descriptor.supervision.limits
        pidfd, containment = _take(popen.pid, program, instance, custody, limits, brand=brand)
        ours = pipes.keep()
    process = Process(
        popen.pid, pidfd, ours, Held(custody, containment, containment.leader.start), opening
    )
    if not custody.registers_each:
        process.begin_in_thread()
    return process


def _unspeakable(error: ValueError) -> SpawnError:
    """Say that there is a NUL, or half a surrogate pair: arguments may come from a request."""
    return SpawnError(f"its command or environment cannot be handed to a program: {error}")


def _refused(descriptor: Descriptor, program: str, step: str, error: OSError) -> SpawnError:
    if step == "chdir":
        folder = working_folder(descriptor)
        message = f"its working folder {folder} cannot be entered: {error.strerror}"
        return SpawnError(message, error.errno)
    return SpawnError(explain(error, program), error.errno)


def _fill(
    blank: Blank, wanted: Wanted, program: str, environment: Mapping[str, str]
) -> Process | None:
    """Have a blank become the program; None if it hears nothing, and nothing is left of it."""
    descriptor, _, instance, custody, opening, late, *_ = wanted
    blank.spent = True
    containment, folder = blank.containment, module_folder(descriptor)
    with contextlib.ExitStack() as undone, Pipes(custody.file_limit.for_spawns) as pipes:
        undone.callback(blank.undo, custody)
        try:
            streams = pipes.open()
        except OSError as error:
            raise SpawnError(explain(error, program), error.errno) from None
        try:
            command = descriptor.transport.command
            complaint = blank.become(program, command, environment, folder, streams)
        except OSError:
            return None
        except ValueError as error:
            raise _unspeakable(error) from None
        # While it does.
        since = custody.employ(containment, instance)
        ours = pipes.keep()
        undone.callback(close_all, ours)
        refusal = blank.refusal(complaint)
        if late.is_set():
            raise SpawnError(str(SpawnTooSlowError(late.held_by)), errno.ETIMEDOUT)
        if refusal is not None:
            refused = OSError(refusal.code, os.strerror(refusal.code))
            raise _refused(descriptor, program, refusal.step, refused)
        try:
            apply(descriptor.supervision.limits, containment)
        except LimitError as error:
            raise SpawnError(str(error)) from None
        undone.pop_all()
    process = Process(blank.pid, blank.pidfd, ours, Held(custody, containment, since), opening)
    process.begin_in_thread()
    return process


def _take(
    pid: int,
    program: str,
    instance: str,
    custody: Custody,
    limits: Limits,
    *,
    brand: int,
) -> tuple[int, Containment]:
    """Contain and limit a process just spawned, or kill it: none may run that is not held."""
    try:
        containment = custody.take(pid, instance, brand)
    except OSError as error:
        custody.abandon(pid)
        words = f"its processes cannot be contained ({custody.containment}): {error}"
        raise SpawnError(words, error.errno) from None
    try:
        apply(limits, containment)
        pidfd = os.pidfd_open(pid)
    except (LimitError, OSError) as error:
        containment.kill()
        custody.abandon(pid)
        custody.release(containment)
        if isinstance(error, LimitError):
            raise SpawnError(str(error)) from None
        raise SpawnError(explain(error, program), error.errno) from None
    return pidfd, containment


def _readable(descriptor: int, within_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
