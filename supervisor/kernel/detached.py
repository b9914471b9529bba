"""Requests that go on without their client until another one of the same principal takes them up.

    open -> detach -> taken up, and open again
                   -> nobody came in time, or there was no room: given up

What a detached request says is kept in order, up to a bound; then its module is paused, as for a
client that does not read. An id is good for one client.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from protocol.errors import Failure, Reason
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.parties import Client, Handle
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ANSWERS, Account, HeldBytes
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

DETACHED_S = 60.0
"""How long a request goes on without a client, and its answer is kept."""

KEPT_BYTES = 1 << 20
"""What is kept of the events of one before it is paused; a chunk of a pipe may come on top."""

REQUEST_COST_BYTES = 4096
"""What one costs beside that, so that their number has a bound too."""

EVENT_COST_BYTES = 512

_ENCODE = msgspec.json.Encoder().encode


class Detached:
    """The client of a request in the absence of one."""

    def __init__(self, handle: Handle, kept: Callable[[Detached, int], None]) -> None:
        """Tell `kept` of each byte that is kept."""
        self.handle: Handle | None = handle
        """The request; None once it has ended, for it holds all that was asked."""
        self.principal = handle.principal
        self.id = secrets.token_urlsafe(18)
        self.events: deque[tuple[Progress, bytes | None]] = deque()
        self.response: Response | None = None
        self.size_bytes = 0
        self.timer: Timer | None = None
        self.is_open = True
        """Whether somebody may still come for it."""
        self._kept = kept

    @property
    def whose(self) -> tuple[str, str]:
        """On whose account it is kept."""
        return self.principal.name, self.principal.face

    def cancel(self, stopped: Stopped) -> None:
        """End the request, if it has not ended."""
        if self.handle is not None:
            self.handle.cancel(stopped)

    def event(self, event: Progress, line: bytes | None) -> None:
        """Keep an event."""
        if self.is_open:
            self.events.append((event, line))
            size = _size(event) if line is None else len(line)
            self._kept(self, size + EVENT_COST_BYTES)

    def finished(self, response: Response) -> None:
        """Keep the response."""
        self.handle = None
        if self.is_open:
            self.response = response
            self._kept(self, _size(response.shown()))

    def congested(self) -> Congestion:
        """Whether so much is kept that no more should come."""
        if not self.is_open or self.size_bytes <= KEPT_BYTES:
            return Congestion.NONE
        return Congestion.FULL if self.size_bytes > OVERRUN_BYTES else Congestion.SLOW


class DetachedRequests:
    """The detached requests of one daemon, the oldest first."""

    def __init__(self, deadlines: Deadlines, ledger: HeldBytes) -> None:
        self._deadlines = deadlines
        self._ledger = ledger
        self._all: dict[str, Detached] = {}
        self._accounts: dict[tuple[str, str], Account] = {}

    def detach(self, handle: Handle) -> str | None:
        """Take the client of an open request away; returns the id to take it up by.

        None, if it has ended: the client has its response. Idempotent.
        """
        if handle.ended:
            return None
        if isinstance(handle.client, Detached):
            return handle.client.id
        one = Detached(handle, self._kept)
        self._all[one.id] = one
        one.timer = self._deadlines.after(DETACHED_S, lambda: self._expired(one))
        waited = handle.client.congested()
        handle.client = one
        self._kept(one, REQUEST_COST_BYTES)
        if waited:
            handle.resume()  # whoever does not read is not waited for any more
        return one.id

    def take_up(self, handle_id: str, principal: Principal, client: Client) -> Handle | None:
        """Give a request to a client, with all that was kept; None, if it has ended with that.

        An id that is not known, any more or to this principal, is answered by a failure.
        """
        one = self._all.get(handle_id)
        if one is None or one.principal != principal:
            words = (
                f"no request {handle_id!r:.80} waits to be taken up; it may have been taken up by"
                f" another client, or its {DETACHED_S:g} s are over"
            )
            client.finished(Response(Failure.because(Reason.UNKNOWN_REQUEST, words)))
            return None
        self._forget(one)
        while one.events:
            client.event(*one.events.popleft())
        handle = one.handle
        if handle is None:
            assert one.response is not None  # noqa: S101 - it ended with that, and was open
            client.finished(one.response)
            return None
        handle.client = client
        if not client.congested():
            handle.resume()
        return handle

    def _kept(self, one: Detached, size: int) -> None:
        one.size_bytes += size
        account = self._accounts.get(one.whose)
        if account is None:
            whose = f"detached requests of {one.principal.name}"
            account = Account(self._ledger, whose, one.principal.by)
            self._accounts[one.whose] = account
        account.add(ANSWERS, size)
        while account.total and (account.is_full or not account.fits(0)):
            oldest = next(other for other in self._all.values() if other.whose == one.whose)
            self._forget(oldest)
            # Later: its module may be in the middle of saying what there is no room for.
            self._deadlines.after(0, partial(oldest.cancel, _NO_ROOM))

    def _expired(self, one: Detached) -> None:
        self._forget(one)
        one.cancel(_TOO_LATE)

    def _forget(self, one: Detached) -> None:
        del self._all[one.id]
        one.is_open = False
        account = self._accounts[one.whose]
        account.add(ANSWERS, -one.size_bytes)
        if not account.total:
            del self._accounts[one.whose]
        if one.timer is not None:
            one.timer.cancel()


_TOO_LATE = Stopped(
    Reason.DISCONNECT, f"its client left, and no other took it up within {DETACHED_S:g} s"
)
_NO_ROOM = Stopped(
    Reason.DISCONNECT,
    "its client left, and there was no more room for the output of such requests of its user",
)


def _size(value: object) -> int:
    try:
        return len(_ENCODE(value))
    except (RecursionError, UnicodeError, TypeError, ValueError, OverflowError):
        return KEPT_BYTES  # it is replaced by a word when it is written
