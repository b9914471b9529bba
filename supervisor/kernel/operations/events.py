"""The ops that tell what happens: `events`, of the journal, and `ui.subscribe`, of `ui_event`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from protocol.errors import Reason
from protocol.events import Log
from protocol.problem import quoted
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import RefusedError, or_refused
from supervisor.kernel.ui_events import NAME_CHARS, Subscription
from supervisor.policy.principals import Principal

Sees = Callable[[bytes], bool]
"""Takes an entry as it is stored; called in the thread that reads."""


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
            raise RefusedError.because(Reason.STORAGE, words)
        sees = sight(asked.principal, self._parts.effects.sessions.owner_of)
        return await self._parts.feed.send(
            {"last": EVENTS, **args}, asked.emit, sees, asked.principal
        )


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
                raise RefusedError.because(Reason.INVALID_ARGS, words, pointer=pointer)
        session_id = args.get("session_id")
        if session_id is not None:
            or_refused(self._parts.effects.sessions.find_live(session_id, asked.principal))
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


class _By(msgspec.Struct, frozen=True):
    name: str


class _Data(msgspec.Struct, frozen=True):
    op: Any = None


class _Entry(msgspec.Struct, frozen=True):
    module: str | None = None
    session_id: str | None = None
    request_id: str | None = None
    by: _By | None = None
    data: _Data | None = None


_decode = msgspec.json.Decoder(_Entry).decode


def sight(principal: Principal, owner_of: Callable[[str], str | None]) -> Sees | None:
    """Return the test whether an entry may be seen, or None if all may be.

    The entries of a request belong to the owner of its session (`owner_of`), or else to its
    principal, if that is known. An entry about a module is for principals whose globs cover it, or
    the op that the entry is about; an entry about none, and of no session, for those whose globs
    cover everything.
    """
    if principal.covers_all() and principal.owns(None):
        return None

    def sees(body: bytes) -> bool:
        try:
            entry = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        session_id = entry.session_id
        if session_id is not None or entry.request_id is not None:
            owner = None if session_id is None else owner_of(session_id)
            if owner is None and entry.by is not None:
                owner = entry.by.name
            if not principal.owns(owner):
                return False
        if entry.module is None:
            return session_id is not None or principal.covers_all()
        op = None if entry.data is None else entry.data.op
        return principal.covers(entry.module, op if isinstance(op, str) else None)

    return sees
