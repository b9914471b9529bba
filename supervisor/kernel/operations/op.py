"""What an op of the daemon is: a schema for its args, and a function that begins it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from protocol.descriptor.model import Kind
from protocol.events import Progress
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.page_codes import PageCodes
from supervisor.kernel.parties import Party, RefusedError
from supervisor.kernel.prompts import Prompts
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.request_checks import unknown_module
from supervisor.kernel.resource_updates import ResourceUpdates
from supervisor.kernel.seen_entries import Sees
from supervisor.kernel.status import DaemonFacts, module_status
from supervisor.kernel.taking_effect import Effects
from supervisor.policy.hook_findings import hook_findings
from supervisor.policy.mcp_views import McpOptions
from supervisor.policy.principals import Principal
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module

Emit = Callable[[Progress | None], Awaitable[None]]
"""Where an op's events go; waits while the client cannot keep up (`Asked.emit`)."""


class Asked(Protocol):
    """A request for an op (kernel.own_request): who asks, and where events go."""

    @property
    def party(self) -> Party:
        """The connection it came over."""

    @property
    def principal(self) -> Principal:
        """Who asked; what he may not see is answered as what is not there."""

    @property
    def session_id(self) -> str | None:
        """The session that was named with it, as it was named."""

    @property
    def is_written(self) -> bool:
        """Whether the answer is only encoded: nobody within the daemon looks at it."""

    async def emit(self, event: Progress | None) -> None:
        """Send an event once there is room for it; None waits for the room, and sends nothing."""


class Feed(Protocol):
    """Where entries of the journal come from."""

    async def send(self, args: dict[str, Any], emit: Emit, sees: Sees | None) -> dict[str, Any]:
        """Send what `args` ask for; raises `RefusedError`."""


Begun = dict[str, Any] | Awaitable[Any]

Op = Callable[[dict[str, Any], Asked], Begun]
"""Takes args that fit the schema, and does at once what can be done at once.

It returns its result, or what to await for it; both parts may raise `RefusedError`. So of requests
that come one after the other, a start or stop has its effect before the next one is looked at,
however long its own answer takes.
"""


ShutDown = Callable[[str, msgspec.Raw | None], None]
"""Begins the daemon's end: the cause, and who asked for it (`Principal.by`)."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ops of one daemon work on."""

    fleet: Fleet
    facts: DaemonFacts
    reloads: Reloads
    effects: Effects
    grants: Grants
    hooks: Hooks
    approvals: Approvals
    prompts: Prompts
    refused: Mapping[str, int]
    """How many invocations no module was asked for since the start, by the reason."""
    catalogue: Catalogue
    updates: ResourceUpdates
    page_codes: PageCodes
    mcp: McpOptions
    feed: Feed | None = None
    shut_down: ShutDown
    next_request_id: Callable[[], str]

    def module(self, name: str, principal: Principal) -> Module:
        """Return the module of that name, if the principal may see it; raises `RefusedError`."""
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
        """Return one entry of `modules` of `status`, as the principal may see it."""
        reasons = self.fleet.quarantine_reasons
        shown = module_status(module, reasons, histogram=histogram, outcomes=outcomes)
        if principal.is_full and module.descriptor.kind is Kind.HOOK:
            descriptors = [one.descriptor for one in self.fleet.modules.values()]
            shown["misfits"] += map(str, hook_findings(module.descriptor, descriptors))
        else:
            for others in ("waits_for", "missing"):
                shown[others] = [name for name in shown[others] if principal.sees(name)]
        ops = self.effects.descriptions.ops(module, inputs=inputs)
        return {**shown, "ops": ops, "hook": self.hooks.status(module)}


class OpGroup(Protocol):
    """Some ops that belong together."""

    INPUTS: ClassVar[Mapping[str, Any]]
    """The schema of the args of each op, by the op's name."""

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""

    def ops(self) -> Mapping[str, Op]:
        """Return the ops; one for each of `INPUTS`."""


WORD_CHARS = 8192
"""Of a name, an id or a path. What no such thing may have is mostly far less, and refused by the op
in its own words; beyond this it is refused unread."""

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
