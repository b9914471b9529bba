"""The ops about the connection that they come over: `narrow`, `mcp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocol.errors import Failure, Reason
from supervisor.kernel.operations.op import Asked, Op, Parts, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.policy.mcp_views import find_view
from supervisor.policy.principals import Scope

NARROW = "narrow"
MCP = "mcp"

GLOBS = 100
"""How many globs a connection may narrow itself to."""

GLOB_CHARS = 300


class ConnectionOps:
    """Ops about the connection."""

    INPUTS: ClassVar[Mapping[str, Any]] = {
        NARROW: args_schema(
            scopes={
                "type": "array",
                "items": {"enum": [str(one) for one in Scope]},
                "description": "those to keep; all there are if left out",
            },
            modules={
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": GLOB_CHARS},
                "maxItems": GLOBS,
                "description": "globs over MODULE and MODULE.OP to keep; as it is if left out",
            },
        ),
        MCP: args_schema(
            view={"type": "string", "description": "what it is to see of the modules"}
        ),
    }

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""
        self._views = parts.mcp.views

    def ops(self) -> Mapping[str, Op]:
        """Return the ops."""
        return {NARROW: self._narrow, MCP: self._mcp}

    def _narrow(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        scopes = args.get("scopes")
        party = asked.party
        party.principal = party.principal.narrowed(
            None if scopes is None else map(Scope, scopes), args.get("modules")
        )
        return party.principal.document()

    def _mcp(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        party = asked.party
        if not party.may_speak_mcp:
            words = "this connection cannot become an MCP client's: a connection of the control"
            words += " socket can, by its first request"
            raise RefusedError(Failure.because(Reason.MALFORMED_REQUEST, words))
        view = find_view(self._views, args.get("view"), party.principal)
        if isinstance(view, str):
            raise RefusedError(Failure.because(Reason.INVALID_ARGS, view, pointer="/view"))
        party.principal = view.narrowed(party.principal)
        party.view = view
        return {"view": view.name, **party.principal.document()}
