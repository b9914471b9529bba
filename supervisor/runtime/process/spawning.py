"""Spawn a module's process: found, with its pipes, its environment and its limits, contained.

What holds it is a `Process`; none runs that is not held. It is spawned in a thread: `fork` and
`exec` take as long as the disk does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import trio

from protocol.descriptor.model import Descriptor, Limits
from supervisor.runtime.containment.blanks import Blank
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.containment.reaping import why_held
from supervisor.runtime.containment.spawn_threads import Late, SpawnTooSlowError
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.process.environment import (
    UnsetVariableError,
    resolved,
    unset_variables,
)
from supervisor.runtime.process.limits import LimitError, apply
from supervisor.runtime.process.pipes import Pipes, close_all
from supervisor.runtime.process.process import Opening, Process
from supervisor.runtime.process.program import (
    SpawnError,
    explain,
    find_program,
    named_program,
    working_folder,
)

BUSY_RETRIES_S = (0.01, 0.02, 0.05, 0.1, 0.2)
"""ETXTBSY is over as soon as the writer of the program closes it; so it is worth a little wait."""

NOTHING: Mapping[str, str] = MappingProxyType({})


class Wanted(NamedTuple):
    descriptor: Descriptor
    host: Mapping[str, str]
    instance: str
    custody: Custody
    opening: Opening | None
    late: Late
    """Set when it was given up: what is made from then on is undone."""
    one_output: bool = False
    """Whether what it writes to stdout comes on stderr."""
    variables: Mapping[str, str] = NOTHING
    """Of its one request, beside those of its module."""
    inherited: tuple[int, ...] = ()


async def spawn(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    custody: Custody,
    opening: Opening | None = None,
    *,
    one_output: bool = False,
    variables: Mapping[str, str] = NOTHING,
    inherited: tuple[int, ...] = (),
) -> Process:
    """Start a module's command, contained; raises `SpawnError` with the reason in words.

    With `one_output` it writes to one place, in the order in which it does: all is stderr. The
    `variables` are of its one request. It gets the descriptors `inherited` under the same number.
    """
    late = Late()
    wanted = Wanted(
        descriptor, host, instance, custody, opening, late, one_output, variables, inherited
    )
    if opening is None or one_output or inherited:  # no call waits for its answer
        return await _spawn_in_thread(wanted, None)
    with custody.blank() as blank:
        return await _spawn_in_thread(wanted, blank)


async def _spawn_in_thread(wanted: Wanted, blank: Blank | None) -> Process:
    custody = wanted.custody
    for pause_s in (*BUSY_RETRIES_S, None):
        try:
            # Not cancelled: a process without a holder would be a leak.
            process = await custody.spawn_threads.run(
                f"spawning {wanted.instance}",
                partial(_spawn, blank),
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


def _look(wanted: Wanted) -> tuple[Wanted, dict[str, str], str]:
    descriptor, host, instance, custody, *_ = wanted
    try:
        descriptor, given = resolved(descriptor, host, instance)
    except UnsetVariableError as error:
        raise SpawnError(str(error)) from None
    environment = {**given, **wanted.variables, **custody.marks}
    # Whether a path leads to a program, and the folder is there, `exec` and `chdir` will tell.
    program = named_program(descriptor) or find_program(descriptor, environment)
    return wanted._replace(descriptor=descriptor), environment, program


def _give_up(wanted: Wanted, blank: Blank | None, thread: int) -> None:
    """End the child that waits for its program, so that the thread goes on."""
    wanted.custody.end_untold(thread, wanted.late)
    if blank is not None and blank.spent:
        wanted.late.held_by = why_held(blank.pid)
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(blank.pidfd, signal.SIGKILL)


def _spawn(
    blank: Blank | None, wanted: Wanted, environment: dict[str, str], program: str
) -> Process:
    descriptor, _, instance, custody, opening, late, one_output, _, inherited = wanted
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
                    pass_fds=(*custody.inherited, *inherited),
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
    unset = unset_variables(descriptor.transport, environment)
    since = containment.leader.start
    process = Process(
        popen.pid,
        pidfd,
        ours,
        custody,
        containment,
        since=since,
        unset_variables=unset,
        opening=opening,
    )
    if not custody.registers_each:
        process.begin_in_thread()
    return process


def _unspeakable(error: ValueError) -> SpawnError:
    """There is a NUL, or half a surrogate pair: arguments may come from a request."""
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
    """Let a blank become the program; None if the blank is gone, of which nothing is left then."""
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
    unset = unset_variables(descriptor.transport, environment)
    process = Process(
        blank.pid,
        blank.pidfd,
        ours,
        custody,
        containment,
        since=since,
        unset_variables=unset,
        opening=opening,
    )
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
