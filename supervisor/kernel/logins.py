"""The logins that programs open on the control socket, to ask on behalf of others.

    login.open    {token | code | uid}: who that is says the daemon; the answer has a handle
    "as": HANDLE  a request is asked as the login's principal, and counts for its party
    login.close   the handle is over, and what is open with it; a browser's token with `forget`
    login.follow  tells of each handle that is over, so that a program closes its own connections

A login belongs to the connection that opened it, and is over with that one. Until then each
connection that may open one may ask with it. When its token is revoked or expires, no request is
begun with it from that moment on, and those that are open are cancelled, a turn at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from protocol.errors import Failure, Reason
from protocol.problem import named
from supervisor.kernel.parties import Client, Party, RefusedError
from supervisor.kernel.tokens import Authentication
from supervisor.policy.rate import Bucket
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.turns import in_turns

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

LOGINS = 16384
"""The most open logins: a gateway has one for each of its clients."""

FOLLOWED = 4096
"""Ends that wait for a follower that does not read; then it is ended itself, and has to look anew.
"""

WRONG_PER_S = 5.0
"""The rate of wrong codes and tokens that are answered as such; a code has 256 random bits. A valid
one is taken at any rate."""

_AGAIN = "log in again (login.open)"

_WHY = {
    "revoked": "its token was revoked",
    "expired": "its token has expired",
    "closed": "it was closed",
}
"""The ends of a login, in words."""


class OpenLogin:
    """What stands behind a handle."""

    def __init__(self, handle: str, party: Party, opener: Party, ledger: HeldBytes) -> None:
        self.handle = handle
        self.party = party
        self.party.account = Account(ledger, party.label, party.principal.by)
        self.opener = opener
        """The connection that it belongs to."""
        self.of_token: Authentication | None = None
        """None for a user of this machine."""
        self.open: dict[Client, Callable[[Stopped], None]] = {}
        """The clients of the requests that are asked with it, in order, and what cancels each."""

    def cancelling(self, stopped: Stopped) -> Iterator[None]:
        """Cancel the open requests, one with each step; the last one first."""
        for cancel in reversed(tuple(self.open.values())):
            cancel(stopped)
            yield


def _nothing() -> None:
    """Be told that a token is over, of a login that is none yet, or no more."""


class Logins:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tokens = kernel.tokens
        self._numbers = itertools.count(1)
        self._all: dict[str, OpenLogin] = {}
        self._followers: set[trio.MemorySendChannel[dict[str, Any]]] = set()
        self._wrong = Bucket(WRONG_PER_S, trio.current_time())
        self._ending = 0
        self._none_ends = trio.lowlevel.ParkingLot()

    # Opening; these raise `RefusedError`.

    def by_token(self, opener: Party, said: str, face: str) -> OpenLogin:
        """Open the login of who has a token; a wrong one is counted."""
        self._check_room()
        found = self._tokens.login(said, face, _nothing)
        if found is None:
            raise self._wrong_one("the token is unknown, or no longer valid")
        handle = self._next_handle()
        login = self._add(handle, Party(found.principal, label=f"login {handle}"), opener)
        login.of_token = found
        found.over = partial(self._token_over, login)
        return login

    def by_code(self, opener: Party, code: str, face: str) -> tuple[OpenLogin, str]:
        """Use up a code of `page.login`; returns the browser's login, and its cookie's text."""
        self._check_room()
        user = self._kernel.page_codes.take(code, trio.current_time())
        if user is None:
            raise self._wrong_one("the code is unknown, used, or too old; run `stdiod page` again")
        said = self._tokens.new_page(user)
        return self.by_token(opener, said, face), said

    async def by_uid(self, opener: Party, uid: int, pid: int | None, face: str) -> OpenLogin:
        """Open the login of a user of this machine, or of the module whose process `pid` is."""
        handle = self._next_handle()
        party = await self._kernel.local_clients.party(uid, pid, face, label=f"login {handle}")
        self._check_room()
        return self._add(handle, party, opener)

    def _next_handle(self) -> str:
        return f"h{next(self._numbers)}"

    def _add(self, handle: str, party: Party, opener: Party) -> OpenLogin:
        login = self._all[handle] = OpenLogin(handle, party, opener, self._kernel.host.ledger)
        return login

    def _check_room(self) -> None:
        if len(self._all) >= LOGINS:
            words = f"there are {LOGINS} open logins; close some (login.close)"
            raise RefusedError.because(Reason.QUEUE_FULL, words)

    def _wrong_one(self, words: str) -> RefusedError:
        wait_s = self._wrong.take(trio.current_time())
        if wait_s:
            words = f"{words}; and too many were wrong: try again later"
            return RefusedError.because(Reason.RATE_LIMITED, words, retry_in_s=wait_s)
        return RefusedError.because(Reason.WRONG_LOGIN, words)

    # Asking.

    def find(self, handle: str, asker: Party) -> OpenLogin | Failure:
        """Return the login as which a connection asks, or why it may not; counts for its rate."""
        if not asker.may_log_in:
            words = f"{asker.principal.name} may not ask as another: only a connection of the"
            words += " control socket with all rights may say `as`"
            return Failure.because(Reason.SCOPE, words)
        login = self._all.get(handle)
        token = None if login is None or login.of_token is None else login.of_token.token
        if login is None or (token is not None and not self._tokens.holds(token)):
            words = f"there is no login {named(handle, 80)}, or it is over: {_AGAIN}"
            return Failure.because(Reason.LOGIN_OVER, words)
        if login.of_token is not None and token is not None and token.rate_per_s is not None:
            wait_s = self._tokens.wait_s(login.of_token, trio.current_time())
            if wait_s:
                words = f"the token is good for {token.rate_per_s:g} requests a second"
                return Failure.because(Reason.RATE_LIMITED, words, retry_in_s=wait_s)
        return login

    def party(self, handle: str | None) -> Party | None:
        """Return the party of a login, if there is one."""
        login = None if handle is None else self._all.get(handle)
        return None if login is None else login.party

    # Ends.

    def close(self, handle: str, *, forget: bool) -> bool:
        """Close a login; raises `RefusedError`. Returns whether its token was forgotten.

        With `forget`, the token of a browser is revoked, and so all other logins with it are over.
        """
        login = self._all.get(handle)
        if login is None:
            words = f"there is no login {named(handle, 80)}, or it is over already"
            raise RefusedError.because(Reason.LOGIN_OVER, words)
        token = None if login.of_token is None else login.of_token.token
        if forget and token is not None and token.page_of is not None and self._tokens.holds(token):
            self._tokens.revoke(token.name)
            return True
        self._end(login, "closed")
        return False

    def leave(self, opener: Party) -> None:
        """Close what a connection has opened: it is closed itself."""
        for login in [one for one in self._all.values() if one.opener is opener]:
            self._end(login, "closed")

    async def wait_all_over(self) -> None:
        """Return when every request has ended whose login is over."""
        await self._tokens.wait_all_over()
        while self._ending:
            await self._none_ends.park()

    def _token_over(self, login: OpenLogin) -> None:
        expired = login.of_token is not None and self._tokens.has_expired(login.of_token.token)
        self._end(login, "expired" if expired else "revoked")

    def _end(self, login: OpenLogin, why: str) -> None:
        if self._all.pop(login.handle, None) is None:
            return
        if login.of_token is not None:
            self._tokens.leave(login.of_token)
            login.of_token.over = _nothing  # they held each other
        told = {"handle": login.handle, "why": why}
        for one in tuple(self._followers):
            try:
                one.send_nowait(told)
            except trio.WouldBlock:
                self._followers.discard(one)
                one.close()
        if login.open:
            self._ending += 1
            words = f"the login as which it was asked is over: {_WHY[why]}; {_AGAIN}"
            stopped = Stopped(Reason.LOGIN_OVER, words)
            self._kernel.nursery.start_soon(self._cancel_all, login, stopped)

    async def _cancel_all(self, login: OpenLogin, stopped: Stopped) -> None:
        try:
            await in_turns(login.party.label, "giving up its requests", login.cancelling(stopped))
        finally:
            self._ending -= 1
            if not self._ending:
                self._none_ends.unpark_all()

    # Following.

    def follow(self) -> tuple[trio.MemoryReceiveChannel[dict[str, Any]], Callable[[], None]]:
        """Begin to follow: returns the ends to come, each `{handle, why}`, and what stops that.

        They end with a follower that does not read them.
        """
        put, ends = trio.open_memory_channel[dict[str, Any]](FOLLOWED)
        self._followers.add(put)

        def unfollow() -> None:
            self._followers.discard(put)
            put.close()
            ends.close()

        return ends, unfollow
