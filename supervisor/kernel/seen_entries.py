"""Which entries of the journal a principal may see: by their owner, and by their module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from supervisor.policy.principals import Principal

Sees = Callable[[bytes], bool]
"""Takes an entry as it is stored; called in the thread that reads."""


class _By(msgspec.Struct, frozen=True):
    name: str


class _Data(msgspec.Struct, frozen=True):
    op: Any = None


class _Entry(msgspec.Struct, frozen=True):
    module: str | None = None
    session_id: str | None = None
    request_id: str | None = None
    by: _By | None = None
    data: _Data | None = None


_decode = msgspec.json.Decoder(_Entry).decode


def sight(principal: Principal, owner_of: Callable[[str], str | None]) -> Sees | None:
    """Return the test whether an entry may be seen, or None if all may be.

    The entries of a request belong to the owner of its session (`owner_of`), or else to its
    principal, if that is known. An entry about a module is for principals whose globs cover it, or
    the op that the entry is about; an entry about none, and of no session, for those whose globs
    cover everything.
    """
    if principal.covers_all() and principal.owns(None):
        return None

    def sees(body: bytes) -> bool:
        try:
            entry = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        session_id = entry.session_id
        if session_id is not None or entry.request_id is not None:
            owner = None if session_id is None else owner_of(session_id)
            if owner is None and entry.by is not None:
                owner = entry.by.name
            if not principal.owns(owner):
                return False
        if entry.module is None:
            return session_id is not None or principal.covers_all()
        op = None if entry.data is None else entry.data.op
        return principal.covers(entry.module, op if isinstance(op, str) else None)

    return sees
