"""Modules in trouble, for `status` and `top`."""

from __future__ import annotations

from typing import Any

WORST_FIRST = (
    "failed",
    "backoff",
    "degraded",
    "stopping",
    "preparing",
    "starting",
    "down",
    "ready",
)
NO_TROUBLE = len(WORST_FIRST) + 1
"""The place of a module without trouble among those of `severity`."""

_BAD = frozenset({"failed", "backoff", "degraded"})
_NOT_UP = frozenset({"down", "preparing", "starting"})
"""Between two tries, a crashing module is in each of them."""

FORGOTTEN_S = 3600.0


def recent_exit(module: dict[str, Any], now_s: float) -> dict[str, Any] | None:
    """Return `last_exit`; None for an old exit of a ready module that left no processes."""
    died: dict[str, Any] | None = module["last_exit"]
    if died is None or module["state"] != "ready" or now_s - died["ts"] < FORGOTTEN_S:
        return died
    return died if died.get("survivors") or died.get("possible_survivors") else None


def in_trouble(module: dict[str, Any]) -> bool:
    """Tell whether a module needs attention.

    `module` is its entry in `status`. It is in a bad state, waits for another module, is not up
    again after a bad exit, or its changed descriptor is invalid. A stopped module, or one that
    waits for its first request, is not in trouble.
    """
    if module["state"] in _BAD or module.get("quarantined"):
        return True
    if module["state"] not in _NOT_UP:
        return False
    died = module["last_exit"]
    if module["state"] == "down" and module["wanted"] == "up" and module["waits_for"]:
        return True
    return died is not None and died["reason"] != "stopped" and died["exit_code"] != 0


def is_asleep(module: dict[str, Any]) -> bool:
    """Tell whether a module ended because it was idle, and waits for its next request."""
    died = module["last_exit"]
    return module["state"] == "down" and died is not None and died["reason"] == "idle"


def trouble_first(modules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of `status`, modules in trouble first, the worst first."""
    return sorted(
        modules, key=lambda one: severity(one["state"]) if in_trouble(one) else NO_TROUBLE
    )


def severity(state: str) -> int:
    """Return the place of a state in the order of `WORST_FIRST`."""
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)
