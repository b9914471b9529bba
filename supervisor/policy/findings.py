"""The result of reading the descriptors, and which of them can be used.

Descriptors are called files here; the rules are the same for every source. Rules that live here,
and nowhere else:

- a file that held a name keeps it for as long as it is there: a second file with a taken name is
  quarantined, whichever of the two comes first in the order of sources and paths;
- the last good version of a bad file stays in use (if no other is in its way), and the file is
  quarantined; that a file is bad may show only beside the others (a circle, a dependency gone);
- a source that cannot be read says nothing about its files: all of them stay in use;
- a module that runs is never dropped because of another module's descriptor: if what it depends on
  is gone, it is listed as quarantined, and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from protocol.descriptor.model import Descriptor

Modules = Mapping[str, Descriptor]
Refuse = Callable[[str, str], None]
"""Takes a module's name and the reason; changes what is chosen."""

Version = tuple[str, str]
"""The identity of a descriptor's version: its source, and the digest of its bytes."""

KEPT = ". The last good version stays in use."


def kept(reason: str) -> str:
    """Say in a sentence after the reason that nothing has changed for running modules."""
    return reason + (KEPT.removeprefix(".") if reason.endswith("?") else KEPT)


class QuarantinedFile(msgspec.Struct, frozen=True):
    descriptor: str
    reason: str


class Reading(msgspec.Struct, frozen=True):
    """All files as they are, in the order of their sources, and of their paths within each.

    `bad` names the files that are no descriptors, and the owners of what cannot be read: those say
    nothing about their files. `bad_names` are the modules that bad files are about, as far as
    that is known. `programs` has, for the watched program files of each version of a descriptor,
    used or not, the digests of their bytes; a file that is not there has none, and a version whose
    files did not answer is not in it. `unanswered` says that something did not answer.
    """

    descriptors: tuple[Descriptor, ...] = ()
    bad: tuple[QuarantinedFile, ...] = ()
    bad_names: frozenset[str] = frozenset()
    programs: Mapping[Version, Mapping[str, str]] = {}
    unanswered: bool = False


def version_of(descriptor: Descriptor) -> Version:
    """Return the identity of a descriptor's version; several modules may have one name."""
    return descriptor.source, descriptor.digest


def merged(readings: Iterable[Reading]) -> Reading:
    """Join the readings of several sources; a file in two of them belongs to the first."""
    descriptors: dict[str, Descriptor] = {}
    bad: dict[str, QuarantinedFile] = {}
    bad_names: set[str] = set()
    unanswered = False
    for reading in readings:
        unanswered = unanswered or reading.unanswered
        for one in reading.descriptors:
            descriptors.setdefault(one.source, one)
        for other in reading.bad:
            bad.setdefault(other.descriptor, other)
        bad_names |= reading.bad_names
    return Reading(
        tuple(descriptors.values()),
        tuple(bad.values()),
        frozenset(bad_names),
        unanswered=unanswered,
    )


class Found(msgspec.Struct, frozen=True):
    """The usable descriptors, in the order of the reading, and the unusable ones.

    `programs` has the digests of a reading for the usable ones, by module name.
    """

    descriptors: tuple[Descriptor, ...] = ()
    quarantined: tuple[QuarantinedFile, ...] = ()
    programs: Mapping[str, Mapping[str, str]] = {}


def usable(current: Mapping[str, Descriptor], reading: Reading) -> Found:
    """Decide which modules remain after a reading, and which it adds."""
    chosen, quarantined = _claims(current, reading)
    refused = _refused(current, chosen, set(reading.bad_names))
    quarantined += [QuarantinedFile(source, reason) for source, reason in refused.items()]
    quarantined.sort(key=lambda one: one.descriptor)
    programs = {
        name: reading.programs[version]
        for name, one in chosen.items()
        if (version := version_of(one)) in reading.programs
    }
    return Found(tuple(chosen.values()), tuple(quarantined), programs)


def _refused(
    current: Mapping[str, Descriptor], chosen: dict[str, Descriptor], dropped: set[str]
) -> dict[str, str]:
    """Remove from `chosen` what cannot be used beside the others; return why, by source."""
    refused: dict[str, str] = {}

    def refuse(name: str, reason: str) -> None:
        if name in current:
            refused[chosen[name].source] = kept(reason)
            chosen[name] = current[name]
        else:
            refused[chosen[name].source] = reason
            del chosen[name]
            dropped.add(name)

    # The last good version, put back, may need something else, or close a circle with another new
    # one; each round leaves fewer new ones.
    while _refuse_circles(current, chosen, refuse) or _refuse_unmet(
        current, chosen, dropped, refuse
    ):
        pass
    for one in chosen.values():
        why = unmet(one, chosen, dropped)
        if why is not None:
            refused.setdefault(one.source, kept(why))
    return refused


