"""Which modules play the roles of a session: whether the named modules exist, and fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from protocol.problem import printable
from supervisor.kernel.request_checks import unknown_module
from supervisor.policy.principals import Principal
from supervisor.policy.roles import EXECUTE, Roles, only_agent
from supervisor.runtime.supervision.fleet import Fleet

LOOKED_AT = 100
"""Modules of a kind that are looked at for a suggestion."""


class Able(msgspec.Struct):
    """The modules that could take the prompts of a session that names nobody, by name."""

    agents: list[str] = []
    orchestrators: list[str] = []
    """Only if there are no agents."""

    def looking(self, fleet: Fleet, principal: Principal) -> Iterator[None]:
        """Look for them, one module with each step: each is matched against all globs."""
        # Whom it may ask, it also sees.
        for name in _named(Kind.AGENT, fleet):
            if principal.covers(name, EXECUTE):
                self.agents.append(name)
            yield
        for name in () if self.agents else _named(Kind.ORCHESTRATOR, fleet):
            if principal.sees(name):
                self.orchestrators.append(name)
            yield


def cast_problem(roles: Roles, fleet: Fleet, principal: Principal) -> Failure | None:
    """Return why a role cannot be played by the module that is named for it, or None."""
    for pointer, kind, name in roles.cast():
        module = fleet.modules.get(name)
        role = pointer.split("/")[2]
        if module is None or not principal.sees(name):
            missing = unknown_module(name, fleet, principal)
            words = f"the session's {role}: {missing.message}"
            return Failure.because(Reason.UNKNOWN_MODULE, words, module=name[:128], role=role)
        found = module.descriptor.kind
        if found is not kind:
            words = f"the session's {role}: {printable(name, 128)} is of the kind {found}"
            able = filter(principal.sees, _named(kind, fleet)[:LOOKED_AT])
            words += f"; modules of the kind {kind}: {', '.join(islice(able, 10)) or 'none'}"
            return Failure.because(Reason.INVALID_ARGS, words, pointer=pointer)
    return None


def cast_of(
    session_id: str, roles: Roles, able: Able, fleet: Fleet, principal: Principal
) -> tuple[str, Roles] | Failure:
    """Return the module for a session's prompts and its roles; the only agent if none is named."""
    lead = roles.lead
    if lead is None:
        # Not a module that has gone since.
        agents = [name for name in able.agents if _is_of(Kind.AGENT, name, fleet)]
        orchestrators = [
            name for name in able.orchestrators if _is_of(Kind.ORCHESTRATOR, name, fleet)
        ]
        found = only_agent(session_id, agents, orchestrators)
        if isinstance(found, Failure):
            return found
        return found, Roles(agent=found)
    return cast_problem(roles, fleet, principal) or (lead, roles)


def _is_of(kind: Kind, name: str, fleet: Fleet) -> bool:
    module = fleet.modules.get(name)
    return module is not None and module.descriptor.kind is kind


def _named(kind: Kind, fleet: Fleet) -> list[str]:
    found = (one.descriptor for one in fleet.modules.values() if one.descriptor.kind is kind)
    return sorted(one.name for one in found if one.enabled)
