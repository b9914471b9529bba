"""Look, without running anything, for what would keep a module's program from running.

Only what is sure is said: it is an error in `validate` and `reload`, and stands first in what is
told of a start that failed. Whatever looks may be kept by a dead mount, so it looks in a thread.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.descriptor.model import Descriptor
from supervisor.runtime.files.program_files import module_folder
from supervisor.runtime.process.environment import (
    UnsetVariableError,
    known_variables,
    resolved,
    service_headers,
)
from supervisor.runtime.process.program import (
    SpawnError,
    env_problem,
    explain_interpreter,
    find_program,
    named_program,
    of_prepare,
    working_folder,
)

_INTERPRETERS = re.compile(r"(python|perl|ruby|node|bash|sh|dash|lua)[\d.]*")
_SHELLS = re.compile(r"bash|sh|dash")

_NODE_ENDINGS = ("", ".js", ".json", ".node", ".cjs", ".mjs")
"""`node server` may run server.js."""

_LOOKED_AT_BYTES = 4096


class Obstacle(NamedTuple):
    """What keeps a program from running, what to do about it, and the path that it is about."""

    words: str
    hint: str
    path: str | None = None


def first_obstacle(descriptor: Descriptor, environment: Mapping[str, str]) -> Obstacle | None:
    """Return the first thing that is in the way of what is run first.

    Of a module with a `prepare` that is it: its command may be one that is there only afterwards.
    """
    if not descriptor.transport.prepare:
        return obstacle(descriptor, environment)
    return obstacle(of_prepare(descriptor), environment, "prepare")


def obstacle(
    descriptor: Descriptor, environment: Mapping[str, str], field: str = "command"
) -> Obstacle | None:
    """Return the first thing that is in the way of its command, if anything is.

    `environment` is the daemon's; `field` is where that command stands in the `transport`.
    """
    transport = descriptor.transport
    written = transport.command
    try:
        if not transport.command:  # a service
            service_headers(transport, known_variables(descriptor, environment))
            return None
        descriptor, given = resolved(descriptor, environment, descriptor.name)
        transport = descriptor.transport
    except UnsetVariableError as error:
        return Obstacle(str(error), error.hint)
    hint = f"correct transport.{field} or transport.cwd in {descriptor.source}"
    try:
        working_folder(descriptor)
    except SpawnError as error:
        return Obstacle(str(error), hint, module_folder(descriptor))
    try:
        program = find_program(descriptor, given)
    except SpawnError as error:
        named = named_program(descriptor)
        unbuilt = named is not None and not os.access(named, os.F_OK) and not transport.prepare
        if unbuilt and field == "command":
            hint += ", or have transport.prepare build it"
        return Obstacle(str(error), hint, named)
    search = given.get("PATH")
    wrong = explain_interpreter(Path(program), search)
    if wrong is not None:
        return Obstacle(
            wrong, "correct the #! line; an interpreter that is missing can be installed", program
        )
    if Path(program).name == "env":
        wrong = env_problem(list(transport.command[1:]), search)
        if wrong is not None:
            return Obstacle(f"its {field} runs env, and {wrong}", hint)
    return _script_obstacle(descriptor, written, Path(program).name, search, hint)


def _script_obstacle(
    descriptor: Descriptor, written: Sequence[str], interpreter: str, search: str | None, hint: str
) -> Obstacle | None:
    """Say what is wrong with a script that an interpreter is to run: `python3 dice.py`."""
    words = descriptor.transport.command[1:]
    if not words or words[0].startswith("-") or not _INTERPRETERS.fullmatch(interpreter):
        return None
    script = Path(module_folder(descriptor), words[0])
    is_shell = _SHELLS.fullmatch(interpreter) is not None
    if is_shell and "/" not in words[0] and shutil.which(words[0], path=search):
        return None  # a shell looks there too
    endings = _NODE_ENDINGS if interpreter.startswith("node") else ("",)
    if not any(os.access(f"{script}{ending}", os.F_OK) for ending in endings):
        shown = script if written[1] == words[0] else written[1]  # a variable may hold a secret
        words_ = f"{interpreter} is told to run {shown}, which is not there"
        return Obstacle(words_, hint, str(script))
    if is_shell and script.is_file():
        with script.open("rb") as file:
            if b"\r\n" in file.read(_LOOKED_AT_BYTES):
                words_ = f"the lines of {script} end in a carriage return (Windows line ending), "
                words_ += f"which {interpreter} takes for a part of them"
                return Obstacle(words_, f"`sed -i 's/\\r$//' {script}` removes them", str(script))
    return None
