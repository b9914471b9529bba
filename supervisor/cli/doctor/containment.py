"""Containment of processes: by the running daemon, or by a daemon that would start here."""

from __future__ import annotations

from supervisor.cli.doctor.finding import Finding, bad, ok, warn
from supervisor.runtime.containment.ladder import RUNGS, ContainmentError, probe

AREA = "containment"

_AUTO = 'containment = "auto" in the configuration takes the highest there is'
_HINT = "see docs/systemd.md: Delegate=yes gives the daemon a control group of its own"


def in_force(rung: str, why_not_higher: str | None) -> Finding:
    """Examine the containment that a daemon reports."""
    return _finding(f"processes are contained by {rung}", rung, why_not_higher)


def of_a_new_daemon(asked: str | None) -> Finding:
    """Examine a new daemon's containment; `asked` is the level in the configuration."""
    try:
        rung, why_not_higher = probe(asked)
    except ContainmentError as error:
        hint = f"{_HINT}; {_AUTO}"
        return bad(AREA, f"a daemon would not start here: {error}", hint)
    words = f"a daemon started here would contain processes by {rung}"
    return _finding(words, rung, why_not_higher)


def _finding(words: str, rung: str, why_not_higher: str | None) -> Finding:
    if rung == RUNGS[0]:
        return ok(AREA, words)
    if rung in RUNGS:
        stronger = ", ".join(RUNGS[: RUNGS.index(rung)])
        words += f"; {stronger} would be stronger"
    # One clause for each higher level, `NAME: why not`.
    refused = tuple(why_not_higher.split("; ")) if why_not_higher else ()
    chosen = any(clause.endswith(f"asks for {rung}") for clause in refused)
    return warn(AREA, words, _AUTO if chosen else _HINT, evidence=refused)
