"""What an op of the daemon is: a schema for its args, and a function that begins it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import structlog
import trio

from protocol.connection import Notice
from protocol.descriptor.model import Kind
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.logins import Logins
from supervisor.kernel.parties import Client, Party, RefusedError
from supervisor.kernel.prompts import Prompts
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.request_checks import unknown_module, without_unseen
from supervisor.kernel.resource_updates import ResourceUpdates
from supervisor.kernel.status import DaemonFacts, module_status
from supervisor.kernel.tokens import PageCodes
from supervisor.policy.causes import seen_cause
from supervisor.policy.hook_findings import hook_findings
from supervisor.policy.mcp_views import McpOptions
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.event_feed import EventFeed

log = structlog.get_logger()

Emit = Callable[[Progress | None], Awaitable[None]]
"""Where an op's events go; waits while the client cannot keep up (`OwnRequest.emit`)."""


Begun = dict[str, Any] | Awaitable[Any]
"""The result of an op, or what to await for it; both may come to a `RefusedError`."""


class OwnRequest:
    """One request and its one answer (kernel.parties.Handle), as an op sees it."""

    __slots__ = (
        "_room",
        "_scope",
        "client",
        "ended",
        "notices",
        "party",
        "principal",
        "session_id",
        "what",
    )

    def __init__(
        self, party: Party, client: Client, what: str, session_id: str | None = None
    ) -> None:
        self.party = party
        self.what = what
        """The op that is asked for, for words."""
        self.principal = party.principal
        """The principal at the time of the request: its connection may be narrowed since."""
        self.session_id = session_id
        self.client = client
        self.notices: tuple[Notice, ...] = ()
        """The warnings of the response."""
        self.ended = False
        self._scope = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()

    def begin(self, begin: Callable[[], Begun], nursery: trio.Nursery) -> None:
        """Do at once what can be done at once, and the rest in a task."""
        try:
            begun = begin()
            if isinstance(begun, dict):
                self.finish(Success(begun))
            else:
                nursery.start_soon(self._run, begun)
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            self._fail(error)

    async def emit(self, event: Progress | None) -> None:
        """Send an event once there is room for it; None waits for the room, and sends nothing."""
        while self.client.congested():
            await self._room.park()
        if self.party.turn.is_over:
            await trio.lowlevel.cancel_shielded_checkpoint()
        if event is not None and not self.ended:
            self.client.event(event, None)

    def finish(self, outcome: Outcome) -> None:
        """Answer it; only the first answer counts."""
        if not self.ended:
            self.ended = True
            if isinstance(outcome, Failure):
                outcome = without_unseen(outcome, self.principal)
            self.client.finished(Response(outcome, notices=self.notices))

    def cancel(self, stopped: Stopped) -> None:
        self._scope.cancel()
        self.finish(Failure.because(stopped.reason, stopped.message))

    def resume(self) -> None:
        self._room.unpark_all()

    async def _run(self, rest: Awaitable[Any]) -> None:
        await self.party.turn.serve(self._answer(rest), self.what)

    async def _answer(self, rest: Awaitable[Any]) -> None:
        try:
            with self._scope:
                self.finish(Success(await rest))
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            self._fail(error)
        finally:  # also when the daemon ends without waiting
            self.finish(Failure.because(Reason.SHUTDOWN, "the daemon is stopping"))

    def _fail(self, error: Exception) -> None:
        """Answer the request with the failure of an exception that is being handled."""
        # No context manager: it would leave a cycle (docs/limits.md, Memory).
        if isinstance(error, RefusedError):
            self.finish(error.failure)
            return
        # A mistake of ours over one request is that request's failure; the others are served.
        log.error("a request failed in the daemon", exc_info=error)
        words = f"the request failed in the daemon: {type(error).__name__}; its log says where"
        self.finish(Failure.because(Reason.REPORTED, words))


Op = Callable[[dict[str, Any], OwnRequest], Begun]
"""Takes args that fit the schema, and does at once what can be done at once. It returns its result,
or an awaitable of it; both may raise `RefusedError`. So of requests that come one after the other,
a start or stop has its effect before the next one is checked, however long its own answer takes."""


