"""Read directories of descriptors: what can be used, and what is quarantined and why."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import msgspec

from protocol.descriptor import Descriptor
from protocol.descriptor_loading import DescriptorError, parse_descriptor
from protocol.problem import Problem

DESCRIPTOR_BYTES = 4 << 20
"""A larger file is no descriptor; it is not read into memory to find that out."""


class Quarantined(msgspec.Struct, frozen=True):
    """A descriptor that is not used, and the reason."""

    descriptor: str
    reason: str


class Found(msgspec.Struct, frozen=True):
    """What a scan found, in the order of the files' paths."""

    descriptors: tuple[Descriptor, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()


class MissingDirectoryError(Exception):
    """A directory that was named cannot be read."""


def find_files(directory: Path) -> list[Path]:
    """Return `DIR/*.json` and `DIR/*/module.json`, sorted; raises `MissingDirectoryError`."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except NotADirectoryError:
        message = f"{directory} is not a directory"
        raise MissingDirectoryError(message) from None
    except OSError as error:
        message = f"{directory}: {error.strerror}"
        raise MissingDirectoryError(message) from None
    files: list[Path] = []
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(".json") and not entry.is_dir():
            files.append(path)
        elif entry.is_dir() and (path / "module.json").is_file():
            files.append(path / "module.json")
    return files


def read_descriptor(path: Path) -> Descriptor:
    """Read and check one file; raises `DescriptorError` with every problem found."""
    source = str(path.absolute())
    try:
        with path.open("rb") as file:
            data = file.read(DESCRIPTOR_BYTES + 1)
    except OSError as error:
        words = f"cannot be read: {error.strerror}"
        raise DescriptorError(source, (Problem("", words),)) from None
    if len(data) > DESCRIPTOR_BYTES:
        words = f"is larger than {DESCRIPTOR_BYTES} bytes, so it is no descriptor"
        raise DescriptorError(source, (Problem("", words),))
    return parse_descriptor(data, source)


def scan(directories: Iterable[Path]) -> Found:
    """Read all descriptors; raises `MissingDirectoryError`, and nothing else.

    A bad descriptor, one whose name is taken, and one whose dependencies cannot be met are
    quarantined; they are never in the others' way.
    """
    read: dict[str, Descriptor] = {}
    quarantined: list[Quarantined] = []
    for directory in directories:
        for path in find_files(directory):
            try:
                descriptor = read_descriptor(path)
            except DescriptorError as error:
                reason = "; ".join(str(problem) for problem in error.problems)
                quarantined.append(Quarantined(str(path.absolute()), reason))
                continue
            taken = read.get(descriptor.name)
            if taken is not None and taken.source != descriptor.source:
                reason = f"the name {descriptor.name!r} is taken by {taken.source}"
                quarantined.append(Quarantined(descriptor.source, reason))
            else:
                read[descriptor.name] = descriptor
    for name, reason in unmet(list(read.values())).items():
        quarantined.append(Quarantined(read.pop(name).source, reason))
    quarantined.sort(key=lambda one: one.descriptor)
    return Found(tuple(read.values()), tuple(quarantined))


def unmet(descriptors: Sequence[Descriptor]) -> dict[str, str]:
    """Return which modules' dependencies cannot be met, and why: missing, cyclic, unsupported."""
    reasons: dict[str, str] = {}
    wanted = {one.name: one.supervision.depends_on for one in descriptors}
    for descriptor in descriptors:
        refusal = unsupported(descriptor)
        if refusal is not None:
            reasons[descriptor.name] = refusal
    for name in wanted:
        cycle = _cycle_from(name, wanted)
        if cycle is not None:
            reasons[name] = f"depends_on goes in a circle: {' -> '.join(cycle)}"
    while found := {
        name: reason
        for name, needed in wanted.items()
        if name not in reasons and (reason := _unmet_dependency(needed, wanted, reasons))
    }:
        reasons |= found
    return reasons


def _unmet_dependency(
    needed: tuple[str, ...], wanted: Container[str], reasons: Container[str]
) -> str | None:
    for name in needed:
        if name not in wanted:
            return f"depends_on names {name!r}, and there is no such module"
        if name in reasons:
            return f"depends_on names {name!r}, which is quarantined"
    return None


def unsupported(descriptor: Descriptor) -> str | None:
    """Say what a descriptor asks for and this version cannot give.

    DESIGN 1, promise 8: a limit that was asked for and cannot be kept is a refusal, in words.
    """
    supervision = descriptor.supervision
    asked = [
        f"limits.{name}"
        for name in ("memory_bytes", "open_files", "processes", "cpu_s")
        if getattr(supervision.limits, name) is not None
    ]
    instances = supervision.instances
    if (instances.min, instances.max) != (1, 1):
        asked.append("instances.min and instances.max other than 1")
    asked += [
        f"instances.{name}"
        for name in ("idle_stop_s", "max_requests", "max_age_s")
        if getattr(instances, name) is not None
    ]
    if supervision.warm:
        asked.append("warm")
    if not asked:
        return None
    return f"supervision: this version cannot keep {', '.join(asked)}; remove it to run without"


def _cycle_from(name: str, wanted: dict[str, tuple[str, ...]]) -> list[str] | None:
    # Depth first, without recursion: ten thousand descriptors may form one chain.
    path = [name]
    branches = [iter(wanted.get(name, ()))]
    seen = {name}
    while branches:
        following = next(branches[-1], None)
        if following is None:
            branches.pop()
            path.pop()
        elif following == name:
            return [*path, name]
        elif following not in seen:
            seen.add(following)
            path.append(following)
            branches.append(iter(wanted.get(following, ())))
    return None
