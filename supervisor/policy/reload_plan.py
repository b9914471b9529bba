"""The plan of a reload: a pure function of the running modules and a reading.

"Unchanged means untouched" (promise 7 of ARCHITECTURE.md) is decided here: a module is replaced
only if its descriptor differs in effect, or if it asked for its program to be watched and that
differs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

from protocol.descriptor.model import WHENCE, Descriptor
from protocol.problem import step
from supervisor.policy.findings import QuarantinedFile, Reading, in_order, kept, usable

ABSENT = msgspec.UNSET


class Change(msgspec.Struct, frozen=True):
    """A value that differs, under its JSON pointer; `old` or `new` is unset where there is none."""

    pointer: str
    old: Any = ABSENT
    new: Any = ABSENT


def changes(old: Descriptor, new: Descriptor) -> tuple[Change, ...]:
    """Return where two descriptors of a module differ in effect, sorted by pointer.

    Equal digests in one folder mean equal descriptors, so only rewritten or moved files are
    compared value by value.
    """
    moved = old.folder != new.folder
    if old.digest == new.digest and not moved:
        return ()
    # A relative path starts from the file's folder: after a move it may name something else.
    before, after = _document(old, rooted=moved), _document(new, rooted=moved)
    return tuple(sorted(_differences("", before, after), key=lambda change: change.pointer))


def _document(descriptor: Descriptor, *, rooted: bool) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(descriptor))
    for field in WHENCE:
        del document[field]
    transport = document["transport"]
    if rooted and transport["command"]:
        transport["cwd"] = _rooted(descriptor.folder, transport["cwd"])
        program = transport["command"][0]
        if "/" in program:
            transport["command"] = [_rooted(descriptor.folder, program), *transport["command"][1:]]
    return document


def _rooted(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _differences(pointer: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _differences(step(pointer, key), old.get(key, ABSENT), new.get(key, ABSENT))
    elif not _equal(old, new):
        yield Change(pointer, old, new)


def _equal(old: Any, new: Any) -> bool:
    # Python takes 1, 1.0 and true for equal; a JSON Schema in `inputs` does not.
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_equal, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    return bool(old == new)


class Running(msgspec.Struct, frozen=True):
    """A running module: its descriptor, and the digests of its watched program files.

    `programs` is None as long as those were never read. `offered` is a newer descriptor, which is
    being tried, or has failed; with `again`, a failed one is tried once more.
    """

    descriptor: Descriptor
    programs: Mapping[str, str] | None = None
    offered: Descriptor | None = None
    again: bool = False

    @property
    def newest(self) -> Descriptor:
        return self.offered or self.descriptor


class Changed(msgspec.Struct, frozen=True):
    """A module to be replaced, with the changes of its descriptor and its program files.

    Without any, it is as it was before another was offered, unless that is tried `again`.
    """

    descriptor: Descriptor
    changes: tuple[Change, ...] = ()
    programs: tuple[str, ...] = ()
    again: bool = False

    @property
    def is_anew(self) -> bool:
        """Whether it is replaced even if its descriptor is the one in use."""
        return self.again or bool(self.programs)


class ReloadPlan(msgspec.Struct, frozen=True):
    """The fate of each module; a name stands in one list only.

    `added` and `changed` are in the order of dependencies, `removed` in the reverse. `unchanged`
    has the descriptors as they were read now: their files may have moved, or been rewritten.
    """

    added: tuple[Descriptor, ...] = ()
    removed: tuple[Descriptor, ...] = ()
    changed: tuple[Changed, ...] = ()
    unchanged: tuple[Descriptor, ...] = ()
    moved: tuple[tuple[str, Descriptor], ...] = ()
    """Unchanged ones whose file has moved, with its former path."""
    quarantined: tuple[QuarantinedFile, ...] = ()
    unrunnable: tuple[QuarantinedFile, ...] = ()
    """Those that are used, though their programs could not be run now, with the reasons."""
    programs: Mapping[str, Mapping[str, str]] = {}
    """The digests to remember for the next plan."""

    @property
    def empty(self) -> bool:
        """Whether no process is concerned."""
        return not (self.added or self.removed or self.changed)

    def document(self) -> dict[str, Any]:
        return {
            "added": [_named(one) for one in self.added],
            "removed": [_named(one) for one in self.removed],
            "changed": [
                {
                    **_named(one.descriptor),
                    "changes": [msgspec.to_builtins(change) for change in one.changes],
                    "programs": list(one.programs),
                }
                for one in self.changed
            ],
            "moved": [{**_named(one), "from": before} for before, one in self.moved],
            "unchanged": [one.name for one in self.unchanged],
            "quarantined": [msgspec.to_builtins(one) for one in self.quarantined],
            "unrunnable": [msgspec.to_builtins(one) for one in self.unrunnable],
        }


def plan(current: Mapping[str, Running], reading: Reading) -> ReloadPlan:
    known = {name: one.newest for name, one in current.items()}
    found = usable(known, reading)
    wanted = {one.name: one for one in found.descriptors}
    changed: dict[str, Changed] = {}
    moved: list[tuple[str, Descriptor]] = []
    for name, descriptor in wanted.items():
        before = current.get(name)
        if before is None:
            continue
        is_new = bool(changes(before.newest, descriptor))
        programs = changed_programs(before.programs, found.programs.get(name, {}))
        again = before.again and not is_new
        if is_new or again or (programs and descriptor.supervision.watch):
            differences = changes(before.descriptor, descriptor)
            changed[name] = Changed(descriptor, differences, programs, again)
        elif before.newest.source != descriptor.source:
            moved.append((before.newest.source, descriptor))
    gone = {name: one for name, one in known.items() if name not in wanted}
    order = _order(wanted)
    return ReloadPlan(
        added=tuple(wanted[name] for name in order if name not in current),
        removed=tuple(gone[name] for name in reversed(_order(gone))),
        changed=tuple(changed[name] for name in order if name in changed),
        unchanged=tuple(
            one for name, one in wanted.items() if name in current and name not in changed
        ),
        moved=tuple(moved),
        quarantined=found.quarantined,
        programs={
            name: digests
            for name, one in wanted.items()
            if (digests := _seen(current.get(name), one, found.programs.get(name))) is not None
        },
    )


def runnable(
    found: ReloadPlan,
    obstacles: Mapping[str, str],
    current: Mapping[str, Running],
    hopeless: Container[str],
) -> ReloadPlan:
    """Refuse the changes that would replace a program with one that can't be run.

    `obstacles` has the reasons, by module name; `hopeless` modules have nothing to lose.
    """
    refused = {
        one.descriptor.name: one
        for one in found.changed
        if one.descriptor.name in obstacles and one.descriptor.name not in hopeless
    }
    used = [*found.added, *(one.descriptor for one in found.changed)]
    return msgspec.structs.replace(
        found,
        changed=tuple(one for one in found.changed if one.descriptor.name not in refused),
        quarantined=(
            *found.quarantined,
            *(
                QuarantinedFile(one.descriptor.source, kept(obstacles[name]))
                for name, one in refused.items()
            ),
        ),
        unrunnable=tuple(
            QuarantinedFile(one.source, obstacles[one.name])
            for one in used
            if one.name in obstacles and one.name not in refused
        ),
        programs={
            name: (current[name].programs or {}) if name in refused else digests
            for name, digests in found.programs.items()
        },
    )


def _seen(
    before: Running | None, descriptor: Descriptor, now: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    """Return the digests to remember of a module, None if there never were any.

    A file that is absent now, or does not answer, is compared with its last digest once it is back.
    """
    known = before.programs if before is not None and descriptor.supervision.watch else None
    return now if known is None else {**known, **(now or {})}


def changed_programs(before: Mapping[str, str] | None, now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the program files whose bytes changed; none if they were never seen before.

    One that is not there is about to be: a build replaces its output. Until then what runs is the
    last good one. One that was not known before came with a change of the descriptor, or is the
    first sight of a file that was missing; the module is to see that too, if it was started.
    """
    if before is None:
        return ()
    return tuple(sorted(path for path, digest in now.items() if before.get(path) != digest))


def _order(modules: Mapping[str, Descriptor]) -> list[str]:
    ordered = in_order(modules)
    # A module that stays in use although what it needs is gone has its place all the same.
    placed = set(ordered)
    return [*ordered, *(name for name in modules if name not in placed)]


def _named(descriptor: Descriptor) -> dict[str, str]:
    return {"name": descriptor.name, "descriptor": descriptor.source}
