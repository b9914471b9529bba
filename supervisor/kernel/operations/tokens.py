"""The ops about tokens: `token.new`, `token.list`, `token.revoke`.

Those that change something answer once the change is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from supervisor.kernel.operations.connection import MODULES, globs_of
from supervisor.kernel.operations.op import Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.tokens import NAME_CHARS
from supervisor.policy.principals import EVERYTHING, Scope

USUAL = (Scope.READ, Scope.INVOKE)
"""The scopes of a token if the args name none."""

MAX_EXPIRES_S = 100 * 365 * 86400.0

MIN_RATE_PER_S, MAX_RATE_PER_S = 0.001, 1e6

_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_CHARS}


class TokenOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "token.new": args_schema(
            ("name",),
            name={**_NAME, "description": "the name of its holder"},
            scopes={
                "type": "array",
                "items": {"enum": [str(one) for one in Scope]},
                "maxItems": len(Scope),
                "default": [str(one) for one in USUAL],
            },
            modules={
                **MODULES,
                "default": list(EVERYTHING),
                "description": "globs over MODULE and MODULE.OP that it may use",
            },
            expires_s={
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_EXPIRES_S,
                "description": "for how long it is good; until it is revoked if left out",
            },
            rate_per_s={
                "type": "number",
                "minimum": MIN_RATE_PER_S,
                "maximum": MAX_RATE_PER_S,
                "description": "how many requests a second; any number if left out",
            },
        ),
        "token.list": args_schema(),
        "token.revoke": args_schema(("name",), name=_NAME),
    }

    def ops(self) -> Mapping[str, Op]:
        return {"token.new": self._new, "token.list": self._list, "token.revoke": self._revoke}

    def _new(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        token, said = self._parts.effects.tokens.new(
            asked.principal,
            args["name"],
            frozenset(map(Scope, args.get("scopes", USUAL))),
            EVERYTHING if (globs := globs_of(args)) is None else globs,
            expires_s=args.get("expires_s"),
            rate_per_s=args.get("rate_per_s"),
        )
        return self._when_stored({**token.document(), "token": said})

    def _list(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        del args, asked
        return {"tokens": self._parts.effects.tokens.shown()}

    def _revoke(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        del asked
        return self._revoked(self._parts.effects.tokens.revoke(args["name"]).document())

    async def _revoked(self, result: dict[str, Any]) -> dict[str, Any]:
        await self._parts.effects.tokens.wait_all_over()
        return await self._when_stored(result)
