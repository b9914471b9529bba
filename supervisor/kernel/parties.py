"""Those who take part in a request: who asked, and who serves its module's calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from protocol.errors import Failure, Outcome
from protocol.events import Progress
from protocol.response import Response
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import SharedTurn

if TYPE_CHECKING:
    from supervisor.kernel.begin_order import BeginOrder
    from supervisor.kernel.invocation import Invocation


NOBODY: frozenset[str] = frozenset()


class Lineage:
    """The hooks behind open requests, by the daemon's id of the request."""

    def __init__(self) -> None:
        self._behind: dict[str, frozenset[str]] = {}

    def begin(self, request_id: str, hooks: frozenset[str]) -> None:
        """Take note of a request made on behalf of `hooks`, until `end`."""
        if hooks:
            self._behind[request_id] = hooks

    def of(self, request_id: str | None) -> frozenset[str]:
        """Return the hooks that a request is made on behalf of."""
        return NOBODY if request_id is None else self._behind.get(request_id, NOBODY)

    def end(self, request_id: str) -> None:
        """Forget a request: it is answered, and the journal says so."""
        self._behind.pop(request_id, None)

    def all(self) -> list[frozenset[str]]:
        """Return the hooks behind each open request that has some."""
        return list(self._behind.values())


class Origin(msgspec.Struct, frozen=True):
    """An invocation, as those see it who take what it produces; without an id it is of none."""

    module: str
    op: str
    request_id: str | None
    session_id: str | None = None
    span_id: str | None = None
    owner: str | None = None
    """Whose it is what comes of it: the session's owner, or else who asked."""
    by: msgspec.Raw | None = None
    """Who asked, for the journal (`policy.principals.Principal.by`)."""

    def document(self) -> dict[str, str]:
        """Return what subscribers are told of it."""
        named = ("module", "op", "request_id", "session_id", "span_id")
        found = {name: getattr(self, name) for name in named}
        return {name: value for name, value in found.items() if value}


DAEMON = "supervisor"
"""What the daemon itself is called, by those who ask it something as they ask a module."""

_NUMBERS = itertools.count(1)
"""Of the connections of this process."""


class Party:
    """Who asks over one connection, which may narrow itself, and what the daemon is called there.

    The daemon has a name beside its own where it is the module of another one.
    """

    __slots__ = (
        "account",
        "label",
        "may_speak_mcp",
        "names",
        "order",
        "principal",
        "telling",
        "turn",
        "view",
    )

    def __init__(self, principal: Principal, name: str = DAEMON) -> None:
        self.principal = principal
        self.names = frozenset({DAEMON, name})
        self.label = f"client {next(_NUMBERS)}"
        """What it is called in `status`, and has its turn as."""
        self.account = Account(HeldBytes(), self.label)
        """What is held for it; of the daemon's ledger, where it is a client's."""
        self.order: BeginOrder | None = None
        """In which its requests begin (`begin_order.order_of`)."""
        self.turn = SharedTurn(self.label)
        """What becomes of its requests in tasks, has that together."""
        self.telling = trio.Semaphore(1)
        """Held by the one of its requests that a long answer is made for."""
        self.may_speak_mcp = False
        """Whether its face can carry MCP, and it has asked nothing else yet."""
        self.view: View | None = None
        """What it sees as an MCP client, once it is one: then its lines are MCP's."""


class Client:
    """The party that gets a request's events and its response; none of its methods may block.

    By default a client drops events, has room for any number, and can be asked nothing.
    """

    __slots__ = ()

    def event(self, event: Progress, line: bytes | None) -> None:
        """Take an event of the request.

        `line` is the module's own (`EventReceived.line`), if the event is as the module made it.
        """

    def finished(self, response: Response) -> None:
        """Take the response; called once, and last."""
        raise NotImplementedError

    def congested(self) -> Congestion:
        """Whether events should not come faster for now."""
        return Congestion.NONE

    def may_be_asked(self, method: str) -> bool:
        """Whether the client can be asked for what a host method is about."""
        del method
        return False

    def was_needed(self, method: str) -> None:
        """Take note that nobody else could be asked either."""

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        """Ask the client; `key` is the module's name for the question. Returns what withdraws it.

        Called only if it `may_be_asked`.
        """
        raise NotImplementedError


class Handle(Protocol):
    """An open request, for its client."""

    client: Client
    """Gets its events and its response; a WebSocket takes over the request that opened it."""

    @property
    def principal(self) -> Principal:
        """Who asked."""

    @property
    def ended(self) -> bool:
        """Whether a client has the response."""

    def cancel(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""

    def resume(self) -> None:
        """Continue: the client may have room again."""


Begin = Callable[[Party, str | None, str | None, dict[str, Any], Client], Handle | None]
"""The way in for faces (`Requests.begin`)."""


class OutcomeOnly(Client):
    """A client that wants nothing but the response."""

    __slots__ = ("_finished",)

    def __init__(self, finished: Callable[[Response], None]) -> None:
        self._finished = finished

    def finished(self, response: Response) -> None:
        self._finished(response)


class Caller(Protocol):
    """On whose behalf a module calls the host: a request that it serves, or the module itself."""

    @property
    def serving(self) -> Invocation | None:
        """The request that the module serves, if the call is made in the course of one."""

    @property
    def principal(self) -> Principal:
        """Who asked, or the module itself."""

    @property
    def module(self) -> Module: ...

    @property
    def origin(self) -> Origin:
        """Where what comes of the call comes from."""

    @property
    def session_id(self) -> str | None:
        """The session that is meant, if one is."""

    @property
    def ancestors(self) -> Iterable[Invocation]:
        """The requests on whose behalf all this is done, the nearest first."""

    def attend(self) -> None:
        """Take note that the module has got what it waited for."""

    def tell_first(self, event: Progress) -> None:
        """Tell whoever began all this, if somebody listens."""


class Invoke(Protocol):
    """The way in for invocations (kernel.requests), for those who make them inside the daemon."""

    def __call__(
        self,
        principal: Principal,
        tool: str,
        content: Mapping[str, Any],
        client: Client,
        *,
        parent: Invocation | None = None,
        behind: frozenset[str] = NOBODY,
        recorded: bool = True,
        order: BeginOrder | None = None,
        account: Account | None = None,
    ) -> Invocation | None:
        """Accept an invocation, or answer at once why not."""


class RefusedError(Exception):
    """An op ends with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
