"""Read directories of descriptors: what can be used, and what is quarantined and why."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from protocol.descriptor import Descriptor
from protocol.descriptor_loading import DescriptorError, parse_descriptor
from protocol.problem import Problem

DESCRIPTOR_BYTES = 4 << 20
"""A larger file is no descriptor; it is not read into memory to find that out."""

CIRCLE_NAMED = 10
"""How many modules of a dependency circle are named; ten thousand could form one."""


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
        # `os.path` takes what cannot be looked at, such as a link to itself, for no folder.
        if not os.path.isdir(path):  # noqa: PTH112
            if entry.name.endswith(".json"):
                files.append(path)
        elif os.path.lexists(path / "module.json"):
            files.append(path / "module.json")
    return files


def read_descriptor(path: Path) -> Descriptor:
    """Read and check one file; raises `DescriptorError` with every problem found."""
    source = str(path.absolute())
    try:
        # Without O_NONBLOCK a named pipe would wait for a writer, and all modules with it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DescriptorError(source, (Problem("", "is no regular file"),))
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
    wanted = {one.name: one.supervision.depends_on for one in descriptors}
    reasons: dict[str, str] = {}
    for descriptor in descriptors:
        refusal = unsupported(descriptor)
        if refusal is not None:
            reasons[descriptor.name] = refusal
    for name, needed in wanted.items():
        missing = next((one for one in needed if one not in wanted), None)
        if missing is not None:
            words = f"depends_on names {missing!r}, and there is no such module"
            reasons.setdefault(name, words)
    for circle in _circles(wanted):
        for at, name in enumerate(circle):
            if name not in reasons:
                reasons[name] = f"depends_on goes in a circle: {_named(circle, at)}"
    _spread(reasons, wanted)
    return reasons


def _spread(reasons: dict[str, str], wanted: Mapping[str, tuple[str, ...]]) -> None:
    """Add those that depend on what is quarantined; linear, since ten thousand may form a chain."""
    dependants: dict[str, list[str]] = {}
    for name, needed in wanted.items():
        for one in needed:
            dependants.setdefault(one, []).append(name)
    left = deque(reasons)
    while left:
        bad = left.popleft()
        for name in dependants.get(bad, ()):
            if name not in reasons:
                reasons[name] = f"depends_on names {bad!r}, which is quarantined"
                left.append(name)


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


def _circles(wanted: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Find circles, at least one through each group of modules that wait for each other."""
    # Depth first, without recursion: ten thousand descriptors may form one chain.
    done: set[str] = set()
    for root in wanted:
        if root in done:
            continue
        path, branches = {root: 0}, [iter(wanted[root])]
        while branches:
            following = next(branches[-1], None)
            if following is None:
                branches.pop()
                done.add(path.popitem()[0])
            elif following in path:
                yield list(path)[path[following] :]
            elif following in wanted and following not in done:
                path[following] = len(path)
                branches.append(iter(wanted[following]))


def _named(circle: Sequence[str], at: int) -> str:
    names = [circle[(at + step) % len(circle)] for step in range(min(len(circle), CIRCLE_NAMED))]
    if len(circle) > CIRCLE_NAMED:
        names.append(f"... ({len(circle)} modules)")
    return " -> ".join([*names, circle[at]])
