"""Examine descriptors: valid, and the program, its interpreter and its folder there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from protocol.descriptor import Descriptor
from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.cli.terminal import shell_word
from supervisor.policy.findings import Found
from supervisor.runtime.directory import MissingDirectoryError
from supervisor.runtime.environment import UnsetVariableError, module_environment
from supervisor.runtime.program import (
    SpawnError,
    explain_interpreter,
    find_program,
    module_folder,
    working_folder,
)
from supervisor.runtime.sources import scan

AREA = "descriptor"

_INTERPRETERS = re.compile(r"(python|perl|ruby|node|bash|sh|dash|lua)[\d.]*")


def found_in(directories: Sequence[Path]) -> tuple[Found, list[Finding]]:
    """Read directories as a daemon would; those that cannot be read are findings."""
    findings: list[Finding] = []
    readable: list[Path] = []
    for directory in directories:
        try:
            scan([directory])
        except MissingDirectoryError as error:
            findings.append(bad(AREA, str(error), "make it again, or name another directory"))
        else:
            readable.append(directory)
    found = scan(readable)
    if readable and not found.descriptors and not found.quarantined:
        names = ", ".join(map(str, readable))
        words = f"no descriptors in {names}: looked for *.json and */module.json"
        findings.append(warn(AREA, words, "`stdiod validate FILE` checks a single file"))
    return found, findings


def correct_it(directories: Iterable[str | Path]) -> str:
    """Return the hint for a descriptor that is not valid.

    It names all directories: of a name that is taken, or of a circle, a single file shows nothing.
    """
    words = " ".join(shell_word(str(directory)) for directory in directories)
    return f"correct it; `stdiod validate {words}` shows each problem"


def examine(
    found: Found, environment: Mapping[str, str], directories: Sequence[Path]
) -> list[Finding]:
    """Examine each descriptor in `directories`; `environment` is what the daemon has or would."""
    hint = correct_it(one for one in directories if one.is_dir())
    findings = [bad(AREA, one.reason, hint, subject=one.descriptor) for one in found.quarantined]
    for descriptor in found.descriptors:
        findings += _examine(descriptor, environment)
    return findings


def _examine(descriptor: Descriptor, environment: Mapping[str, str]) -> list[Finding]:
    name, transport = descriptor.name, descriptor.transport
    findings = [
        warn(
            AREA,
            f"transport.pass_env names {variable}, which the daemon has not set",
            f"set {variable} where the daemon is started",
            subject=name,
        )
        for variable in transport.pass_env
        if variable not in environment
    ]
    try:
        given = module_environment(transport, environment, name)
    except UnsetVariableError as error:
        hint = "set it where the daemon is started"
        return [*findings, bad(AREA, str(error), hint, subject=name)]
    try:
        working_folder(descriptor)
        program = find_program(descriptor, given)
    except SpawnError as error:
        hint = f"correct transport.command or transport.cwd in {descriptor.source}"
        return [*findings, bad(AREA, str(error), hint, subject=name)]
    wrong = explain_interpreter(Path(program))
    if wrong is not None:
        hint = "install the interpreter, or correct the #! line"
        return [*findings, bad(AREA, wrong, hint, subject=name)]
    script = _missing_script(descriptor, program)
    if script is not None:
        words = f"{Path(program).name} is told to run {script}, which is not there"
        hint = f"correct transport.command in {descriptor.source}"
        return [*findings, bad(AREA, words, hint, subject=name)]
    return findings or [ok(AREA, f"runs {program}", subject=name)]


def _missing_script(descriptor: Descriptor, program: str) -> str | None:
    """Return the script an interpreter would not find: `python3 dice.py` without dice.py."""
    words = descriptor.transport.command[1:]
    if not words or words[0].startswith("-") or not _INTERPRETERS.fullmatch(Path(program).name):
        return None
    script = Path(module_folder(descriptor), words[0])
    return None if script.exists() else str(script)