ShutDown = Callable[[str, msgspec.Raw | None], None]
"""Begins the daemon's end: the cause, and the principal that asked for it (`Principal.by`)."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    fleet: Fleet
    facts: DaemonFacts
    reloads: Reloads
    effects: Effects
    grants: Grants
    hooks: Hooks
    approvals: Approvals
    prompts: Prompts
    refused: Mapping[str, int]
    """The count of invocations that never reached a module, by reason."""
    catalogue: Catalogue
    updates: ResourceUpdates
    page_codes: PageCodes
    logins: Logins
    mcp: McpOptions
    feed: EventFeed | None = None
    shut_down: ShutDown
    next_request_id: Callable[[], str]

    def module(self, name: str, principal: Principal) -> Module:
        """Return a module that the principal may see; raises `RefusedError`."""
        module = self.fleet.modules.get(name)
        if module is None or not principal.sees(name):
            raise RefusedError(unknown_module(name, self.fleet, principal))
        return module

    def status_of(
        self,
        module: Module,
        principal: Principal,
        *,
        histogram: bool = False,
        outcomes: bool = False,
        inputs: bool = False,
    ) -> dict[str, Any]:
        reasons = self.fleet.quarantine_reasons
        shown = module_status(module, reasons, histogram=histogram, outcomes=outcomes)
        if principal.is_full and module.descriptor.kind is Kind.HOOK:
            descriptors = [one.descriptor for one in self.fleet.modules.values()]
            shown["misfits"] += map(str, hook_findings(module.descriptor, descriptors))
        else:
            for others in ("waits_for", "missing"):
                shown[others] = [name for name in shown[others] if principal.sees(name)]
            if why_bad := shown.get("quarantined"):
                shown["quarantined"] = seen_cause(why_bad, principal)
        ops = self.effects.descriptions.ops(module, inputs=inputs)
        return {**shown, "ops": ops, "hook": self.hooks.status(module)}


class OpGroup:
    INPUTS: ClassVar[Mapping[str, Any]]
    """The schema of the args of each op, by the op's name."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def ops(self) -> Mapping[str, Op]:
        """Return the ops; one for each of `INPUTS`."""
        raise NotImplementedError

    async def _when_stored(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result once all that was recorded so far is stored."""
        await self._parts.effects.durability.confirmed()
        return result


WORD_CHARS = 8192
"""The bound on a name, an id or a path. Most have a much lower bound, and the op refuses a longer
one in its own words; beyond this it is refused unread."""

WORD: dict[str, Any] = {"type": "string", "maxLength": WORD_CHARS}

MODULE = {**WORD, "description": "a module's name"}


def args_schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of an op's args; a trailing underscore keeps Python's keywords away."""
    return {
        "type": "object",
        "properties": {name.removesuffix("_"): schema for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def plainly_fits(schema: Mapping[str, Any], args: Mapping[str, Any]) -> bool:
    """Tell whether args fit a schema of `args_schema`; a no may be wrong.

    So no daemon has the library for schemas, 9 MB, for its own ops alone.
    """
    known = schema["properties"]
    if not known.keys() >= args.keys() >= set(schema["required"]):
        return False
    return all(_fits(known[name], value) for name, value in args.items())


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    match schema:
        case {"pattern": _} | {"exclusiveMinimum": _}:
            return False
        case {"enum": words}:
            return type(value) is str and value in words
        case {"type": "string"}:
            size = len(value) if type(value) is str else -1
            return bool(schema.get("minLength", 0) <= size <= schema.get("maxLength", math.inf))
        case {"type": "boolean"}:
            return type(value) is bool
        case {"type": "integer"}:
            return type(value) is int and least <= value <= most
        case {"type": "array", "items": item}:
            size = len(value) if type(value) is list else -1
            if not schema.get("minItems", 0) <= size <= schema.get("maxItems", math.inf):
                return False
            return all(_fits(item, one) for one in value)
    return False
