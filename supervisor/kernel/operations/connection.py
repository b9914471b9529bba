"""The ops about the connection that they come over: `narrow`, `mcp`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from protocol.errors import Failure, Reason
from protocol.problem import quoted
from supervisor.kernel.operations.op import WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.policy.capabilities import WILDCARD
from supervisor.policy.mcp_views import find_view
from supervisor.policy.principals import (
    GLOB_CHARS,
    GLOBS,
    WILDCARDS,
    Principal,
    Scope,
    has_few_wildcards,
)

NARROW = "narrow"
MCP = "mcp"

MODULES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": GLOB_CHARS},
    "maxItems": GLOBS,
}
"""The schema of globs; `globs_of` bounds their wildcards."""


class ConnectionOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        NARROW: args_schema(
            scopes={
                "type": "array",
                "items": {"enum": [str(one) for one in Scope]},
                "maxItems": len(Scope),
                "description": "those to keep; all there are if left out",
            },
            modules={
                **MODULES,
                "description": "globs over MODULE and MODULE.OP to keep; as it is if left out",
            },
        ),
        MCP: args_schema(view={**WORD, "description": "what it is to see of the modules"}),
    }

    def ops(self) -> Mapping[str, Op]:
        return {NARROW: self._narrow, MCP: self._mcp}

    def _narrow(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        party = asked.party
        party.principal = narrowed(party.principal, args)
        return party.principal.document()

    def _mcp(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        party = asked.party
        if not party.may_speak_mcp:
            words = "this connection cannot become an MCP client's: a connection of the control"
            words += " socket can, by its first request"
            raise RefusedError(Failure.because(Reason.MALFORMED_REQUEST, words))
        view = find_view(self._parts.mcp.views, args.get("view"), party.principal)
        if isinstance(view, str):
            raise RefusedError(Failure.because(Reason.INVALID_ARGS, view, pointer="/view"))
        party.principal = view.narrowed(party.principal)
        party.view = view
        served = {"pid": os.getpid(), "directories": self._parts.facts.directories}
        return {"view": view.name, **served, **party.principal.document()}


def narrowed(principal: Principal, args: Mapping[str, Any]) -> Principal:
    """Return a principal narrowed to the `scopes` and `modules` of args.

    Raises `RefusedError` if that takes too many globs, or too many wildcards.
    """
    scopes = args.get("scopes")
    kept = principal.narrowed(None if scopes is None else map(Scope, scopes), globs_of(args))
    if len(kept.modules) > max(GLOBS, len(principal.modules)):
        words = f"it takes {len(kept.modules)} globs to say what both sides cover, and there may be"
        raise _invalid(f"{words} {GLOBS}", "/modules")
    return kept


def globs_of(args: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the `modules` of args, None if left out; raises `RefusedError`."""
    globs = args.get("modules")
    for index, one in enumerate(globs or ()):
        if not has_few_wildcards(one):
            words = f"{quoted(one)} has {one.count(WILDCARD)} `*`, and may have {WILDCARDS}"
            raise _invalid(words, f"/modules/{index}")
    return None if globs is None else tuple(globs)


def _invalid(words: str, pointer: str) -> RefusedError:
    return RefusedError(Failure.because(Reason.INVALID_ARGS, words, pointer=pointer))
