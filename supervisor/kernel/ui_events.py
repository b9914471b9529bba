"""Who handles `ui_event`: the agreed names, and the subscribers of this daemon (Spec 001 4.4).

The invoking client always gets its events. Of an event that has neither an agreed name, with the
payload that goes with it, nor a subscriber, it also gets a placeholder: a text to show instead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio

from protocol.errors import Failure, Reason
from protocol.events import Log, UiEvent, built
from protocol.host_events import PlaceholderUiEvent, SeenUiEvent
from supervisor.kernel.last_items import LastItems
from supervisor.kernel.parties import Origin, RefusedError
from supervisor.policy.principals import Principal
from supervisor.runtime.held_bytes import ANSWERS, Account, HeldBytes

EVENT_COST_BYTES = 512
"""What an event costs beside its text, and"""
SUBSCRIBER_COST_BYTES = 64
"""for each subscriber that wants it, where it is the first that just these want."""

LOOKED_AT = 64
"""So many events are looked at for a subscriber that wants none of them, before others go on."""

REMEMBERED = 256
"""Of so many names, ops, and places where they come from, it is known who wants them."""

SUBSCRIBED_GLOBS = 100
"""Of all that subscribe, those who have the same ones counted once, and those who may see all not:
each op of a module from which something comes is held against all of them, in up to 0.5 ms."""

NAME_CHARS = 200
"""A longer name is matched, and shown, by its beginning."""

Rule = Callable[[Mapping[str, Any]], str | None]
"""Returns what is wrong with a payload, or None."""

_ENCODE = msgspec.json.Encoder().encode


def _text(*names: str) -> Rule:
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

_Source = tuple[str, str | None, str | None]
"""Where events come from: the module, the session, and whose they are."""

K = TypeVar("K")
V = TypeVar("V")


class Subscription:
    """What one subscriber wants, and how far it is (`UiEvents.next`)."""

    def __init__(
        self,
        principal: Principal,
        patterns: Sequence[str] = ("*",),
        session_id: str | None = None,
        module: str | None = None,
        party: str = "",
    ) -> None:
        """Want events of a session and a module, with one of these names.

        `NAME*` is each that begins with `NAME`, so `*` each. None but those that the principal may
        see.
        """
        self.party = party
        self.behind: deque[tuple[SeenUiEvent, int]] = deque()
        """What it has not read of what it wants and is not kept for all any more; and the sizes."""
        self.behind_bytes = 0
        self.lost = 0
        """How many it was too slow for after these, since it was told last."""
        self.number = 0
        """Of the event that it looks at next, of those that are kept for all."""
        self.woken = trio.Event()
        beginnings = {one[:-1] for one in patterns if one.endswith("*")}
        self.names = frozenset(one for one in patterns if not one.endswith("*"))
        self.beginnings = frozenset(
            one for one in beginnings if not any(one[:n] in beginnings for n in range(len(one)))
        )
        """Without those that begin with another one."""
        self.principal = principal
        self.globs = () if principal.covers_all() else principal.modules
        """What modules and ops are held against for it; nothing, if it may see all."""
        self._session_id = session_id
        self._module = module

    def sees(self, origin: Origin) -> bool:
        """Tell whether it is told what comes of a module, in a session; for all that globs say."""
        return (
            self._session_id in (None, origin.session_id)
            and self._module in (None, origin.module)
            and self.principal.owns(origin.owner)
        )


class _Names:
    """Who wants which names: a name is looked up, and not held against each subscriber."""

    def __init__(self) -> None:
        self._names: dict[str, set[Subscription]] = {}
        self._beginnings: dict[str, set[Subscription]] = {}
        self._lengths: Counter[int] = Counter()
        """Of the beginnings."""

    def add(self, one: Subscription) -> None:
        """Take note of what a subscriber wants."""
        for name in one.names:
            self._names.setdefault(name, set()).add(one)
        for name in one.beginnings:
            self._beginnings.setdefault(name, set()).add(one)
            self._lengths[len(name)] += 1

    def remove(self, one: Subscription) -> None:
        """Forget a subscriber."""
        for name in one.names:
            _discard(self._names, name, one)
        for name in one.beginnings:
            _discard(self._beginnings, name, one)
            self._lengths[len(name)] -= 1
        self._lengths += Counter()  # without those of which there are none

    def wanted_by(self, name: str) -> set[Subscription]:
        """Return who wants events of a name."""
        found = set(self._names.get(name, _NOBODY))
        for length in self._lengths:
            found |= self._beginnings.get(name[:length], _NOBODY)
        return found


def _discard(found: dict[K, set[Subscription]], name: K, one: Subscription) -> None:
    found[name].discard(one)
    if not found[name]:
        del found[name]


_NOBODY: frozenset[Subscription] = frozenset()


class _Kept(NamedTuple):
    """An event with its size, and who wants it."""

    event: SeenUiEvent
    size: int
    wanted_by: frozenset[Subscription]


class UiBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many subscriptions there may be, and how much is kept for them."""

    events: int = 10_000
    bytes: int = 32 << 20
    """What is kept for all subscribers; beyond either, those that are slow fall behind the oldest.
    """
    behind_bytes: int = 32 << 20
    """What those have that are behind: each what it wants itself, so that nobody else's events take
    it away, and no more than is left of this for all. What finds no room is lost to it."""
    subscriptions: int = 512
    of_one_party: int = 64
    """How many there may be: each new name is held against all of them."""


