"""The op about the connection that it comes over: `narrow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from supervisor.kernel.operations.op import Asked, Op, Parts, args_schema
from supervisor.policy.principals import Scope

NARROW = "narrow"

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
    }

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""

    def ops(self) -> Mapping[str, Op]:
        """Return the op."""
        return {NARROW: self._narrow}

    def _narrow(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        scopes = args.get("scopes")
        party = asked.party
        party.principal = party.principal.narrowed(
            None if scopes is None else map(Scope, scopes), args.get("modules")
        )
        return party.principal.document()
