"""The op about the journal: `events`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocol.errors import Failure, Reason
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.seen_entries import sight

EVENTS = 50
MAX_EVENTS = 10_000
"""The last entries that are sent if the args name no number."""

PATTERN_CHARS = 200
"""The longest event has 20; a slow pattern must not be long too."""


class EventOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "events": args_schema(
            since={
                "type": "integer",
                "minimum": 0,
                "description": "entries after the one with this seq; the last ones if left out",
            },
            since_ts={
                "type": "number",
                "minimum": 0,
                "description": "no older ones (Unix time, s)",
            },
            last={"type": "integer", "minimum": 0, "maximum": MAX_EVENTS, "default": EVENTS},
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_EVENTS,
                "description": "no more than so many; all if left out",
            },
            follow={"type": "boolean", "default": False},
            event={
                "type": "string",
                "maxLength": PATTERN_CHARS,
                "description": "a pattern for the name: *, ? and [...]",
            },
            module=MODULE,
            session_id=WORD,
            journal={
                **WORD,
                "description": "whose seq `since` is; from the first event of a former answer",
            },
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {"events": self._events}

    async def _events(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        if self._parts.feed is None:
            words = "this daemon keeps no journal"
            raise RefusedError(Failure.because(Reason.STORAGE, words))
        sees = sight(asked.principal, self._parts.effects.sessions.owner_of)
        return await self._parts.feed.send({"last": EVENTS, **args}, asked.emit, sees)
