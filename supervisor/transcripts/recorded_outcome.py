"""Compare the outcome of a request that was recorded with the one that a replay came to."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Reason

BY_HOST = frozenset(
    {
        Reason.DEADLINE,
        Reason.SILENCE,
        Reason.EXIT_DEADLINE,
        Reason.START_DEADLINE,
        Reason.SPAWN_FAILED,
        Reason.STOPPING,
        Reason.BROKEN_PIPE,
        Reason.CLIENT,
        Reason.DISCONNECT,
        Reason.SHUTDOWN,
    }
)
"""Reasons that do not follow from what was said and how the process ended."""

EVIDENCE = frozenset(
    {"instance", "pid", "uptime_s", "stderr_tail", "unfinished_line", "survivors", "limit"}
    | {"stopped_by_host", "exit_code", "signal", "retry_in_s"}
)
"""Keys of `details` that tell about that run of the process, and are not compared."""


def reason_of(outcome: dict[str, Any]) -> str | None:
    """Return the reason in a failure's details, if there is one."""
    error = outcome.get("error")
    details = error.get("details") if isinstance(error, dict) else None
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason if isinstance(reason, str) else None


def same(recorded: dict[str, Any], replayed: dict[str, Any] | None) -> bool:
    """Compare what the recorded outcome says; what was left out of it is not compared."""
    if replayed is None:
        return False
    return all(_compared(value) == _compared(replayed.get(key)) for key, value in recorded.items())


def _compared(value: Any) -> bytes:
    if isinstance(value, dict) and isinstance(details := value.get("details"), dict):
        kept = {key: inner for key, inner in details.items() if key not in EVIDENCE}
        value = {**value, "details": kept}
    return msgspec.json.encode(value, order="sorted")  # in Python, True equals 1
