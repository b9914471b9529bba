"""One thing that `doctor` found: how bad it is, in words, and what to do."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

import msgspec

from protocol.problem import without_password


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """It works, but somebody should know."""
    BAD = "bad"
    """Something does not work, or will not."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; `area` is what was looked at, `subject` which one of them."""

    level: Level
    area: str
    subject: str | None = None
    message: str
    hint: str | None = None
    evidence: tuple[str, ...] = ()
    """Lines that speak for themselves, such as the end of a module's stderr."""


def ok(area: str, message: str, *, subject: str | None = None) -> Finding:
    """Return a finding that all is well."""
    return Finding(level=Level.OK, area=area, message=without_password(message), subject=subject)


def _with_hint(
    level: Level,
    area: str,
    message: str,
    hint: str,
    *,
    subject: str | None = None,
    evidence: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        level=level,
        area=area,
        message=without_password(message),
        hint=hint,
        subject=subject,
        evidence=evidence,
    )


warn = partial(_with_hint, Level.WARN)
bad = partial(_with_hint, Level.BAD)
