"""Be a process that checks args by schemas, one after the other, for as long as the daemon lives.

    daemon -- stdin: sizes, schema, args --> this process
           <-- stdout: a line: null, or what is wrong --

Whatever a schema makes of some args, it is bounded from outside of Python, where a regular
expression can't be interrupted: one check that takes more than `CPU_S` of CPU time ends the process
by SIGPROF, and the daemon's end ends it by SIGIO, in the midst of a check too. Both signals kill by
default, and there is no handler.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from protocol.args_schema import ArgsValidator, OpSchema
from protocol.problem import Problem
from protocol.schema_check import CompiledSchema, schema_problems
from supervisor.runtime.checking.contract import CPU_S, MEMORY_BYTES, SCHEMA_CPU_S, SIZES

KEPT = 64
"""How many schemas are kept compiled."""

Compiled = dict[OpSchema, Callable[[Any], Problem | None] | None]
"""What says of args what is wrong with them. None is for what a module described that is no schema
which can be used: all args go."""


def main(lifeline: int) -> None:
    """Check what stdin asks for until it ends; `lifeline` is a pipe that the daemon holds open."""
    _die_with(lifeline)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compiled: Compiled = {}
    while (sizes := _read(SIZES.size)) is not None:
        schema_bytes, args_bytes, vouched = SIZES.unpack(sizes)
        schema, args = _read(schema_bytes), _read(args_bytes)
        if schema is None or args is None:
            return
        problem = _checked(OpSchema(schema, vouched), args, compiled)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(sys.stdout.fileno(), msgspec.json.encode(problem) + b"\n")


def _checked(schema: OpSchema, args: bytes, compiled: Compiled) -> Problem | None:
    try:
        if schema not in compiled:
            signal.setitimer(signal.ITIMER_PROF, SCHEMA_CPU_S)
            compiled[schema] = _compiled(schema)
            if len(compiled) > KEPT:
                del compiled[next(iter(compiled))]
        one = compiled[schema]
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        return None if one is None else one(msgspec.json.decode(args))
    except MemoryError:
        return Problem("", f"takes more than {MEMORY_BYTES >> 20} MiB to be validated")
    # Whatever jsonschema trips over: what could not be checked is not valid.
    except Exception as error:  # noqa: BLE001
        return Problem("", f"cannot be validated: {type(error).__name__}")


def _compiled(schema: OpSchema) -> Callable[[Any], Problem | None] | None:
    value = msgspec.json.decode(schema.json)
    if not schema.vouched and schema_problems(value, ""):
        return None
    compiled, plain = CompiledSchema(value), ArgsValidator({_OP: value}, most_values=sys.maxsize)

    def problem(args: Any) -> Problem | None:
        # Most of what the daemon leaves is good and long: jsonschema takes ten times as long.
        return None if plain.accepts(_OP, args) else compiled.problem(args)

    return problem


_OP = "op"


def _die_with(lifeline: int) -> None:
    """Let the kernel end this process when the last writer of a pipe is gone."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGIO, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    # pipe_release in fs/pipe.c tells those who asked for SIGIO.
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # gone already, before anybody could tell
        sys.exit(0)


def _read(size: int) -> bytes | None:
    """Read so many bytes from stdin; None at its end."""
    data = bytearray()
    while len(data) < size:
        chunk = os.read(sys.stdin.fileno(), size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
