"""The parties of a request: the principal, the client, and the caller of a host call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec
import trio

from protocol.errors import Failure, Outcome, Reason
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.begin_order import BeginOrder
from supervisor.policy.mcp_views import View
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import SharedTurn

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation


NOBODY: frozenset[str] = frozenset()

T = TypeVar("T")


class Lineage:
    """The hooks behind open requests, by the daemon's id of the request."""

    def __init__(self) -> None:
        self._behind: dict[str, frozenset[str]] = {}

    def begin(self, request_id: str, hooks: frozenset[str]) -> None:
        """Add a request made on behalf of `hooks`, until `end`."""
        if hooks:
            self._behind[request_id] = hooks

    def of(self, request_id: str | None) -> frozenset[str]:
        return NOBODY if request_id is None else self._behind.get(request_id, NOBODY)

    def end(self, request_id: str) -> None:
        """Remove a request: it is answered, and the journal says so."""
        self._behind.pop(request_id, None)

    def all(self) -> list[frozenset[str]]:
        """Return the hooks behind each open request that has some."""
        return list(self._behind.values())


class Provenance(msgspec.Struct, frozen=True):
    """The invocation that an event, an asset or a patch comes from; without an id there is none."""

    module: str
    op: str
    request_id: str | None
    session_id: str | None = None
    span_id: str | None = None
    owner: str | None = None
    """The owner of its products: the session's owner, or else the principal."""
    by: msgspec.Raw | None = None
    """The principal, for the journal (`policy.principals.Principal.by`)."""

    def recorded(self) -> dict[str, Any]:
        """Return what an entry of the journal says of it beside the module (`Recorder.record`)."""
        return {
            "session_id": self.session_id,
            "request_id": self.request_id,
            "span_id": self.span_id,
            "by": self.by,
        }

    def document(self) -> dict[str, str]:
        """Return what subscribers see of it."""
        named = ("module", "op", "request_id", "session_id", "span_id")
        found = {name: getattr(self, name) for name in named}
        return {name: value for name, value in found.items() if value}


DAEMON = "supervisor"
"""The daemon's own name, for requests to it."""

_NUMBERS = itertools.count(1)
"""The numbers of the connections of this process."""


class Party:
    """The principal of one connection, which may narrow itself, and the daemon's names there.

    The daemon has a second name where it is the module of another daemon.
    """

    __slots__ = (
        "account",
        "has_logins",
        "label",
        "may_speak_mcp",
        "module",
        "names",
        "order",
        "principal",
        "telling",
        "turn",
        "unordered",
        "view",
    )

    def __init__(
        self, principal: Principal, name: str = DAEMON, *, label: str | None = None
    ) -> None:
        self.principal = principal
        self.names = frozenset({DAEMON, name})
        self.label = label or f"client {next(_NUMBERS)}"
        """Its name in `status` and in turns."""
        self.account = Account(HeldBytes(), self.label)
        """The account of its bytes; of the daemon's ledger, where it is a client's."""
        self.turn = SharedTurn(self.label)
        """The turn that the tasks of its requests share."""
        self.order = BeginOrder(self.turn)
        """The order in which its requests begin."""
        self.telling = trio.Semaphore(1)
        """Held by the request that a long answer is made for."""
        self.may_speak_mcp = False
        """Whether its face can carry MCP, and nothing else was asked yet."""
        self.view: View | None = None
        """The view of an MCP client, once it is one: then its lines are MCP's."""
        self.module: str | None = None
        """The module whose process it is; then it has what that is granted, and nothing else.

        Empty if it is not known whose process of a module it is: then it has nothing."""
        self.has_logins = False
        """Whether its face can carry requests that are asked as another (`kernel.logins`)."""
        self.unordered = False
        """Whether only requests that are asked as the same one wait for each other."""

    @property
    def may_log_in(self) -> bool:
        """Whether it may open logins, and ask with any."""
        return self.has_logins and self.principal.is_full


Answered = Callable[[Outcome], None]
"""Takes the answer to a question to a client."""

Withdraw = Callable[[], None]
"""Withdraws a question; idempotent."""


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
        del method
        return False

    def was_needed(self, method: str) -> None:
        """Note that nothing else could answer it either."""

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Answered,
    ) -> Withdraw:
        """Ask the client, if it `may_be_asked`; returns the function that withdraws the question.

        `key` is the module's name for the question.
        """
        raise NotImplementedError


class Handle(Protocol):
    """An open request, for its client."""

    @property
    def ended(self) -> bool:
        """Whether a client has the response."""

    def cancel(self, stopped: Stopped) -> None:
        """End the request for a reason of the host's or the client's own; idempotent."""

    def resume(self) -> None:
        """Resume: the client may have room again."""


Begin = Callable[[Party, str | None, str | None, dict[str, Any], Client], Handle | None]
"""The entry for faces (`Requests.begin`)."""


class OutcomeOnly(Client):
    """A client that wants nothing but the response."""

    __slots__ = ("_finished",)

    def __init__(self, finished: Callable[[Response], None]) -> None:
        self._finished = finished

    def finished(self, response: Response) -> None:
        self._finished(response)


class Caller(Protocol):
    """The caller of a host call: a request that a module serves, or the module itself."""

    @property
    def serving(self) -> Invocation | None:
        """The request that the module serves, if the call is made in the course of one."""

    @property
    def principal(self) -> Principal:
        """The principal of the request, or the module itself."""

    @property
    def module(self) -> Module: ...

    @property
    def origin(self) -> Provenance:
        """The origin of the call's effects."""

    @property
    def session_id(self) -> str | None: ...

    @property
    def ancestors(self) -> Iterable[Invocation]:
        """The requests on whose behalf the call is made, the nearest first."""

    def attend(self) -> None:
        """Note that the module has got its answer."""

    def tell_first(self, event: Progress) -> None:
        """Send an event to the client of the first request, if there is one."""


class Invoke(Protocol):
    """The entry for invocations from within the daemon (kernel.requests)."""

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
    ) -> Invocation | None: ...


class RefusedError(Exception):
    """An op ends with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def because(cls, reason: Reason, words: str, **evidence: Any) -> Self:
        return cls(Failure.because(reason, words, **evidence))


def or_refused(found: T | Failure) -> T:
    """Return what was found; raises `RefusedError` if that is a failure."""
    if isinstance(found, Failure):
        raise RefusedError(found)
    return found


def refuse_if(refusal: Failure | None) -> None:
    """Raise `RefusedError` if there is a refusal."""
    if refusal is not None:
        raise RefusedError(refusal)
