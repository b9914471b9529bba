"""The op about what modules offer: `offers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import trio

from protocol.events import Log
from supervisor.kernel.operations.op import Asked, Op, Parts, args_schema


class OfferOps:
    """Ops about what modules offer."""

    INPUTS: ClassVar[Mapping[str, Any]] = {
        "offers": args_schema(
            follow={
                "type": "boolean",
                "default": False,
                "description": "report each change, instead of the offers themselves",
            },
            wait={
                "type": "boolean",
                "default": True,
                "description": "wait for modules that are starting, and of which nothing is known",
            },
        ),
    }

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""
        self._catalogue = parts.catalogue

    def ops(self) -> Mapping[str, Op]:
        """Return the op."""
        return {"offers": self._offers}

    async def _offers(self, args: dict[str, Any], asked: Asked) -> Any:
        catalogue, principal = self._catalogue, asked.principal
        if args.get("follow"):
            await self._follow(asked)
        if args.get("wait", True):
            await catalogue.wait_known(principal)
        return {"version": catalogue.version, "modules": catalogue.offers(principal)}

    async def _follow(self, asked: Asked) -> None:
        changed = trio.Event()

        def tell() -> None:
            changed.set()

        unfollow = self._catalogue.follow(tell)
        try:
            while True:  # until it is cancelled
                await changed.wait()
                changed = trio.Event()
                fields = {"version": self._catalogue.version}
                words = "what modules offer has changed"
                await asked.emit(Log(version="0", level="info", message=words, fields=fields))
        finally:
            unfollow()
