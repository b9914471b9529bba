"""The ops about who asks: of a connection (`narrow`, `mcp`), by tokens, and by the page.

`token.new`, `token.list`, `token.revoke` and `page.login`: those that change a token answer once
the change is stored.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

import trio

from protocol.errors import Reason
from protocol.problem import quoted
from supervisor.kernel.operations.op import WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.tokens import CODE_S, NAME_CHARS, PAGE_S
from supervisor.policy.capabilities import WILDCARD
from supervisor.policy.mcp_views import find_view
from supervisor.policy.principals import (
    EVERYTHING,
    GLOB_CHARS,
    GLOBS,
    WILDCARDS,
    Principal,
    Scope,
    has_few_wildcards,
    is_user,
)

NARROW = "narrow"
MCP = "mcp"

MODULES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": GLOB_CHARS},
    "maxItems": GLOBS,
}
"""The schema of globs; `globs_of` bounds their wildcards."""

USUAL = (Scope.READ, Scope.INVOKE)
"""The scopes of a token if the args name none."""

MAX_EXPIRES_S = 100 * 365 * 86400.0

MIN_RATE_PER_S, MAX_RATE_PER_S = 0.001, 1e6

_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_CHARS}


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
            raise RefusedError.because(Reason.MALFORMED_REQUEST, words)
        view = find_view(self._parts.mcp.views, args.get("view"), party.principal)
        if isinstance(view, str):
            raise RefusedError.because(Reason.INVALID_ARGS, view, pointer="/view")
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
        raise RefusedError.because(Reason.INVALID_ARGS, f"{words} {GLOBS}", pointer="/modules")
    return kept


def globs_of(args: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the `modules` of args, None if left out; raises `RefusedError`."""
    globs = args.get("modules")
    for index, one in enumerate(globs or ()):
        if not has_few_wildcards(one):
            words = f"{quoted(one)} has {one.count(WILDCARD)} `*`, and may have {WILDCARDS}"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer=f"/modules/{index}")
    return None if globs is None else tuple(globs)


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
        "page.login": args_schema(**ConnectionOps.INPUTS[NARROW]["properties"]),
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "token.new": self._new,
            "token.list": self._list,
            "token.revoke": self._revoke,
            "page.login": self._login,
        }

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

    def _login(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        if not is_user(asked.principal.name):
            words = f"a login is for a user of this machine, and {asked.principal.name} is none"
            raise RefusedError.because(Reason.SCOPE, f"{words}: ask on the control socket")
        principal = narrowed(asked.principal, args)
        code = self._parts.page_codes.new(principal, trio.current_time())
        shown = {key: principal.document()[key] for key in ("name", "scopes", "modules")}
        return {"code": code, "code_s": CODE_S, "login_s": PAGE_S, **shown}
