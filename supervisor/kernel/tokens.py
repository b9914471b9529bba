"""Tokens: authentication of clients that are no users of this machine, by a secret shown once.

    stdiod_ID_SECRET    ID finds the token, and is no secret; of SECRET only a digest is kept

The secret is 256 random bits, so one round of SHA-256 keeps it as well as a slow hash would.
A client with the token is the principal `token:NAME`, with the token's scopes and globs. The name
is the owner: a token that replaces one of the same name sees the sessions of that one. When a token
is revoked, or expires, its logins are told, and have to close their connections.

A browser has one, too, as a cookie: it is made for a code (`PageCodes`), has a name of its
own, and its principal is the user of this machine who opened the page.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
import structlog
import trio

from protocol.errors import Reason
from protocol.problem import did_you_mean, named, printable
from supervisor.kernel.documents import KeptDocuments
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.recorder import Recorder
from supervisor.policy.principals import (
    GLOBS,
    WILDCARDS,
    Principal,
    Scope,
    has_few_wildcards,
    token_name,
)
from supervisor.policy.rate import Bucket
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

KIND = "token"

TOKENS = 1000
"""The most tokens; expired ones make room."""

PAGES = 32
"""The most tokens of browsers; one more replaces the oldest."""

PAGE_S = 12 * 3600.0
"""How long a browser stays logged in: a day's work."""

NAME_CHARS = 64

ENDED_A_TURN = 64
"""Logins that are ended in one turn: each is a connection to close, and thousands would keep the
neighbours waiting."""

_MARK = "stdiod"
"""The beginning of each token, by which scanners find leaked secrets."""

_NO_DIGEST = "0" * 64

log = structlog.get_logger()


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A kept token; times are Unix time (s)."""

    id: str
    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    modules: tuple[str, ...]
    created: float
    expires: float | None = None
    rate_per_s: float | None = None
    """Requests a second for all its holders together; None for any number."""
    page_of: str | None = None
    """The user whose browser has it; None if it is no browser's."""

    def document(self) -> dict[str, Any]:
        """Return what may be shown of it: not the digest, which nobody needs."""
        named = ("id", "name", "created", "expires", "rate_per_s", "page_of")
        shown = {name: getattr(self, name) for name in named}
        return {**shown, "scopes": list(map(str, self.scopes)), "modules": list(self.modules)}


class Authentication:
    """An authenticated connection, until it is closed or the token is over."""

    def __init__(self, token: Token, face: str, over: Callable[[], None]) -> None:
        self.token = token
        name = token_name(token.name) if token.page_of is None else token.page_of
        self.principal = Principal(name, face, frozenset(token.scopes), token.modules)
        self.over = over
        """Called once, when the token is revoked or expires; must neither block nor raise."""
        self.timer: Timer | None = None