def _refuse_circles(current: Modules, chosen: Modules, refuse: Refuse) -> bool:
    found = circles(chosen)
    new = [name for name in found if chosen[name] is not current.get(name)]
    for name in new:
        refuse(name, found[name])
    return bool(new)


def _refuse_unmet(
    current: Modules, chosen: Modules, dropped: Container[str], refuse: Refuse
) -> bool:
    refused = False
    # In the order of dependencies, so that one round covers whole chains.
    for name in in_order(chosen):
        why = unmet(chosen[name], chosen, dropped)
        if why is not None and chosen[name] is not current.get(name):
            refuse(name, why)
            refused = True
    return refused


def _claims(
    current: Mapping[str, Descriptor], reading: Reading
) -> tuple[dict[str, Descriptor], list[QuarantinedFile]]:
    """Give each name to one file; return the descriptors by name, and the remaining files."""
    by_source = {one.source: one for one in reading.descriptors}
    bad = {one.descriptor: one.reason for one in reading.bad}
    held = {
        name: one if said is None else said
        for name, one in current.items()
        if ((said := by_source.get(one.source)) is not None and said.name == name)
        or (said is None and why_bad(one, bad) is not None)
    }
    chosen: dict[str, Descriptor] = {}
    quarantined: list[QuarantinedFile] = []
    for one in reading.descriptors:
        taken = held.get(one.name) or chosen.get(one.name)
        if taken is None or taken.source == one.source:
            chosen[one.name] = one
        else:
            reason = f"the name {one.name!r} is taken by {taken.source}"
            quarantined.append(QuarantinedFile(one.source, reason))
    left_over = {one.descriptor for one in quarantined}
    still = {
        name: one
        for name, one in current.items()
        if name not in chosen and (name in held or one.source in left_over)
    }
    in_use = {one.source for one in still.values()}
    quarantined = [_completed(one, in_use) for one in (*reading.bad, *quarantined)]
    return {**chosen, **still}, quarantined


def _completed(one: QuarantinedFile, in_use: set[str]) -> QuarantinedFile:
    if one.descriptor not in in_use:
        return one
    return QuarantinedFile(one.descriptor, kept(one.reason))


def why_bad(descriptor: Descriptor, bad: Mapping[str, str]) -> str | None:
    """Return why the file of a descriptor, or everything of its owner, is not used."""
    return bad.get(descriptor.source, bad.get(descriptor.owner))


CIRCLE_NAMED = 10
"""How many modules of a dependency circle are named; ten thousand could form one."""


def in_order(modules: Modules) -> list[str]:
    """Return the names, each after its dependencies; those in or behind a circle are left out.

    Names that are ready at the same time keep their order.
    """
    wanted = _needs(modules)
    missing = {
        name: len({one for one in needed if one in wanted}) for name, needed in wanted.items()
    }
    dependants: dict[str, list[str]] = {}
    for name, needed in wanted.items():
        for one in dict.fromkeys(needed):
            dependants.setdefault(one, []).append(name)
    order = [name for name, count in missing.items() if count == 0]
    for name in order:  # grows while it is walked: Kahn's algorithm
        for dependant in dependants.get(name, ()):
            missing[dependant] -= 1
            if missing[dependant] == 0:
                order.append(dependant)
    return order


def _needs(modules: Modules) -> dict[str, tuple[str, ...]]:
    return {name: one.supervision.depends_on for name, one in modules.items()}


def circles(modules: Modules) -> dict[str, str]:
    """Return the modules that depend on themselves in the end, with the circle in words."""
    reasons: dict[str, str] = {}
    for circle in _circles(_needs(modules)):
        for at, name in enumerate(circle):
            reasons.setdefault(name, f"depends_on goes in a circle: {_named(circle, at)}")
    return reasons


def unmet(module: Descriptor, there: Container[str], dropped: Container[str]) -> str | None:
    """Say which dependency of a module is missing, or None if all are there.

    Those in `dropped` have a descriptor that cannot be used.
    """
    for one in module.supervision.depends_on:
        if one not in there:
            why = "which is quarantined" if one in dropped else "and there is no such module"
            return f"depends_on names {one!r}, {why}"
    return None


def _circles(wanted: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Find circles, at least one through each group of modules that depend on each other."""
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
