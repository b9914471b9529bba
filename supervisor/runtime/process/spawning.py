"""Spawn a module's process: found, with its pipes, its environment and its limits, contained.

What holds it is a `Process`; none runs that is not held. It is spawned in a thread: `fork` and
`exec` take as long as the disk does.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from types import MappingProxyType

import trio

from protocol.descriptor.model import Descriptor, Lifecycle
from supervisor.runtime.containment.contained import Containment
from supervisor.runtime.containment.ledger import DAEMON_VARIABLE
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.containment.spawn import Late, SpawnTooSlowError
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


async def spawn(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    registry: ProcessRegistry,
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

    def make(late: Late) -> Process:
        found, environment, program = _find(descriptor, host, instance, variables, registry.daemon)
        late.check()
        with Pipes(registry.file_limit.for_spawns) as pipes, registry.orphans.spawning():
            brand = registry.orphans.brands.next()
            try:
                stdin, stdout, stderr = pipes.open()
                with registry.orphans.brands.forking(brand):
                    popen = subprocess.Popen(
                        found.transport.command,
                        executable=program,
                        stdin=stdin,
                        stdout=stderr if one_output else stdout,
                        stderr=stderr,
                        cwd=module_folder(found),
                        env=environment,
                        pass_fds=inherited,
                        start_new_session=True,
                    )
            except OSError as error:
                raise _refused(found, program, error) from None
            except ValueError as error:
                # There is a NUL, or half a surrogate pair: arguments may come from a request.
                words = f"its command or environment cannot be handed to a program: {error}"
                raise SpawnError(words) from None
            # It is reaped by its pidfd. Without this, Popen would try, too, when it is collected.
            popen.returncode = 0
            if late.is_set():
                registry.spawner.abandon(popen.pid)
                late.check()
            pidfd, containment = _take(popen.pid, program, instance, registry, found, brand=brand)
            if not late.delivered():
                os.close(pidfd)
                _end(containment, registry)
                late.check()
            ours = pipes.keep()
        unset = unset_variables(found.transport, environment)
        process = Process(
            pidfd, ours, registry, containment, unset_variables=unset, opening=opening
        )
        registry.announce(containment)
        process.begin()
        return process

    for pause_s in (*BUSY_RETRIES_S, None):
        try:
            # Not cancelled: a process without a holder would be a leak.
            process = await registry.spawner.run(f"spawning {instance}", make)
        except SpawnTooSlowError as error:
            raise SpawnError(str(error.strerror), error.errno) from None
        except OSError as error:  # there is no thread for it
            raise SpawnError(explain(error, instance), error.errno) from None
        except SpawnError as error:
            if error.code != errno.ETXTBSY or pause_s is None:
                raise
            await trio.sleep(pause_s)
        else:
            registry.register(process.containment)
            return process
    raise AssertionError  # the last pause is None, so the loop returned or raised


def _find(
    descriptor: Descriptor,
    host: Mapping[str, str],
    instance: str,
    variables: Mapping[str, str],
    daemon: str,
) -> tuple[Descriptor, dict[str, str], str]:
    """Return the descriptor with its variables expanded, the environment, and the program."""
    try:
        descriptor, given = resolved(descriptor, host, instance)
    except UnsetVariableError as error:
        raise SpawnError(str(error)) from None
    environment = {**given, **variables, DAEMON_VARIABLE: daemon}
    # Whether a path leads to a program, and the folder is there, `exec` and `chdir` will tell.
    return (
        descriptor,
        environment,
        named_program(descriptor) or find_program(descriptor, environment),
    )


def _refused(descriptor: Descriptor, program: str, error: OSError) -> SpawnError:
    # Popen names the folder when the child could not enter it.
    if error.filename == module_folder(descriptor):
        folder = working_folder(descriptor)
        message = f"its working folder {folder} cannot be entered: {error.strerror}"
        return SpawnError(message, error.errno)
    return SpawnError(explain(error, program), error.errno)


def _take(
    pid: int,
    program: str,
    instance: str,
    registry: ProcessRegistry,
    descriptor: Descriptor,
    *,
    brand: int,
) -> tuple[int, Containment]:
    """Contain and limit a process just spawned, or kill it: none may run that is not held."""
    limits = descriptor.supervision.limits
    per_call = descriptor.transport.lifecycle is Lifecycle.PER_INVOCATION
    try:
        is_tool = per_call and limits.memory_bytes is None
        containment = registry.take(pid, instance, brand, is_tool=is_tool)
    except OSError as error:
        registry.spawner.abandon(pid)
        words = f"its processes cannot be contained ({registry.rung.name}): {error}"
        raise SpawnError(words, error.errno) from None
    try:
        apply(limits, containment)
        pidfd = os.pidfd_open(pid)
    except (LimitError, OSError) as error:
        _end(containment, registry)
        if isinstance(error, LimitError):
            raise SpawnError(str(error)) from None
        raise SpawnError(explain(error, program), error.errno) from None
    return pidfd, containment


def _end(containment: Containment, registry: ProcessRegistry) -> None:
    containment.kill()
    registry.spawner.abandon(containment.leader.pid)
    registry.release(containment)
