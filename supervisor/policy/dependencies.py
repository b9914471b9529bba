"""Unmet dependencies, and the order of those that can be met."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

Wanted = Mapping[str, tuple[str, ...]]

CIRCLE_NAMED = 10
"""How many modules of a dependency circle are named; ten thousand could form one."""


def in_order(wanted: Wanted) -> list[str]:
    """Return the names, each after its dependencies; those in or behind a circle are left out.

    Names that are ready at the same time keep their order.
    """
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


def circles(wanted: Wanted) -> dict[str, str]:
    """Return the modules that depend on themselves in the end, with the circle in words."""
    reasons: dict[str, str] = {}
    for circle in _circles(wanted):
        for at, name in enumerate(circle):
            reasons.setdefault(name, f"depends_on goes in a circle: {_named(circle, at)}")
    return reasons


def unmet(needed: Iterable[str], there: Container[str], dropped: Container[str]) -> str | None:
    """Say which dependency of a module is missing, or None if all are there.

    Those in `dropped` have a descriptor that cannot be used.
    """
    for one in needed:
        if one not in there:
            why = "which is quarantined" if one in dropped else "and there is no such module"
            return f"depends_on names {one!r}, {why}"
    return None


def _circles(wanted: Wanted) -> Iterator[list[str]]:
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