class Tokens:
    def __init__(
        self, recorder: Recorder, wall_clock: Callable[[], float], deadlines: Deadlines
    ) -> None:
        self._recorder = recorder
        self._wall_clock = wall_clock
        self._deadlines = deadlines
        self._all = KeptDocuments(recorder, KIND, Token, named_by="id", order="created")
        for token in list(self._all.values()):
            if (bounded := _within_bounds(token)) is not token:
                self._all.put(token.id, bounded)
        self._logins: dict[str, set[Authentication]] = {}
        self._over: deque[Authentication] = deque()
        """The logins whose token is over, and which were not ended yet."""
        self._all_over = trio.lowlevel.ParkingLot()
        self._buckets: dict[str, Bucket] = {}
        """The buckets of tokens with a rate that were used, by id."""

    # To come in by.

    def login(self, said: str, face: str, over: Callable[[], None]) -> Authentication | None:
        """Authenticate a connection by a token; None if the token is unknown or over."""
        token = self.find(said)
        if token is None:
            return None
        login = Authentication(token, face, over)
        self._logins.setdefault(token.id, set()).add(login)
        if token.expires is not None:
            left_s = max(0.0, token.expires - self._wall_clock())
            login.timer = self._deadlines.after(left_s, partial(self._end, (login,)))
        return login

    def find(self, said: str) -> Token | None:
        mark, _, rest = said.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._all.get(token_id) if mark == _MARK else None
        # This takes the same time for any secret; which ids there are is no secret.
        same = hmac.compare_digest(_digest(secret), _NO_DIGEST if token is None else token.sha256)
        return None if token is None or not same or self._is_over(token) else token

    def holds(self, token: Token) -> bool:
        """Whether a token is neither revoked nor expired, whatever its logins were told yet."""
        return self._all.get(token.id) is token and not self._is_over(token)

    def has_expired(self, token: Token) -> bool:
        """Whether a token whose logins are over has expired; else it was revoked."""
        return token.id in self._all or self._is_over(token)

    def is_of(self, login: Authentication, said: str) -> bool:
        return self.find(said) is login.token

    def wait_s(self, login: Authentication, now_s: float) -> float:
        """Count a request; returns in how many seconds it may be repeated, 0 if it is served.

        `now_s` is of a clock that does not jump.
        """
        token = login.token
        if token.rate_per_s is None or token.id not in self._all:
            return 0.0  # its logins are about to end, and must leave nothing behind
        bucket = self._buckets.get(token.id)
        if bucket is None:
            bucket = self._buckets[token.id] = Bucket(token.rate_per_s, now_s)
        return bucket.take(now_s)

    def leave(self, login: Authentication) -> None:
        """Note that the connection is closed; idempotent."""
        if login.timer is not None:
            login.timer.cancel()
        others = self._logins.get(login.token.id, set())
        others.discard(login)
        if not others:
            self._logins.pop(login.token.id, None)

    # Making and revoking; these raise `RefusedError` and have then changed nothing.

    def new(
        self,
        maker: Principal,
        name: str,
        scopes: frozenset[Scope],
        modules: tuple[str, ...],
        *,
        expires_s: float | None = None,
        rate_per_s: float | None = None,
    ) -> tuple[Token, str]:
        """Make a token, with no more scopes than its maker has; returns it with its text."""
        if printable(name) != name or not name.strip():
            words = f"a token's name is for people to read, and {named(name, NAME_CHARS)} is not"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/name")
        if more := scopes - maker.scopes:
            which = ", ".join(one for one in Scope if one in more)
            words = f"{maker.name} may not give what it does not have: {which}"
            raise RefusedError.because(Reason.SCOPE, words, scope=which)
        self._drop_expired()
        if any(one.name == name for one in self._all.values()):
            words = f"there is a token {name!r} already; revoke it first, or choose another name"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/name")
        if len(self._all) >= TOKENS:
            raise RefusedError.because(
                Reason.LIMIT_REACHED, f"there are {TOKENS} tokens; revoke one"
            )
        if unavailable := self._recorder.unavailable():
            raise RefusedError(unavailable)
        return self._made(name, scopes, modules=modules, expires_s=expires_s, rate_per_s=rate_per_s)

    def new_page(self, user: Principal) -> str:
        """Log a browser of a user in; returns the text of its cookie.

        Also when nothing can be kept: then the browser has to log in again after a restart.
        """
        self._drop_expired()
        pages = [one for one in self._all.values() if one.page_of is not None]
        if len(pages) >= PAGES:
            self._drop(pages[0])
        names = {one.name for one in self._all.values()}
        while (name := f"page-{secrets.token_hex(3)}") in names:
            pass
        _, said = self._made(
            name, user.scopes, modules=user.modules, expires_s=PAGE_S, page_of=user.name
        )
        return said

    def _made(
        self, name: str, scopes: frozenset[Scope], *, expires_s: float | None, **known: Any
    ) -> tuple[Token, str]:
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._wall_clock()
        token = Token(
            id=token_id,
            name=name,
            sha256=_digest(secret),
            scopes=tuple(one for one in Scope if one in scopes),
            created=now,
            expires=None if expires_s is None else now + expires_s,
            **known,
        )
        self._all.put(token_id, token)
        return token, f"{_MARK}_{token_id}_{secret}"

    def revoke(self, name: str) -> Token:
        """Revoke a token: it is refused from now on; its logins are ended, some in each turn."""
        self._drop_expired()
        for token in self._all.values():
            if token.name == name:
                self._drop(token)
                return token
        hint = did_you_mean(name, [one.name for one in self._all.values()])
        words = f"there is no token {named(name, NAME_CHARS)}{hint}"
        raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/name")

    async def wait_all_over(self) -> None:
        """Return when all logins of tokens that are over have been closed."""
        while self._over:
            await self._all_over.park()

    def shown(self) -> list[dict[str, Any]]:
        """Return what may be shown of all that have not expired."""
        self._drop_expired()
        return [one.document() for one in self._all.values()]

    def _is_over(self, token: Token) -> bool:
        return token.expires is not None and token.expires <= self._wall_clock()

    def _drop_expired(self) -> None:
        for token in [one for one in self._all.values() if self._is_over(one)]:
            self._drop(token)

    def _drop(self, token: Token) -> None:
        self._all.remove(token.id)
        self._buckets.pop(token.id, None)
        self._end(self._logins.get(token.id, ()))

    def _end(self, logins: Iterable[Authentication]) -> None:
        idle = not self._over
        self._over.extend(logins)
        if idle and self._over:
            self._deadlines.after(0, self._end_some)

    def _end_some(self) -> None:
        try:
            for _ in range(min(ENDED_A_TURN, len(self._over))):
                login = self._over.popleft()
                if login in self._logins.get(login.token.id, ()):  # else he has left
                    self.leave(login)
                    login.over()
        finally:
            if self._over:
                self._deadlines.after(0, self._end_some)
            else:
                self._all_over.unpark_all()


def _within_bounds(token: Token) -> Token:
    """Return a token of an earlier version with as many globs as a new one may have."""
    kept = tuple(filter(has_few_wildcards, token.modules))[:GLOBS]
    if len(kept) == len(token.modules):
        return token
    left_out = len(token.modules) - len(kept)
    words = f"{left_out} of its globs are left out: there may be {GLOBS}, with {WILDCARDS} `*` each"
    log.warning("a token may use less than before", name=token.name, words=words)
    return msgspec.structs.replace(token, modules=kept)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


CODE_S = 60.0
"""How long a code is good: a browser that has to start takes some seconds."""

CODES = 32
"""Unused codes at a time; one more replaces the oldest."""


class _Code(msgspec.Struct, frozen=True):
    principal: Principal
    until_s: float


class PageCodes:
    """The unused codes, the oldest first; times are monotonic (s).

    A code lets a user of this machine into the page, without a secret that lasts in a URL:
    `stdiod page` asks for one, the browser says it once, within 60 s, and has a cookie for it.
    Codes are in memory alone: those of a daemon end with it.
    """

    def __init__(self) -> None:
        self._unused: dict[str, _Code] = {}
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
