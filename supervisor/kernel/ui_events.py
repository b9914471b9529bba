"""Who handles `ui_event`: the agreed names, and the subscribers of this daemon (Spec 001 4.4).

The invoking client always gets its events. Of an event that has neither an agreed name, with the
payload that goes with it, nor a subscriber, it also gets a placeholder: a text to show instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import trio

from protocol.errors import Failure, Reason
from protocol.events import Log, UiEvent, built
from protocol.host_events import PlaceholderUiEvent, SeenUiEvent
from supervisor.kernel.parties import Origin, RefusedError
from supervisor.policy.principals import Principal

WAITING_EVENTS = 1000
WAITING_BYTES = 4 << 20
"""What a subscriber that reads slowly may have waiting; the oldest are lost beyond either."""

SUBSCRIPTIONS = 512
OF_ONE_PARTY = 64
"""How many there may be: each event is held against all of them."""

NAME_CHARS = 200
"""A longer name is matched, and shown, by its beginning."""

Rule = Callable[[Mapping[str, Any]], str | None]
"""Returns what is wrong with a payload, or None."""

_ENCODE = msgspec.json.Encoder().encode


def _text(*names: str) -> Rule:
    """Return the rule that one of these is a string."""
    named = (f'"{name}"' for name in names)
    words = f"{' or '.join(named)} must be a string"

    def rule(payload: Mapping[str, Any]) -> str | None:
        return None if any(type(payload.get(name)) is str for name in names) else words

    return rule


_thought = _text("content", "thought")


def _thinking(payload: Mapping[str, Any]) -> str | None:
    plan = payload.get("plan")
    if type(plan) is list and all(type(step) is dict for step in plan):
        return None
    wrong = _thought(payload)
    return None if wrong is None else f'{wrong}, or "plan" a list of objects'


def _progress(payload: Mapping[str, Any]) -> str | None:
    return None if type(payload.get("done")) in (int, float) else '"done" must be a number'


_called = _text("tool_name", "tool_call_id")

KNOWN: dict[str, Rule] = {
    "message.chunk": _text("content"),
    "agent.thinking": _thinking,
    "tool.call_start": _text("tool_name", "title", "tool_call_id"),
    "tool.call_complete": _called,
    "tool.call_error": _called,
    "progress": _progress,
}
"""The agreed names, each with the rule for its payload."""


_RUNNING_TEXT = frozenset({"message.chunk", "agent.thinking"})


class Subscription:
    """What one subscriber wants, and what waits for it."""

    def __init__(
        self,
        principal: Principal,
        patterns: Iterable[str] = ("*",),
        session_id: str | None = None,
        module: str | None = None,
        party: str = "",
    ) -> None:
        """Want events of a session and a module, with one of these names.

        `NAME*` is each that begins with `NAME`, so `*` each. None but those that the principal may
        see.
        """
        patterns = tuple(patterns)
        self.lost = 0
        self.party = party
        self._principal = principal
        self._names = frozenset(one for one in patterns if not one.endswith("*"))
        self._beginnings = tuple(one[:-1] for one in patterns if one.endswith("*"))
        self._session_id = session_id
        self._module = module
        self._waiting: deque[tuple[SeenUiEvent, int]] = deque()
        self._bytes = 0
        self._some = trio.Event()

    def wants(self, event: UiEvent, origin: Origin) -> bool:
        """Tell whether an event is one of those it wants."""
        name = event.event[:NAME_CHARS]
        return (
            self._session_id in (None, origin.session_id)
            and self._module in (None, origin.module)
            and (name in self._names or name.startswith(self._beginnings))
            and self._principal.owns(origin.owner)
            and (not origin.module or self._principal.covers(origin.module, origin.op))
        )

    def put(self, event: SeenUiEvent, size: int) -> None:
        """Add an event; the oldest are lost where there is no room."""
        self._waiting.append((event, size))
        self._bytes += size
        while len(self._waiting) > WAITING_EVENTS or self._bytes > WAITING_BYTES:
            if len(self._waiting) == 1:
                break  # one that is larger than the bound by itself
            self._bytes -= self._waiting.popleft()[1]
            self.lost += 1
        self._some.set()

    async def next(self) -> SeenUiEvent | Log:
        """Wait for the next event, or for the word that some were lost before it."""
        while not self._waiting:
            self._some = trio.Event()
            await self._some.wait()
        if self.lost:
            words = f"{self.lost} events were left out: the subscriber was too slow"
            self.lost = 0
            return Log(version="0", level="warn", message=words)
        event, size = self._waiting.popleft()
        self._bytes -= size
        return event


class UiEvents:
    """The `ui_event`s of one daemon."""

    def __init__(self) -> None:
        self._placeholders = 0
        self._subscriptions: list[Subscription] = []
        self.plain = _RUNNING_TEXT
        """What is passed on as it is; nothing while somebody subscribes."""

    def status(self) -> dict[str, int]:
        """Return what `status` shows of them."""
        return {"subscribers": len(self._subscriptions), "placeholders": self._placeholders}

    def subscribe(self, subscription: Subscription) -> Callable[[], None]:
        """Add a subscriber; call what is returned to take it away. Raises `RefusedError`."""
        same = sum(one.party == subscription.party for one in self._subscriptions)
        if same >= OF_ONE_PARTY or len(self._subscriptions) >= SUBSCRIPTIONS:
            words = f"there are {same} subscriptions of this connection, and may be {OF_ONE_PARTY};"
            words += f" of all {len(self._subscriptions)}, and may be {SUBSCRIPTIONS}"
            raise RefusedError(Failure.because(Reason.QUEUE_FULL, words))
        self._subscriptions.append(subscription)
        self.plain = frozenset()
        return partial(self._unsubscribe, subscription)

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self.plain = _RUNNING_TEXT

    def is_plain(self, event: UiEvent) -> bool:
        """Tell whether it is running text as agreed, and nobody subscribes; streams ask this."""
        return (
            event.event in self.plain
            and type(event.payload) is dict
            and type(event.payload.get("content")) is str
        )

    def tell(self, event: UiEvent, origin: Origin) -> None:
        """Tell the subscribers of what the host itself has to say."""
        if self._subscriptions:
            _tell([one for one in self._subscriptions if one.wants(event, origin)], event, origin)

    def pass_on(self, event: UiEvent, origin: Origin) -> UiEvent:
        """Tell the subscribers; returns the event for the client that invoked."""
        problem = _problem(event)
        wanted = [one for one in self._subscriptions if one.wants(event, origin)]
        placeholder = None
        if problem is not None and not (wanted and event.event not in KNOWN):
            self._placeholders += 1
            placeholder = f"[{event.event[:NAME_CHARS]!r} cannot be shown: {problem}]"
        _tell(wanted, event, origin, placeholder)
        if placeholder is None:
            return event
        return PlaceholderUiEvent(**msgspec.structs.asdict(event), placeholder=placeholder)


def _problem(event: UiEvent) -> str | None:
    rule = KNOWN.get(event.event)
    if rule is None:
        return "nothing here knows this event"
    wrong = rule(built(event.payload))
    return None if wrong is None else f"its payload is wrong, {wrong}"


def _tell(
    wanted: list[Subscription], event: UiEvent, origin: Origin, placeholder: str | None = None
) -> None:
    if not wanted:
        return
    seen = SeenUiEvent(
        **msgspec.structs.asdict(event),
        origin=origin.document(),
        placeholder=msgspec.UNSET if placeholder is None else placeholder,
    )
    try:
        size = len(_ENCODE(seen))
    except (RecursionError, ValueError, TypeError, OverflowError):
        size = 0  # it is replaced by a word when it is written
    for one in wanted:
        one.put(seen, size)
