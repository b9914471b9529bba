"""Examine descriptors: their validity, program, interpreter and folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from protocol.descriptor.model import Descriptor
from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.cli.terminal import shell_word
from supervisor.policy.findings import Found
from supervisor.policy.hook_findings import hook_findings
from supervisor.runtime.files.directory import MissingDirectoryError, none_found
from supervisor.runtime.files.sources import scan
from supervisor.runtime.process.environment import UnsetVariableError, resolved, unset_variables
from supervisor.runtime.process.preflight import first_obstacle
from supervisor.runtime.process.program import find_program, of_prepare

AREA = "descriptor"


def found_in(directories: Sequence[Path]) -> tuple[Found, list[Finding]]:
    """Read directories as a daemon would; unreadable ones are findings."""
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
        findings.append(
            warn(AREA, none_found(readable), "`stdiod validate FILE` checks a single file")
        )
    return found, findings


def correct_it(directories: Iterable[str | Path]) -> str:
    """Return the hint for an invalid descriptor.

    It names all directories: a single file does not show a duplicate name or a circle.
    """
    words = " ".join(shell_word(str(directory)) for directory in directories)
    return f"correct it; `stdiod validate {words}` shows each problem"


def examine(
    found: Found, environment: Mapping[str, str], directories: Sequence[Path]
) -> list[Finding]:
    """Examine each descriptor in `directories`; `environment` is the daemon's, or would be."""
    hint = correct_it(one for one in directories if one.is_dir())
    findings = [bad(AREA, one.reason, hint, subject=one.descriptor) for one in found.quarantined]
    for descriptor in found.descriptors:
        findings += _examine(descriptor, environment, found.descriptors)
    return findings


def _examine(
    descriptor: Descriptor, environment: Mapping[str, str], fleet: Sequence[Descriptor]
) -> list[Finding]:
    name, transport = descriptor.name, descriptor.transport
    first = of_prepare(descriptor) if transport.prepare else descriptor
    given: Mapping[str, str] = environment
    with contextlib.suppress(UnsetVariableError):  # reported below as an obstacle
        first, given = resolved(first, environment, name)
    findings = [
        warn(
            AREA,
            f"transport.pass_env names {variable}, which the daemon has not set",
            f"put {variable}=... into a file that transport.env_file names, or set it where the"
            f' daemon is started; if it is optional, write "{variable}?" in pass_env',
            subject=name,
        )
        for variable in unset_variables(transport, given)
    ]
    findings += [
        warn(AREA, str(one), "correct it if it is a mistake; the hook runs as it is", subject=name)
        for one in hook_findings(descriptor, fleet)
    ]
    found = first_obstacle(descriptor, environment)
    if not descriptor.enabled:
        return [ok(AREA, f"is disabled{'' if found is None else f'; {found.words}'}", subject=name)]
    if found is not None:
        return [*findings, bad(AREA, found.words, found.hint, subject=name)]
    if not transport.command:
        return findings or [ok(AREA, f"is a service at {transport.url}", subject=name)]
    does = "is prepared by" if transport.prepare else "runs"
    program = find_program(first, given)
    return findings or [ok(AREA, f"{does} {program}", subject=name)]
