"""What modules offer: the description of each, or its last one, as far as a principal may see it.

A module that is down is offered as it was known last: a call starts it, or is answered with the
error of its start. A module of which nothing is known yet is waited for, within a bound, and
started if a call would start it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import trio

from protocol.connection import Notified
from protocol.descriptor.model import Descriptor, Kind
from protocol.dialects.mcp.catalogue import OPS
from protocol.mcp_server.table import Offer, tools_of
from supervisor.kernel.descriptions import RememberedDescriptions
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.principals import Principal
from supervisor.runtime.supervision.deadlines import Deadlines, Timer
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import each_in_turns

KNOWN_WITHIN_S = 10.0
"""How long starting modules are waited for; a later module is told of as a change."""

TELL_AFTER_S = 0.1
"""Modules come in crowds, when a daemon starts and when a directory changes: one change is told."""


TakeNotified = Callable[[str, Notified], None]
"""Takes a module's name and its notification."""


class Catalogue:
    def __init__(
        self, fleet: Fleet, descriptions: RememberedDescriptions, deadlines: Deadlines
    ) -> None:
        self.version = 0
        """Grows with each change."""
        self._fleet = fleet
        self._descriptions = descriptions
        self._deadlines = deadlines
        self._timer: Timer | None = None
        self._followers: dict[object, tuple[Callable[[], None], TakeNotified]] = {}
        self._remembered: dict[str, tuple[msgspec.Raw, dict[str, Any]]] = {}

    def changed(self) -> None:
        """Note that a module came, went, or has another description."""
        self.version += 1
        if self._timer is None and self._followers:
            self._timer = self._deadlines.after(TELL_AFTER_S, self._tell)

    def notified(self, module: str, told: Notified) -> None:
        """Pass on a notification of an extension."""
        for _, take in tuple(self._followers.values()):
            take(module, told)

    def follow(self, changed: Callable[[], None], notified: TakeNotified) -> Callable[[], None]:
        """Call `changed` some time after each change; returns the function that ends that."""
        key = object()
        self._followers[key] = (changed, notified)
        return lambda: self._followers.pop(key, None) and None

    async def wait_known(self, principal: Principal) -> None:
        """Return when each module has a description or has failed, or after a while."""
        unknown: list[Module] = []
        async for module in each_in_turns(self._callable()):
            if not principal.sees(module.name) or self._is_known(module):
                continue
            unknown.append(module)
            if not module.wanted and module.starts_on_demand:
                module.start("a caller asked what it offers")

        def settled() -> bool | None:
            while unknown and not self._is_coming(unknown[-1]):
                unknown.pop()
            return None if unknown else True

        with trio.move_on_after(KNOWN_WITHIN_S):
            await self._fleet.wait_until(settled)

    async def look_again(self, principal: Principal, names: Iterable[str]) -> None:
        """Return when the current lists of these servers are known, or after their `describe_s`."""
        async with trio.open_nursery() as nursery:
            for name in names:
                module = self._fleet.modules.get(name)
                if module is not None and principal.sees(name) and module.may_have_more:
                    nursery.start_soon(module.look_again)

    def offering(self, principal: Principal, *, detail: bool = False) -> Iterator[Offer | None]:
        """Yield the modules that a principal may see, by name, and None for any other.

        Hooks are left out: nobody calls them. With `detail`, disabled modules come by name and
        kind alone.
        """
        for one in self._callable(disabled=detail):
            if principal.sees(one.name) and not one.descriptor.enabled:
                kind, summary = str(one.descriptor.kind), one.descriptor.description
                yield Offer(one.name, kind, summary, None, serves=False, enabled=False)
                continue
            if not principal.sees(one.name):
                yield None
                continue
            offer = self._offer(one)
            if detail:
                serves, ops = one.state in SERVES, _covered(offer, principal)
                offer = msgspec.structs.replace(offer, serves=serves, ops=ops)
            yield offer

    def said(self, name: str) -> dict[str, Any]:
        """Return the description of a module; empty if it is not there."""
        module = self._fleet.modules.get(name)
        return {} if module is None else self._said(module) or {}

    def serves(self, name: str) -> bool:
        module = self._fleet.modules.get(name)
        return module is not None and module.state in SERVES

    def _callable(self, *, disabled: bool = False) -> list[Module]:
        """Return all modules but hooks, by name; `disabled` tells whether those are among them."""
        return [
            one
            for _, one in sorted(self._fleet.modules.items())
            if one.descriptor.kind is not Kind.HOOK and (one.descriptor.enabled or disabled)
        ]

    def _is_known(self, module: Module) -> bool:
        descriptor = module.descriptor
        known = descriptor.inputs or module.descriptions.current
        return bool(known) or self._descriptions.find(descriptor) is not None

    def _is_coming(self, module: Module) -> bool:
        if self._is_known(module) or module.state in SERVES:
            return False
        return module.wanted and self._fleet.verdict(module) is None

    def _offer(self, module: Module) -> Offer:
        descriptor, said, problem = module.descriptor, self._said(module), None
        is_missing = False
        if said is None:
            verdict, died = self._fleet.verdict(module), module.exit
            is_missing = verdict is not None
            problem = verdict.message if verdict else f"{module.name} is {module.state.words}"
            if died is not None and died.reason != "stopped":
                told = died.message in problem
                problem = problem if told else f"{problem}: it {died.message}"
                problem = problem.replace(died.message, died.words, 1)
        kind, summary = str(descriptor.kind), descriptor.description
        return Offer(module.name, kind, summary, said, problem, is_missing)

    def _said(self, module: Module) -> dict[str, Any] | None:
        """Return the description of a module; its descriptor's ops come before its own."""
        descriptor = module.descriptor
        said = module.descriptions.current or self._last_said(descriptor)
        declared = {"inputs": descriptor.inputs, "outputs": descriptor.outputs}
        stated = {key: value for key, value in declared.items() if value}
        if said is None:
            return stated if "inputs" in stated else None
        return {**said, **stated}

    def _last_said(self, descriptor: Descriptor) -> dict[str, Any] | None:
        found = self._descriptions.find(descriptor)
        if found is None:
            self._remembered.pop(descriptor.name, None)
            return None
        known = self._remembered.get(descriptor.name)
        if known is None or known[0] is not found.description:
            known = (found.description, msgspec.json.decode(found.description))
            self._remembered[descriptor.name] = known
        return known[1]

    def _tell(self) -> None:
        self._timer = None
        for changed, _ in tuple(self._followers.values()):
            changed()


def _covered(offer: Offer, principal: Principal) -> list[str] | msgspec.UnsetType:
    """Return the known ops of a module that a principal may use, if not all."""
    if principal.covers(offer.module):
        return msgspec.UNSET
    said = offer.said or {}
    tools = (one.op for one in tools_of(said, None))
    known = dict.fromkeys((*(said.get("inputs") or {}), *tools, *OPS))
    return [one for one in known if principal.covers(offer.module, one)]
