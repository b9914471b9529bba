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
"""How many may be unused; one more takes the place of the oldest."""


class _Code(msgspec.Struct, frozen=True):
    principal: Principal
    until_s: float


class PageCodes:
    """The codes that nobody has used yet, the oldest first; times are of a clock of ours (s)."""

    def __init__(self) -> None:
        self._unused: dict[bytes, _Code] = {}
        """By digest. To look one up takes longer or shorter by its digest, which nobody who tries
        codes can choose: so the time says nothing of those there are."""

    def new(self, principal: Principal, now_s: float) -> str:
        """Make a code with which a browser comes in as `principal`."""
        for digest, one in list(self._unused.items()):
            if one.until_s <= now_s:
                del self._unused[digest]
        if len(self._unused) >= CODES:
            del self._unused[next(iter(self._unused))]
        code = secrets.token_urlsafe(32)
        self._unused[_digest(code)] = _Code(principal, now_s + CODE_S)
        return code

    def take(self, code: str, now_s: float) -> Principal | None:
        """Use a code up; returns who comes in with it, None if it is used, expired or none."""
        found = self._unused.pop(_digest(code), None)
        return None if found is None or found.until_s <= now_s else found.principal


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
