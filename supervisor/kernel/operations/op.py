"""What an op of the daemon is: a schema for its args, and a function that begins it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from protocol.events import Progress
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.invocations import Invocations
from supervisor.kernel.refusal import RefusedError
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.status import DaemonFacts, module_status
from supervisor.runtime.checking.checks import Checks
from supervisor.runtime.fleet import Fleet
from supervisor.runtime.module import Module


class Emit(Protocol):
    """Where an op's events go; waits while the client cannot keep up."""

    async def __call__(self, event: Progress | None) -> None:
        """Send an event once there is room for it; None waits for the room, and sends nothing."""


class Feed(Protocol):
    """Where entries of the journal come from."""

    async def send(self, args: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """Send what `args` ask for; raises `RefusedError`."""


Begun = dict[str, Any] | Awaitable[Any]

Op = Callable[[dict[str, Any], Emit], Begun]
"""Takes args that fit the schema, and does at once what can be done at once.

It returns its result, or what to await for it; both parts may raise `RefusedError`. So of requests
that come one after the other, a start or stop has its effect before the next one is looked at,
however long its own answer takes.
"""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ops of one daemon work on."""

    fleet: Fleet
    checks: Checks
    invocations: Invocations
    facts: DaemonFacts
    reloads: Reloads
    effects: Effects
    grants: Grants
    hooks: Hooks
    approvals: Approvals
    feed: Feed | None = None
    shut_down: Callable[[str], None]
    """Begins the daemon's end; its argument is the cause, for the log."""

    def module(self, name: str) -> Module:
        """Return the module of that name; raises `RefusedError`."""
        module = self.fleet.modules.get(name)
        if module is None:
            raise RefusedError(self.invocations.unknown_module(name))
        return module

    def status_of(self, module: Module, *, histogram: bool = False) -> dict[str, Any]:
        """Return one entry of `modules` of `status`."""
        shown = module_status(module, self.fleet.quarantine_reasons(), histogram=histogram)
        return {**shown, "hook": self.hooks.status(module)}


class OpGroup(Protocol):
    """Some ops that belong together."""

    INPUTS: ClassVar[Mapping[str, Any]]
    """The schema of the args of each op, by the op's name."""

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""

    def ops(self) -> Mapping[str, Op]:
        """Return the ops; one for each of `INPUTS`."""


MODULE = {"type": "string", "description": "a module's name"}


def args_schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of an op's args; a trailing underscore keeps Python's keywords away."""
    return {
        "type": "object",
        "properties": {name.removesuffix("_"): schema for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }
