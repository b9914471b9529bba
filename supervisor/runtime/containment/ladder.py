"""Choose the highest rung this machine allows, and say why not a higher one."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from supervisor.runtime.containment import cgroup2
from supervisor.runtime.containment.cgroup2 import Cgroup2Rung
from supervisor.runtime.containment.contained import ProcessGroupRung, Rung
from supervisor.runtime.containment.orphans import Orphans, SubreaperRung

RUNGS = ("cgroup2", "subreaper", "process_group")
"""The names, the highest first."""


class ContainmentError(Exception):
    """The containment that was asked for cannot be had here; the message says why."""


class Chosen(NamedTuple):
    rung: Rung
    why_not_higher: str | None
    """None on the highest."""


def choose(asked: str | None, daemon: str, orphans: Orphans) -> Chosen:
    """Take the rung that was asked for, or else the highest; raises `ContainmentError`."""
    if asked is not None and asked not in RUNGS:
        known = ", ".join(RUNGS)
        raise ContainmentError(f"there is no containment {asked!r}; there are {known}")
    reasons: list[str] = []
    for name in RUNGS:
        if asked is not None and name != asked:
            if RUNGS.index(name) < RUNGS.index(asked):
                reasons.append(f"{name}: the configuration asks for {asked}")
            continue
        try:
            rung = _make(name, daemon, orphans, is_asked=asked is not None)
            return Chosen(rung, "; ".join(reasons) or None)
        except OSError as error:
            reasons.append(f"{name}: {_words(error)}")
    raise ContainmentError(
        f"containment {asked!r} was asked for and cannot be had here: {reasons[-1]}"
    )


def probe(asked: str | None) -> tuple[str, str | None]:
    """Try which rung a daemon that this process became would get, and why not a higher one.

    Nothing is left of it: the rung is let go of at once. Raises `ContainmentError`.
    """
    daemon = str(uuid.uuid4())
    chosen = choose(asked, daemon, Orphans(daemon, whole_process=False))
    chosen.rung.close()
    return chosen.rung.name, chosen.why_not_higher


def _make(name: str, daemon: str, orphans: Orphans, *, is_asked: bool) -> Rung:
    match name:
        case "cgroup2":
            return Cgroup2Rung(cgroup2.own_folder(), daemon, orphans, with_tools=is_asked)
        case "subreaper":
            return SubreaperRung(orphans)
        case _:
            return ProcessGroupRung(daemon)


def _words(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}"
