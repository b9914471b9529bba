"""Say for how long the daemon's event loop did not come round, if anybody can have noticed."""

from __future__ import annotations

from typing import Any

from supervisor.cli.quantities import latency

NOTICED_MS = 50.0
"""A shorter stall is no neighbour's trouble."""


def stall_words(stall: dict[str, Any] | None) -> str | None:
    """Return words for `daemon.longest_stall`, or None for one that is not worth any."""
    if stall is None or stall["ms"] < NOTICED_MS:
        return None
    words = f"longest stall {latency(stall['ms'])}"
    if stall["culprit"] is None:
        return words
    return f"{words}, by {stall['culprit']} ({stall['doing']})"
