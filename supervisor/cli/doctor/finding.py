"""A finding of `doctor`: its level, a message and a hint."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

import msgspec

from protocol.problem import without_password


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    """The thing checked works, but deserves attention."""
    BAD = "bad"
    """The thing checked does not work, or will fail later."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`area` is the area examined, `subject` the object in it."""

    level: Level
    area: str
    subject: str | None = None
    message: str
    hint: str | None = None
    evidence: tuple[str, ...] = ()
    """Lines to show, such as the end of a module's stderr."""


def ok(area: str, message: str, *, subject: str | None = None) -> Finding:
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
