"""Which modules play the roles of a session: whether those that are named are there, and fit."""

from __future__ import annotations

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from protocol.problem import printable
from supervisor.kernel.request_checks import unknown_module
from supervisor.policy.principals import Principal
from supervisor.policy.roles import EXECUTE, Roles, only_agent
from supervisor.runtime.supervision.fleet import Fleet


def cast_problem(roles: Roles, fleet: Fleet, principal: Principal) -> Failure | None:
    """Say which role cannot be played by the module that is named for it, or None."""
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
            able = _of_kind(kind, fleet, principal)
            words += f"; modules of the kind {kind}: {', '.join(able[:10]) or 'none'}"
            return Failure.because(Reason.INVALID_ARGS, words, pointer=pointer)
    return None


def cast_of(
    session_id: str, roles: Roles, fleet: Fleet, principal: Principal
) -> tuple[str, Roles] | Failure:
    """Return who is given a session's prompts, with the roles; the only agent, if none is named."""
    lead = roles.lead
    if lead is None:
        # Whom it may ask, it also sees: there may be a thousand, and as many globs to look through.
        agents = sorted(
            name for name in _named(Kind.AGENT, fleet) if principal.covers(name, EXECUTE)
        )
        orchestrators = _of_kind(Kind.ORCHESTRATOR, fleet, principal)
        found = only_agent(session_id, agents, orchestrators)
        if isinstance(found, Failure):
            return found
        return found, Roles(agent=found)
    return cast_problem(roles, fleet, principal) or (lead, roles)


def _of_kind(kind: Kind, fleet: Fleet, principal: Principal) -> list[str]:
    return sorted(name for name in _named(kind, fleet) if principal.sees(name))


def _named(kind: Kind, fleet: Fleet) -> list[str]:
    return [one.name for one in fleet.modules.values() if one.descriptor.kind is kind]
