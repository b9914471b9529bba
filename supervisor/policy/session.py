"""A session as a value: its allowed ids and sizes, and its status.

    busy       an invocation is in flight, or several
    idle       the last one ended well, or there was none
    cancelled  the last one was cancelled
    error      the last one failed
    ended      the session can only be read or forked

The first that applies counts, `ended` before all others. An invocation that was refused before it
reached a module counts as failed.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Any

import msgspec

from protocol.errors import Code, Failure, Outcome, Reason
from protocol.merge_patch import encoded_bytes, has_more_members
from protocol.problem import Problem
from protocol.shape import ANY, Fields, Map, text
from protocol.weight import is_deeper

_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of surrogate pairs, and line breaks."""


class Status(StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    CANCELLED = "cancelled"
    ERROR = "error"
    ENDED = "ended"


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of sessions, which are held in the daemon's memory."""

    state_bytes: int = 1 << 20
    """As compact JSON. In memory a state takes several times as much."""
    patch_bytes: int = 1 << 20
    """A patch may be larger than the state it leads to, and the journal keeps each whole."""
    depth: int = 64
    """Of a patch, and so of a state: half of a request's depth, since requests carry patches."""
    members: int = 10_000
    """Of a patch, those of its inner objects included: each is merged by itself. Patches in the
    journal may have more: an earlier version accepted them."""
    live: int = 10_000
    live_bytes: int = 64 << 20
    """Of all live sessions together, states and plans as compact JSON."""
    ended: int = 1_000
    """Ended sessions that can still be read; the one that ended first is forgotten first."""
    ended_bytes: int = 64 << 20
    """Of all ended sessions together, as they are kept on disk; the last one stays however large.
    """
    id_chars: int = 128
    title_chars: int = 200
    cwd_chars: int = 4096
    plan_bytes: int = 64 << 10
    history: int = 100
    """Invocations remembered per session; the journal has them all."""


PLAN = Fields(
    {
        "goal": text("a string that says what is to be reached", empty=True),
        "inputs": Map("an object, such as {}", ANY, ANY),
    },
    required=("goal", "inputs"),
)
"""Plan Schema v1 (`schemas/plan.v1.json`): what a session is for. Other fields may stand beside the
two and are kept as they are."""


def plan_problems(value: Any, at: str = "") -> list[Problem]:
    found: list[Problem] = []
    PLAN(value, at, found)
    return sorted(found)


BOUNDS = SessionLimits()


def status_of(*, ended: bool, in_flight: int, last: Status) -> Status:
    """Return the status of a session; `last` is that of its last invocation."""
    if ended:
        return Status.ENDED
    return Status.BUSY if in_flight else last


def status_after(outcome: Outcome) -> Status:
    if not isinstance(outcome, Failure):
        return Status.IDLE
    return Status.CANCELLED if outcome.code == Code.CANCELLED else Status.ERROR


def id_problem(
    session_id: object, bounds: SessionLimits = BOUNDS, field: str = "session_id"
) -> str | None:
    """Say why a value is no session id, or None."""
    if not isinstance(session_id, str):
        return f'"{field}" must be a string'
    if not session_id:
        return f'"{field}" is empty, must have 1 character at least'
    if len(session_id) > bounds.id_chars:
        length = len(session_id)
        return f'"{field}" has {length} characters, may have {bounds.id_chars} at most'
    if _has_unprintable(session_id):
        return f'"{field}" has a control character: {session_id!a}'
    return None


def title_problem(title: str, bounds: SessionLimits = BOUNDS) -> Failure | None:
    """Refuse a title that is too long, or no single line."""
    if len(title) > bounds.title_chars:
        words = f"the title has {len(title)} characters, may have {bounds.title_chars} at most"
        return _too_much(words, bounds.title_chars)
    if _has_unprintable(title):
        words = "the title has a control character, must be one line of text"
        return Failure.because(Reason.INVALID_ARGS, words, pointer="/title")
    return None


def cwd_problem(cwd: str, bounds: SessionLimits = BOUNDS) -> Failure | None:
    """Refuse a value that cannot be the path of a folder."""
    if len(cwd) > bounds.cwd_chars:
        words = f"the folder has {len(cwd)} characters, may have {bounds.cwd_chars} at most"
        return _too_much(words, bounds.cwd_chars)
    if not cwd.startswith("/") or _has_unprintable(cwd):
        words = "the folder has to be an absolute path, and one line of text"
        return Failure.because(Reason.INVALID_ARGS, words, pointer="/cwd")
    return None


def plan_problem(plan: Any, bounds: SessionLimits = BOUNDS) -> Failure | None:
    """Refuse a value that is no plan, or a plan that is too large."""
    problems = plan_problems(plan, "/plan")
    if problems:
        words = "the plan is not valid: " + "; ".join(map(str, problems))
        return Failure.because(Reason.INVALID_ARGS, words, pointer=problems[0].pointer)
    if is_deeper(plan, bounds.depth):
        return _too_much(f"the plan is nested more than {bounds.depth} levels deep", bounds.depth)
    size = encoded_bytes(plan)
    if size > bounds.plan_bytes:
        words = f"the plan has {size} bytes, may have {bounds.plan_bytes} at most"
        return _too_much(words, bounds.plan_bytes)
    return None


def patch_members_problem(patch: dict[str, Any], bounds: SessionLimits = BOUNDS) -> Failure | None:
    """Refuse a patch of too many members, before it is merged for the first time.

    Patches that an earlier version merged are not refused: later ones build on them.
    """
    return _members_problem(patch, bounds, "the patch", "send it in parts")


def first_state_problem(state: dict[str, Any], bounds: SessionLimits = BOUNDS) -> Failure | None:
    hint = "begin with a part, and patch the rest in afterwards"
    problem = _members_problem(state, bounds, "the state", hint)
    if problem is None and isinstance(size := patch_size(state, bounds, "the state"), Failure):
        return size
    return problem


def _members_problem(
    value: dict[str, Any], bounds: SessionLimits, what: str, hint: str
) -> Failure | None:
    if not has_more_members(value, bounds.members):
        return None
    words = f"{what} has more than {bounds.members} members, those inside of them included"
    return _too_much(f"{words}; {hint}", bounds.members)


def patch_size(
    patch: dict[str, Any], bounds: SessionLimits = BOUNDS, what: str = "the patch"
) -> int | Failure:
    """Return the bytes of a patch, or refuse one that is too deep or too large by itself."""
    # The depth comes first: measuring a value that is too deep may not end.
    if is_deeper(patch, bounds.depth):
        return _too_much(f"{what} is nested more than {bounds.depth} levels deep", bounds.depth)
    size = encoded_bytes(patch)
    if size > bounds.patch_bytes:
        words = f"{what} has {size} bytes, may have {bounds.patch_bytes} at most"
        return _too_much(words, bounds.patch_bytes)
    return size


def state_problem(size: int, bounds: SessionLimits = BOUNDS) -> Failure | None:
    if size <= bounds.state_bytes:
        return None
    words = f"the state would have {size} bytes, may have {bounds.state_bytes} at most"
    return _too_much(words, bounds.state_bytes)


def room_problem(growth: int, room: int, bounds: SessionLimits = BOUNDS) -> Failure | None:
    """Refuse a growth of the live sessions together beyond the `room` that is left."""
    if growth <= max(room, 0):
        return None
    total = bounds.live_bytes - room + growth
    words = f"all sessions together would have {total} bytes, may have {bounds.live_bytes} at most"
    return _too_much(f"{words}; end some first", bounds.live_bytes)


def count_problem(live: int, bounds: SessionLimits = BOUNDS) -> Failure | None:
    if live < bounds.live:
        return None
    words = f"there are {live} sessions that have not ended, {bounds.live} may be; end some first"
    return _too_much(words, bounds.live)


def revision_problem(revision: int, expected: int | None) -> Failure | None:
    """Refuse a patch that was made for another revision of the state."""
    if expected is None or expected == revision:
        return None
    words = f"the state has revision {revision}, the patch was made for {expected}"
    return Failure.because(Reason.REVISION_CONFLICT, words, revision=revision, expected=expected)


def _too_much(words: str, most: int) -> Failure:
    return Failure.because(Reason.LIMIT_REACHED, words, most=most)


def _has_unprintable(text: str) -> bool:
    if text.isprintable():
        return False
    return any(unicodedata.category(char) in _UNPRINTABLE for char in text)
