"""The op about `ui_event`s: `ui.subscribe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocol.errors import Failure, Reason
from protocol.events import Log
from protocol.problem import quoted
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.ui_events import NAME_CHARS, Subscription

PATTERNS = 32
"""Names, or beginnings of names, in one subscription."""

WATCHING = "watching for ui events"


class UiOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "ui.subscribe": args_schema(
            events={
                "type": "array",
                "items": {"type": "string", "maxLength": NAME_CHARS},
                "minItems": 1,
                "maxItems": PATTERNS,
                "default": ["*"],
                "description": "names; one that ends in * is each that begins so",
            },
            session_id=WORD,
            module=MODULE,
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {"ui.subscribe": self._subscribe}

    async def _subscribe(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        patterns = args.get("events", ["*"])
        for index, one in enumerate(patterns):
            if "*" in one[:-1]:
                words = f"{quoted(one)} has a `*` that is not its end: say a name, what it begins"
                words += " with (`tool.*`), or `*` for each"
                pointer = f"/events/{index}"
                raise RefusedError(Failure.because(Reason.INVALID_ARGS, words, pointer=pointer))
        session_id = args.get("session_id")
        if session_id is not None:
            found = self._parts.effects.sessions.find_live(session_id, asked.principal)
            if isinstance(found, Failure):
                raise RefusedError(found)
        subscription = Subscription(
            asked.principal,
            patterns,
            session_id,
            args.get("module"),
            asked.party.label,
        )
        unsubscribe = self._parts.effects.ui.subscribe(subscription)
        try:
            # So that a client knows from when on it misses nothing.
            await asked.emit(Log(version="0", level="info", message=WATCHING))
            while True:  # until it is cancelled
                await asked.emit(await self._parts.effects.ui.next(subscription))
        finally:
            unsubscribe()
