"""The principal of an HTTP client.

The user of a Unix socket, or the owner of its token or cookie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import msgspec
import trio

from protocol.amcp_errors import ErrorCode
from supervisor.faces.http.head import (
    Head,
    Refusal,
    cookie_of,
    is_of_own_origin,
    token_of,
    unauthorized,
)
from supervisor.kernel.tokens import Login, Tokens
from supervisor.policy.principals import Principal
from supervisor.runtime.held_bytes import Account

FACE = "http"

NOBODY = Principal("nobody", FACE, frozenset(), ())


class Peer(msgspec.Struct, frozen=True):
    """A listening socket's clients, and who they are without a token."""

    user: Principal | None
    """The user of the Unix socket, from the kernel; None over TCP."""
    served: str | None = None
    """The host that requests may name beside those of loopback; None for any."""
    scheme: str = "http"
    origins: frozenset[str] = frozenset()
    """Origins whose pages may use it, too."""
    cookie: str | None = None
    """The name of the cookie of a logged in browser; None where no token is needed."""


class Identity:
    """The identity of one connection; each request may come with another token."""

    def __init__(self, peer: Peer, tokens: Tokens, account: Account) -> None:
        self.peer = peer
        self.login: Login | None = None
        """The login of the open request."""
        self._tokens = tokens
        self._account = account

    def principal_of(self, head: Head, over: Callable[[], None]) -> Principal:
        """Return the principal of a request; raises `Refusal` without a valid token.

        `over` is called if the token ends before the next request.
        """
        said = token_of(head)
        if said is None:
            said = self.cookie(head)
        login = self.login
        if said is None:
            if self.peer.user is None:
                raise unauthorized("this needs a token (`stdiod token new`): Authorization: Bearer")
            return self.peer.user
        if login is not None and not self._tokens.is_of(login, said):
            self._tokens.leave(login)
            login = None
        login = login or self._tokens.login(said, FACE, partial(self._over, over))
        self.login = login
        if login is None:
            raise unauthorized("the token is unknown, or no longer valid")
        self._account.by = login.principal.by
        return login.principal

    def cookie(self, head: Head) -> str | None:
        """Return the login cookie of a request, unless the request is another page's."""
        name = self.peer.cookie
        if name is None or not is_of_own_origin(head, self.peer.scheme):
            return None
        return cookie_of(head, name)

    def count_request(self) -> None:
        """Count a request for its token; raises `Refusal`."""
        login = self.login
        wait_s = 0.0
        if login is not None:
            wait_s = self._tokens.wait_s(login, trio.current_time())
        if login is not None and wait_s:
            words = f"the token is good for {login.token.rate_per_s:g} requests a second"
            again = [("Retry-After", str(math.ceil(wait_s)))]
            raise Refusal(ErrorCode.RATE_LIMITED, words, headers=again, retry_in_s=wait_s)

    def leave(self) -> None:
        """Idempotent."""
        if self.login is not None:
            self._tokens.leave(self.login)

    def _over(self, told: Callable[[], None]) -> None:
        self.login = None
        told()
