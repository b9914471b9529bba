"""Probable mistakes in the descriptor of a hook: events and gates that never reach it.

No finding is a reason to refuse a descriptor, since modules come and go, and make up events.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from protocol.descriptor.model import Descriptor, Gate, Kind
from protocol.journal_event import HOST_OWNED, REGISTRY, SHARED
from protocol.problem import Problem, did_you_mean, nearest, quoted

_FAMILIES = (*HOST_OWNED, *SHARED)
_CUTOFF = 0.8  # as in `protocol.descriptor.rules`: "mine:step" is a name that a module may use
_WILD = re.compile(r"[*?\[]")
_NO_SECTION = (
    'is missing: without it a hook is told of nothing and asked about nothing; add "hook": '
    '{"observe": ["module:*"]}, or "gate" such as ["tool:pre"]'
)


def hook_findings(
    descriptor: Descriptor, modules: Collection[Descriptor] | None = None
) -> list[Problem]:
    """Return the findings; `modules` are the other modules, None if they are not known."""
    hook = descriptor.hook
    if descriptor.kind is not Kind.HOOK:
        return []
    if hook is None:
        return [Problem("/hook", _NO_SECTION)]
    found = [
        Problem(f"/hook/observe/{at}", f"{quoted(glob)} {words}")
        for at, glob in enumerate(hook.observe)
        if (words := _no_event(glob)) is not None
    ]
    if hook.gate and modules is not None:
        gated = {one.name for one in modules if one.kind is not Kind.HOOK}
        hooks = {one.name for one in modules if one.kind is Kind.HOOK}
        found += _no_modules(hook.modules, gated, hooks)
    return found


def _no_event(glob: str) -> str | None:
    """Say why no event's name can match, or should."""
    family, colon, _ = glob.partition(":")
    if any(fnmatchcase(event, glob) for event in REGISTRY):
        return None
    if family == "tool":
        return f'fits no event: {", ".join(Gate)} are gates, which stand in "gate"'
    if _WILD.search(family):
        return None  # a module may have events of such a name
    meant = nearest(family, _FAMILIES, _CUTOFF) if colon else None
    known = did_you_mean(glob, tuple(REGISTRY), _CUTOFF)
    if meant is not None and not known and meant != family:
        known = f"; did you mean '{meant}:'?"
    if meant is not None or not (_WILD.search(glob) or colon):
        return f"fits no event that the daemon tells of{known}"
    return None


def _no_modules(globs: tuple[str, ...], gated: set[str], hooks: set[str]) -> Iterator[Problem]:
    for at, glob in enumerate(globs):
        if glob.strip("*") and not any(fnmatchcase(name, glob) for name in gated):
            words = f"{quoted(glob)} fits no module there is{did_you_mean(glob, gated)}"
            if any(fnmatchcase(name, glob) for name in hooks):
                words = f"{quoted(glob)} fits hooks only, and no hook is gated"
            yield Problem(f"/hook/modules/{at}", words)