class UiEvents:
    """The `ui_event`s of one daemon: kept once, for all subscribers, each of which reads on."""

    def __init__(self, ledger: HeldBytes, bounds: UiBounds | None = None) -> None:
        """Count what is kept in `ledger`."""
        self._bounds = bounds or UiBounds()
        self._placeholders = 0
        self._subscriptions: set[Subscription] = set()
        self._account = Account(ledger, "the ui_events")
        self._kept: LastItems[_Kept] = LastItems(
            self._account, ANSWERS, self._bounds.events, self._bounds.bytes, self._leave_behind
        )
        self._behind_bytes = 0
        """What all have that are behind."""
        self._waiting: set[Subscription] = set()
        """Those that have read all that they want."""
        self._names = _Names()
        self._globs: dict[tuple[str, ...], set[Subscription]] = {}
        """Who subscribes, by the globs."""
        self._covered: dict[tuple[str, str], frozenset[Subscription]] = {}
        """Whose globs cover an op of a module."""
        self._seeing: dict[_Source, frozenset[Subscription]] = {}
        """Who sees what comes from there, for all that globs say."""
        self._wanted_by: dict[tuple[_Source, str, str], frozenset[Subscription]] = {}
        self.plain = _RUNNING_TEXT
        """What is passed on as it is; nothing while somebody subscribes."""

    def status(self) -> dict[str, int]:
        """Return what `status` shows of them."""
        return {"subscribers": len(self._subscriptions), "placeholders": self._placeholders}

    def subscribe(self, subscription: Subscription) -> Callable[[], None]:
        """Add a subscriber; call what is returned to take it away. Raises `RefusedError`."""
        same = sum(one.party == subscription.party for one in self._subscriptions)
        most, of_one = self._bounds.subscriptions, self._bounds.of_one_party
        if same >= of_one or len(self._subscriptions) >= most:
            words = f"there are {same} subscriptions of this connection, and may be {of_one};"
            words += f" of all {len(self._subscriptions)}, and may be {most}"
            raise RefusedError(Failure.because(Reason.QUEUE_FULL, words))
        held = sum(map(len, self._globs.keys() | {subscription.globs}))
        if held > SUBSCRIBED_GLOBS and subscription.globs:
            words = f"all that subscribe would have {held} globs, and may have {SUBSCRIBED_GLOBS}"
            raise RefusedError(Failure.because(Reason.QUEUE_FULL, words))
        self._subscriptions.add(subscription)
        self._globs.setdefault(subscription.globs, set()).add(subscription)
        self._names.add(subscription)
        self._changed()
        subscription.number = self._kept.end_number
        return partial(self._unsubscribe, subscription)

    async def next(self, one: Subscription) -> SeenUiEvent | Log | None:
        """Wait for the next event, or for the word that some were lost before it.

        None where it has looked at many that others want: it is the neighbours' turn.
        """
        kept = self._kept
        while one.number >= kept.end_number:
            await self._wait(one)
        if one.behind:
            event, size = one.behind.popleft()
            one.behind_bytes -= size
            self._hold_behind(-size)
            return event
        if one.lost:
            words = f"{one.lost} events were left out: the subscriber was too slow"
            one.lost = 0
            return Log(version="0", level="warn", message=words)
        first = max(one.number, kept.first_number)
        for number in range(first, min(first + LOOKED_AT, kept.end_number)):
            one.number = number + 1
            event, _, wanted_by = kept[number]
            if one in wanted_by:
                return event
        return None

    def is_plain(self, event: UiEvent) -> bool:
        """Tell whether it is running text as agreed, and nobody subscribes; streams ask this."""
        return (
            event.event in self.plain
            and type(event.payload) is dict
            and type(event.payload.get("content")) is str
        )

    def tell(self, event: UiEvent, origin: Origin) -> None:
        """Tell the subscribers of what the host itself has to say."""
        wanted_by, is_new = self._who_wants(event, origin)
        self._keep(event, origin, wanted_by, is_new=is_new)

    def pass_on(self, event: UiEvent, origin: Origin) -> UiEvent:
        """Tell the subscribers; returns the event for the client that invoked."""
        problem = _problem(event)
        wanted_by, is_new = self._who_wants(event, origin)
        placeholder = None
        if problem is not None and not (wanted_by and event.event not in KNOWN):
            self._placeholders += 1
            placeholder = f"[{event.event[:NAME_CHARS]!r} cannot be shown: {problem}]"
        self._keep(event, origin, wanted_by, placeholder, is_new=is_new)
        if placeholder is None:
            return event
        return PlaceholderUiEvent(**msgspec.structs.asdict(event), placeholder=placeholder)

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        _discard(self._globs, subscription.globs, subscription)
        self._names.remove(subscription)
        self._hold_behind(-subscription.behind_bytes)
        subscription.behind.clear()
        self._changed()

    def _changed(self) -> None:
        self._covered.clear()
        self._seeing.clear()
        self._wanted_by.clear()
        self.plain = frozenset() if self._subscriptions else _RUNNING_TEXT
        self._forget_what_all_read()

    def _who_wants(self, event: UiEvent, origin: Origin) -> tuple[frozenset[Subscription], bool]:
        """Return who wants an event, and whether that was found out just now."""
        if not self._subscriptions:
            return _NOBODY, False
        source = (origin.module, origin.session_id, origin.owner)
        op, name = origin.op, event.event[:NAME_CHARS]
        known = self._wanted_by.get((source, op, name))
        if known is not None:
            return known, False
        seeing = self._seeing.get(source)
        if seeing is None:
            seeing = frozenset(one for one in self._subscriptions if one.sees(origin))
            _remember(self._seeing, source, seeing)
        if origin.module:
            seeing &= self._whose_globs_cover(origin.module, op)
        wanted_by = seeing & self._names.wanted_by(name)
        _remember(self._wanted_by, (source, op, name), wanted_by)
        return wanted_by, True

    def _whose_globs_cover(self, module: str, op: str) -> frozenset[Subscription]:
        known = self._covered.get((module, op))
        if known is not None:
            return known
        found: set[Subscription] = set()
        for globs, whose in self._globs.items():
            if not globs or next(iter(whose)).principal.covers(module, op):
                found |= whose
        covered = frozenset(found)
        _remember(self._covered, (module, op), covered)
        return covered

    def _keep(
        self,
        event: UiEvent,
        origin: Origin,
        wanted_by: frozenset[Subscription],
        placeholder: str | None = None,
        *,
        is_new: bool,
    ) -> None:
        if not wanted_by:
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
        number = self._kept.end_number
        size += EVENT_COST_BYTES
        set_bytes = len(wanted_by) * SUBSCRIBER_COST_BYTES if is_new else 0
        self._kept.keep(_Kept(seen, size, wanted_by), size + set_bytes)
        for one in wanted_by & self._waiting:
            one.number = number
            one.woken.set()
        self._waiting -= wanted_by

    def _leave_behind(self, number: int, kept: _Kept) -> None:
        """Give an event to those that have not read it, or count it: it is kept for all no more.

        What comes after something that was lost is lost too, until that was told: a gap is told
        where it is. And it costs the turn of a module little, however many are behind.
        """
        slow = (kept.wanted_by & self._subscriptions) - self._waiting
        behind = [one for one in slow if one.number <= number]
        size, room, more = kept.size, 0, 0
        if self._account.fits(size * len(behind)):
            room = self._bounds.behind_bytes - self._behind_bytes
        for one in behind:
            if one.lost or one.behind_bytes + size > room - more:
                one.lost += 1
            else:
                one.behind.append((kept.event, size))
                one.behind_bytes += size
                more += size
        self._hold_behind(more)

    def _hold_behind(self, more: int) -> None:
        self._behind_bytes += more
        self._account.add(ANSWERS, more)

    async def _wait(self, one: Subscription) -> None:
        one.woken = trio.Event()
        self._waiting.add(one)
        self._forget_what_all_read()
        try:
            await one.woken.wait()
        finally:
            self._waiting.discard(one)

    def _forget_what_all_read(self) -> None:
        if len(self._waiting) == len(self._subscriptions):
            self._kept.forget()


def _problem(event: UiEvent) -> str | None:
    rule = KNOWN.get(event.event)
    if rule is None:
        return "nothing here knows this event"
    wrong = rule(built(event.payload))
    return None if wrong is None else f"its payload is wrong, {wrong}"


def _remember(found: dict[K, V], key: K, value: V) -> None:
    if len(found) >= REMEMBERED:
        found.clear()
    found[key] = value
