"""Check descriptor files one by one, and directories as the daemon reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from protocol.descriptor.loading import DescriptorError
from protocol.descriptor.model import Descriptor
from protocol.descriptor.rules import near_misses
from protocol.json_document import read_document
from protocol.problem import Problem
from supervisor.policy.capabilities import unknown_capability
from supervisor.policy.hook_findings import hook_findings
from supervisor.runtime.files.directory import (
    MissingDirectoryError,
    find_files,
    is_meant,
    read_descriptor,
    shown,
)
from supervisor.runtime.files.sources import scan
from supervisor.runtime.process.environment import UnsetVariableError, unset_references
from supervisor.runtime.process.preflight import first_obstacle


class CheckedDescriptor(msgspec.Struct):
    """A descriptor file with its errors and its oddities."""

    path: Path
    name: str | None = None
    problems: list[Problem] = []
    warnings: list[Problem] = []

    @property
    def ok(self) -> bool:
        return not self.problems


class CheckReport(msgspec.Struct):
    """All files in the order in which they were named, and the directories without any."""

    descriptors: list[CheckedDescriptor] = []
    empty: list[Path] = []


def check(paths: Sequence[Path]) -> CheckReport:
    """Check files and directories; raises `click.UsageError` for a directory that is unreadable."""
    checked = CheckReport()
    directories = [path for path in paths if path.is_dir()]
    try:
        found = scan(directories)
        unusable = {one.descriptor: one.reason for one in found.quarantined}
        for path in paths:
            if path not in directories:
                checked.descriptors.append(_check_file(path))
                continue
            files = [one for one in find_files(path) if is_meant(one)]
            if not files:
                checked.empty.append(path)
            checked.descriptors += [
                _check_member(file, unusable, found.descriptors) for file in files
            ]
    except MissingDirectoryError as error:
        raise click.UsageError(str(error)) from None
    return checked


def _check_file(path: Path, fleet: Sequence[Descriptor] | None = None) -> CheckedDescriptor:
    checked = CheckedDescriptor(path)
    try:
        descriptor = read_descriptor(path)
    except DescriptorError as error:
        checked.problems = list(error.problems)
        return checked
    checked.name = descriptor.name
    found = first_obstacle(descriptor, os.environ)
    if found is not None and descriptor.enabled:
        transport = descriptor.transport
        field = "prepare" if transport.prepare else "command" if transport.command else "headers"
        checked.problems = _unset(descriptor) or [
            Problem(f"/transport/{field}", f"{found.words}; {found.hint}")
        ]
    document = read_document(path.read_bytes())
    if isinstance(document, dict):
        checked.warnings = sorted(
            (
                *near_misses(document),
                *hook_findings(descriptor, fleet),
                *(
                    Problem(f"/capabilities/{at}", words)
                    for at, one in enumerate(descriptor.capabilities)
                    if (words := unknown_capability(one, misspelt=True)) is not None
                ),
            )
        )
    return checked


def env_file_for(descriptor: Descriptor) -> str:
    """Return a hint for where to set a variable of a module; `{0}` stands for its name."""
    source = Path(descriptor.source or f"{descriptor.name}.json")
    named = [one for one in descriptor.transport.env_file if "${" not in one]
    file = Path(source.parent, named[-1] if named else f"{source.stem}.env")
    shown_file = str(file).replace("{", "{{").replace("}", "}}")
    also = "" if named else f' and `"env_file": "{file.name}"` into its transport'
    also = also.replace("{", "{{").replace("}", "}}")
    return f"put `{{0}}=...` into {shown_file}{also}, then `stdiod restart {descriptor.name}`"


def _unset(descriptor: Descriptor) -> list[Problem]:
    """Return a problem at its field for each variable that is used and not set."""
    if not descriptor.transport.command:
        return []
    try:
        unset = unset_references(descriptor, os.environ)
    except UnsetVariableError:  # an env file, which is an obstacle by itself
        return []
    put = env_file_for(descriptor)
    where = "or set it where the daemon is started"
    return [
        Problem(pointer, f"uses ${{{name}}}, which is not set; {put.format(name)}; {where}")
        for pointer, name in unset
    ]


def _check_member(
    path: Path, unusable: dict[str, str], fleet: Sequence[Descriptor]
) -> CheckedDescriptor:
    """Check a file of a fleet: valid by itself, it may still conflict with the others."""
    checked = _check_file(path, fleet)
    reason = unusable.get(shown(path.absolute()))
    if checked.ok and reason is not None:
        checked.problems = [Problem("", reason)]
    return checked
