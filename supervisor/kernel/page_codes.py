"""Codes: how a user of this machine comes into the page, without a secret that lasts in a URL.

    `stdiod page` asks for a code; the browser says it once, within 60 s, and has a cookie for it

The cookie is a login of its own (`kernel.tokens`). Codes are in memory alone: those of a daemon end
with it.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from supervisor.policy.principals import Principal

CODE_S = 60.0
"""How long a code is good: a browser that has to start takes some seconds."""

CODES = 32
"""Unused codes at a time; one more replaces the oldest."""


class _Code(msgspec.Struct, frozen=True):
    principal: Principal
    until_s: float


class PageCodes:
    """The unused codes, the oldest first; times are monotonic (s)."""

    def __init__(self) -> None:
        self._unused: dict[bytes, _Code] = {}
        """By digest. The time of a look-up depends on the digest, which nobody can choose who tries
        codes: so it says nothing of the codes there are."""

    def new(self, principal: Principal, now_s: float) -> str:
        """Make a code for a browser, which then acts as `principal`."""
        for digest, one in list(self._unused.items()):
            if one.until_s <= now_s:
                del self._unused[digest]
        if len(self._unused) >= CODES:
            del self._unused[next(iter(self._unused))]
        code = secrets.token_urlsafe(32)
        self._unused[_digest(code)] = _Code(principal, now_s + CODE_S)
        return code

    def take(self, code: str, now_s: float) -> Principal | None:
        """Use a code up; returns its principal, None if it is used, expired or unknown."""
        found = self._unused.pop(_digest(code), None)
        return None if found is None or found.until_s <= now_s else found.principal


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
