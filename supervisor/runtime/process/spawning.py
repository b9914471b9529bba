"""Spawn a module's process: found, with its pipes, its environment and its limits, contained.

What holds it is a `Process`; none runs that is not held. It is spawned in a thread: `fork` and
`exec` take as long as the disk does.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import trio

from protocol.descriptor.model import Descriptor, Lifecycle
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.containment.spawn_threads import Late, SpawnTooSlowError
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.process.environment import (
    UnsetVariableError,
    resolved,
    unset_variables,
)
from supervisor.runtime.process.limits import LimitError, apply
from supervisor.runtime.process.pipes import Pipes
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
    for pause_s in (*BUSY_RETRIES_S, None):
        try:
            # Not cancelled: a process without a holder would be a leak.
            process = await custody.spawn_threads.run(
                f"spawning {instance}",
                _spawn,
                look=partial(_look, wanted),
                late=partial(custody.end_untold, late=late),
            )
        except SpawnTooSlowError as error:
            raise SpawnError(str(error), errno.ETIMEDOUT) from None
        except OSError as error:  # there is no thread for it
            raise SpawnError(explain(error, instance), error.errno) from None
        except SpawnError as error:
            if error.code != errno.ETXTBSY or pause_s is None:
                raise
            await trio.sleep(pause_s)
        else:
            custody.register(process.containment)
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


def _spawn(wanted: Wanted, environment: dict[str, str], program: str) -> Process:
    descriptor, _, instance, custody, opening, late, one_output, _, inherited = wanted
    folder = module_folder(descriptor)
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
                    pass_fds=inherited,
                    start_new_session=True,
                )
        except OSError as error:
            # Popen names the folder when the child could not enter it.
            step = "chdir" if error.filename == folder else "exec"
            raise _refused(descriptor, program, step, error) from None
        except ValueError as error:
            # There is a NUL, or half a surrogate pair: arguments may come from a request.
            words = f"its command or environment cannot be handed to a program: {error}"
            raise SpawnError(words) from None
        # It is reaped by its pidfd. Without this, Popen would try, too, when it is collected.
        popen.returncode = 0
        if late.is_set():
            custody.abandon(popen.pid)
            raise SpawnError(str(SpawnTooSlowError(late.held_by)), errno.ETIMEDOUT)
        pidfd, containment = _take(popen.pid, program, instance, custody, descriptor, brand=brand)
        ours = pipes.keep()
    unset = unset_variables(descriptor.transport, environment)
    process = Process(pidfd, ours, custody, containment, unset_variables=unset, opening=opening)
    custody.announce(containment)
    process.begin()
    return process


def _refused(descriptor: Descriptor, program: str, step: str, error: OSError) -> SpawnError:
    if step == "chdir":
        folder = working_folder(descriptor)
        message = f"its working folder {folder} cannot be entered: {error.strerror}"
        return SpawnError(message, error.errno)
    return SpawnError(explain(error, program), error.errno)


def _take(
    pid: int,
    program: str,
    instance: str,
    custody: Custody,
    descriptor: Descriptor,
    *,
    brand: int,
) -> tuple[int, Containment]:
    """Contain and limit a process just spawned, or kill it: none may run that is not held."""
    limits = descriptor.supervision.limits
    per_call = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
    try:
        is_tool = per_call and limits.memory_bytes is None
        containment = custody.take(pid, instance, brand, is_tool=is_tool)
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
