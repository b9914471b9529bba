"""The ops about who asks: of a connection (`narrow`, `mcp`), as another (`login.*`), by tokens.

`token.new`, `token.list`, `token.revoke` and `page.login`: those that change a token answer once
the change is stored.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

import trio

from protocol.errors import Reason
from protocol.events import Log
from protocol.problem import quoted
from supervisor.kernel.operations.op import WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.tokens import CODE_S, NAME_CHARS, PAGE_S
from supervisor.policy.capabilities import WILDCARD
from supervisor.policy.mcp_views import View, find_view
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

MAX_UID = 2**32 - 2
"""The greatest id of a user: -1 is none (chown(2))."""

FACE = "http"
"""The face of a login that names none."""

_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_CHARS}


_KEPT: dict[str, Any] = {
    "scopes": {
        "type": "array",
        "items": {"enum": [str(one) for one in Scope]},
        "maxItems": len(Scope),
        "description": "those to keep; all there are if left out",
    },
    "modules": {
        **MODULES,
        "description": "globs over MODULE and MODULE.OP to keep; as it is if left out",
    },
}


class ConnectionOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        NARROW: args_schema(
            **_KEPT,
            view={**WORD, "description": "the view of an MCP client, to whose modules to keep"},
        ),
        MCP: args_schema(view={**WORD, "description": "what it is to see of the modules"}),
    }

    def ops(self) -> Mapping[str, Op]:
        return {NARROW: self._narrow, MCP: self._mcp}

    def _narrow(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        party, more = asked.party, {}
        principal = narrowed(party.principal, args)
        if "view" in args:
            view = self._view(args["view"], principal)
            principal = view.narrowed(principal)
            shown = {"name": view.name, "modules": view.modules, "prefix": view.prefix}
            more = {
                "view": shown,
                **self._served(),
                "session_idle_s": self._parts.mcp.session_idle_s,
                "run": self._parts.facts.started_at,
            }
        party.principal = principal
        return {**principal.document(), **more}

    def _mcp(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        party = asked.party
        if not party.may_speak_mcp:
            words = "this connection cannot become an MCP client's: a connection of the control"
            words += " socket can, by its first request"
            raise RefusedError.because(Reason.MALFORMED_REQUEST, words)
        view = self._view(args.get("view"), party.principal)
        party.principal = view.narrowed(party.principal)
        party.view = view
        return {"view": view.name, **self._served(), **party.principal.document()}

    def _view(self, name: str | None, principal: Principal) -> View:
        view = find_view(self._parts.mcp.views, name, principal)
        if isinstance(view, str):
            raise RefusedError.because(Reason.INVALID_ARGS, view, pointer="/view")
        return view

    def _served(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "directories": self._parts.facts.directories}


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


class LoginOps(OpGroup):
    """The logins that a program opens to ask on behalf of others (`kernel.logins`)."""

    INPUTS: ClassVar[Mapping[str, Any]] = {
        "login.open": args_schema(
            token={**WORD, "description": "the text of a token"},
            code={**WORD, "description": "a code of `page.login`, which this uses up"},
            uid={
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_UID,
                "description": "a user of this machine, as the kernel knows it",
            },
            pid={
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_UID,
                "description": "with uid, the process, which may be a module's",
            },
            face={
                "type": "string",
                "pattern": "^[a-z][a-z0-9-]*$",
                "maxLength": 32,
                "default": FACE,
                "description": "what the login came through, for the journal",
            },
            view={**WORD, "description": "the view of an MCP client: what it is to see of modules"},
        ),
        "login.close": args_schema(
            ("handle",),
            handle=WORD,
            forget={
                "type": "boolean",
                "default": False,
                "description": "log a browser out: revoke its token",
            },
        ),
        "login.follow": args_schema(),
        "unordered": args_schema(),
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "login.open": self._open,
            "login.close": self._close,
            "login.follow": self._follow,
            "unordered": self._unordered,
        }

    async def _open(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        named = [name for name in ("token", "code", "uid") if name in args]
        if len(named) != 1:
            words = "login.open takes one of token, code and uid"
            words += f", not {' and '.join(named) or 'none'}"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="")
        if "pid" in args and "uid" not in args:
            words = "a pid is that of a process of the user uid, which is missing"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/pid")
        logins, face = self._parts.logins, args.get("face", FACE)
        more: dict[str, Any] = {}
        if "code" in args:
            login, more["cookie"] = logins.by_code(asked.party, args["code"], face)
        elif "token" in args:
            login = logins.by_token(asked.party, args["token"], face)
        else:
            login = await logins.by_uid(asked.party, args["uid"], args.get("pid"), face)
        if "view" in args:
            view = find_view(self._parts.mcp.views, args["view"], login.party.principal)
            if isinstance(view, str):
                logins.close(login.handle, forget=False)
                raise RefusedError.because(Reason.INVALID_ARGS, view, pointer="/view")
            login.party.principal = view.narrowed(login.party.principal)
        if login.of_token is not None:
            more["expires"] = login.of_token.token.expires
        return {"handle": login.handle, **login.party.principal.document(), **more}

    async def _close(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        del asked
        handle = args["handle"]
        forgotten = self._parts.logins.close(handle, forget=args.get("forget", False))
        await self._parts.logins.wait_all_over()
        result = {"handle": handle, "forgotten": forgotten}
        return await self._when_stored(result) if forgotten else result

    async def _follow(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        del args
        ends, unfollow = self._parts.logins.follow()
        try:
            words = "each login that is over is told of from here on"
            await asked.emit(Log(version="0", level="info", message=words))
            async for end in ends:  # until it is cancelled
                words = f"the login {end['handle']} is over: {end['why']}"
                await asked.emit(Log(version="0", level="info", message=words, fields=end))
        finally:
            unfollow()
        words = "too many ends of logins were not read; close the connection, and open all anew"
        raise RefusedError.because(Reason.SLOW_READER, words)

    def _unordered(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        del args
        asked.party.unordered = True
        asked.party.may_speak_mcp = False
        return {"unordered": True}


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
        "page.login": args_schema(**_KEPT),
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
        await self._parts.logins.wait_all_over()
        return await self._when_stored(result)

    def _login(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        if not is_user(asked.principal.name):
            words = f"a login is for a user of this machine, and {asked.principal.name} is none"
            raise RefusedError.because(Reason.SCOPE, f"{words}: ask on the control socket")
        principal = narrowed(asked.principal, args)
        code = self._parts.page_codes.new(principal, trio.current_time())
        shown = {key: principal.document()[key] for key in ("name", "scopes", "modules")}
        return {"code": code, "code_s": CODE_S, "login_s": PAGE_S, **shown}
