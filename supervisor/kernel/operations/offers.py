"""Ops about what modules offer: `offers`, and `resource.follow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import trio

from protocol.connection import Notified
from protocol.events import Log
from protocol.frames import encode
from supervisor.kernel.operations.long_answers import LongAnswers
from supervisor.kernel.operations.op import (
    MODULE,
    WORD,
    Op,
    OpGroup,
    OwnRequest,
    Parts,
    args_schema,
)
from supervisor.kernel.resource_updates import URI_CHARS, ResourceFollower

NOTIFICATIONS, NOTIFIED_BYTES = 256, 1 << 20
"""Notifications of extensions that may wait for a client; more are left out."""

BELOW = 256
"""Resources below a followed one that may wait for a client; some of more are left out."""

LOOKED_AT = 256
"""Servers that are asked at a time whether they have more."""

FOLLOWING = "following a resource"


class OfferOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "offers": args_schema(
            follow={
                "type": "boolean",
                "default": False,
                "description": "report each change, instead of the offers themselves",
            },
            notifications={
                "type": "boolean",
                "default": False,
                "description": "with `follow`, report notifications of MCP extensions, too",
            },
            wait={
                "type": "boolean",
                "default": True,
                "description": "wait for modules that are starting, and of which nothing is known",
            },
            look_again={
                "type": "array",
                "items": WORD,
                "maxItems": LOOKED_AT,
                "default": [],
                "description": "MCP servers that are asked before whether they have more by now",
            },
            detail={
                "type": "boolean",
                "default": False,
                "description": "tell of each whether it `serves`, and the `ops` that are covered;"
                " disabled modules come, too",
            },
            known={
                "type": "integer",
                "description": "a `version`: while it is still that, `modules` is left out",
            },
        ),
        "resource.follow": args_schema(
            ("module", "uri"),
            module=MODULE,
            uri={"type": "string", "minLength": 1, "maxLength": URI_CHARS},
        ),
    }

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._answers = LongAnswers()

    def ops(self) -> Mapping[str, Op]:
        return {"offers": self._offers, "resource.follow": self._follow_resource}

    async def _offers(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        catalogue, principal = self._parts.catalogue, asked.principal
        if args.get("follow"):
            await self._follow(asked, notifications=args.get("notifications", False))
        if args.get("wait", True):
            await catalogue.wait_known(principal)
        await catalogue.look_again(principal, args.get("look_again", ()))
        version = catalogue.version  # what changes while it is told is told of as a change
        if version == args.get("known"):
            return {"version": version}
        detail = args.get("detail", False)
        offering = catalogue.offering(principal, detail=detail)
        told = (one and msgspec.Raw(encode(one)) for one in offering)
        begun = self._answers.tell(told, {"version": version}, asked.party.telling)
        return begun if isinstance(begun, dict) else await begun

    async def _follow(self, asked: OwnRequest, *, notifications: bool) -> None:
        some, is_changed = trio.Event(), False
        waiting: list[tuple[str, Notified]] = []

        def tell() -> None:
            nonlocal is_changed
            is_changed = True
            some.set()

        def notified(module: str, told: Notified) -> None:
            if not notifications or len(waiting) >= NOTIFICATIONS:
                return
            size = sum(one.size_bytes for _, one in waiting) + told.size_bytes
            if size <= NOTIFIED_BYTES and asked.principal.sees(module):
                waiting.append((module, told))
                some.set()

        unfollow = self._parts.catalogue.follow(tell, notified)
        try:
            while True:  # until it is cancelled
                await some.wait()
                some = trio.Event()
                if is_changed:
                    is_changed, changed = False, {"version": self._parts.catalogue.version}
                    words = "what modules offer has changed"
                    await asked.emit(Log(version="0", level="info", message=words, fields=changed))
                told, waiting = waiting, []
                for module, one in told:
                    fields = {"module": module, "method": one.method, "params": one.params}
                    words = "a notification of an extension"
                    await asked.emit(Log(version="0", level="info", message=words, fields=fields))
        finally:
            unfollow()

    async def _follow_resource(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        module = self._parts.module(args["module"], asked.principal)
        changed: dict[str, None] = {}
        some = trio.Event()

        def tell(uri: str) -> None:
            if len(changed) < BELOW:
                changed[uri] = None
            some.set()

        follower = ResourceFollower(module.name, args["uri"], asked.principal, tell)
        await self._parts.updates.follow(follower)
        try:
            await asked.emit(Log(version="0", level="info", message=FOLLOWING))
            while True:  # until it is cancelled
                await some.wait()
                some = trio.Event()
                told = list(changed)
                changed.clear()
                for uri in told:
                    fields = {"uri": uri}
                    words = "a resource has changed"
                    await asked.emit(Log(version="0", level="info", message=words, fields=fields))
        finally:
            self._parts.updates.leave(follower)
