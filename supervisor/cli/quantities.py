"""Durations, sizes and times as text."""

from __future__ import annotations

import datetime as dt
import re
import time
from typing import Any

import click

_MINUTE_S = 60
_HOUR_S = 60 * _MINUTE_S
_DAY_S = 24 * _HOUR_S
_EXACT_BELOW_S = 10
_KIB = 1024


def duration(seconds: float) -> str:
    """Write a duration in at most two units: 40ms, 3.2s, 47s, 3m05s, 2h05m, 3d04h."""
    if round(seconds, 3) < 1:
        return f"{seconds * 1000:.0f}ms"
    if round(seconds, 1) < _EXACT_BELOW_S:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02}m"
    return f"{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02}h"


def latency(milliseconds: float) -> str:
    """Write a short duration with at least two digits: 0.21ms, 3.4ms, 250ms, 3.2s."""
    for digits, below in ((2, 1), (1, 100)):
        if round(milliseconds, digits) < below:
            return f"{milliseconds:.{digits}f}ms"
    return duration(milliseconds / 1000)


def size(size_bytes: float) -> str:
    """Write a size in binary units: 640 B, 12.3 MiB."""
    if size_bytes < _KIB:
        return f"{size_bytes:.0f} B"
    unit = "KiB"
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007 - used after the loop
        size_bytes /= _KIB
        if size_bytes < _KIB:
            break
    return f"{size_bytes:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """Write a number with its noun: 1 module, 3 modules."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_of_day(unix_s: float) -> str:
    """Write a local time for a terminal: HH:MM:SS.mmm."""
    when = dt.datetime.fromtimestamp(unix_s).astimezone()
    return when.time().isoformat(timespec="milliseconds")


def utc_stamp(unix_s: float) -> str:
    """Write a time for a file: ISO 8601 in UTC with milliseconds."""
    when = dt.datetime.fromtimestamp(unix_s, dt.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(unix_s: float, *, live: bool) -> str:
    """Write the time of an entry: short for a terminal, in full for a file."""
    return time_of_day(unix_s) if live else utc_stamp(unix_s)


def utc_second(unix_s: float) -> str:
    """Write a time for people: 2026-01-31 18:30:00 UTC."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(unix_s: float, now_s: float | None = None) -> str:
    """Write how long ago a time was; `now_s` is Unix time."""
    return f"{duration(max(0.0, (now_s or time.time()) - unix_s))} ago"


_UNITS_S = {"s": 1, "m": _MINUTE_S, "h": _HOUR_S, "d": _DAY_S}


def moment(text: str) -> float:
    """Read `10m` (ago), `18:30` or an ISO 8601 time, local without a zone, as Unix time (s)."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text, re.ASCII):
        return max(0.0, time.time() - float(ago[1]) * _UNITS_S[ago[2]])
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text, re.ASCII):
        text = _last(text.zfill(5 if text.count(":") == 1 else 8))
    try:
        return max(0.0, dt.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        words = (
            f"{text!r} is not a time such as 30s, 10m, 2h or 3d (ago), 18:30, or 2026-01-31T18:30"
        )
        raise click.BadParameter(words) from None


def _last(clock: str) -> str:
    """Return the time of today, or of yesterday if today's is still to come."""
    now = dt.datetime.now()  # noqa: DTZ005 - local
    day = now.date() if clock <= now.time().isoformat() else now.date() - dt.timedelta(days=1)
    return f"{day}T{clock}"


NOTICED_MS = 50.0
"""A shorter stall does not trouble other modules."""


def stall_words(stall: dict[str, Any] | None) -> str | None:
    """Return words for `daemon.longest_stall`, None for a short one."""
    if stall is None or stall["ms"] < NOTICED_MS:
        return None
    words = f"longest stall {latency(stall['ms'])}"
    if stall["culprit"] is None:
        return words
    return f"{words}, by {stall['culprit']} ({stall['doing']})"


HELD_BYTES = 1 << 20
"""Any daemon holds less than this."""


def held_words(held: dict[str, Any] | None) -> str | None:
    """Return words for `daemon.held_bytes`, None for few bytes."""
    if held is None or held["total"] < HELD_BYTES:
        return None
    words = f"holds {size(held['total'])} of {size(held['limit'])} for others"
    most = held["parties"][:1]
    return words if not most else f"{words}, most for {most[0]['party']}"


def limit_text(limit: dict[str, Any]) -> str:
    """Write `last_exit.limit`, or `details.limit` of a failure: memory 412.0 MiB of 256.0 MiB."""
    name, used, allowed = limit["limit"], limit["used"], limit["allowed"]
    match name:
        case "memory_bytes":
            return f"memory {size(used)} of {size(allowed)}"
        case "memory_ceiling_bytes":
            share = limit.get("share")
            own = "" if share is None else f", {size(share)} of it this one's"
            return f"memory of all modules {size(used)} of {size(allowed)}{own}"
        case _:
            return f"{name} {used} of {allowed}"
