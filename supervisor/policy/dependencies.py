"""Which dependencies cannot be met, and the order that respects those that can."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

Wanted = Mapping[str, tuple[str, ...]]
"""For each module, the names it depends on."""


def in_order(wanted: Wanted) -> list[str]:
    """Return the names, each after those it depends on; those in or behind a circle are left out.

    Names that are ready at the same time keep the order they were given in.
    """
    missing = {name: len({one for one in needed if one in wanted}) for name, needed in wanted.items()}
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
    """Return which modules wait for themselves in the end, and how."""
    reasons: dict[str, str] = {}
    # What can be put in order is in no circle; ten thousand descriptors usually all can.
    ordered = set(in_order(wanted))
    for name in wanted:
        cycle = None if name in ordered else _cycle_from(name, wanted)
        if cycle is not None:
            reasons[name] = f"depends_on goes in a circle: {' -> '.join(cycle)}"
    return reasons


def unmet(needed: Iterable[str], there: Container[str], dropped: Container[str]) -> str | None:
    """Say which of the names a module needs is not there, or None if all are.

    Those in `dropped` were written down somewhere but cannot be used.
    """
    for one in needed:
        if one in dropped:
            return f"depends_on names {one!r}, which is quarantined"
        if one not in there:
            return f"depends_on names {one!r}, and there is no such module"
    return None


def _cycle_from(name: str, wanted: Wanted) -> list[str] | None:
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
