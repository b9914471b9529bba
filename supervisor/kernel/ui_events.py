"""The handlers of `ui_event`s: the agreed names, and the subscribers of this daemon (Spec 001 4.4).

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

from protocol.errors import Reason
from protocol.events import Log, UiEvent, built
from protocol.host_events import PlaceholderUiEvent, SeenUiEvent
from supervisor.kernel.last_items import LastItems
from supervisor.kernel.parties import Provenance, RefusedError
from supervisor.policy.principals import Principal
from supervisor.policy.shares import Shares
from supervisor.runtime.held_bytes import ANSWERS, Account, HeldBytes

EVENT_COST_BYTES = 512
"""What an event costs beside its text, and"""
SUBSCRIBER_COST_BYTES = 64
"""for each subscriber that wants it, where it is the first that just these want."""

LOOKED_AT = 64
"""Events that one look passes over for a subscriber that wants none of them, before others go on.
"""

REMEMBERED = 256
"""Names, ops, and sources whose subscribers are cached."""

SUBSCRIBED_GLOBS = 100
"""Of all subscribers together, equal globs counted once, without those who may see all: each op of
a module with events is matched against all of them, in up to 0.5 ms."""

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
"""The source of events: the module, the session, and the owner."""

K = TypeVar("K")
V = TypeVar("V")


class Subscription:
    """One subscriber's wishes, and its place (`UiEvents.next`)."""

    def __init__(
        self,
        principal: Principal,
        patterns: Sequence[str] = ("*",),
        session_id: str | None = None,
        module: str | None = None,
        party: str = "",
    ) -> None:
        """Subscribe to events of a session and a module, with one of these names.

        `NAME*` is each that begins with `NAME`, so `*` is each. Only events that the principal may
        see count.
        """
        self.party = party
        self.behind: deque[tuple[SeenUiEvent, int]] = deque()
        """The events it wants and has not read, which are not kept for all any more; with the
        sizes."""
        self.behind_bytes = 0
        self.lost = 0
        """The events after these that were lost to it, since it was told last."""
        self.number = 0
        """The number of the event that it looks at next, of those that are kept for all."""
        self.woken = trio.Event()
        self.gave_way = ""
        """Why it ended though nobody ended it, if it did."""
        beginnings = {one[:-1] for one in patterns if one.endswith("*")}
        self.names = frozenset(one for one in patterns if not one.endswith("*"))
        self.beginnings = frozenset(
            one for one in beginnings if not any(one[:n] in beginnings for n in range(len(one)))
        )
        """Without those that begin with another one."""
        self.principal = principal
        self.globs = () if principal.covers_all() else principal.modules
        """The globs that modules and ops are matched against; none, if it may see all."""
        self._session_id = session_id
        self._module = module

    def sees(self, origin: Provenance) -> bool:
        """Return whether it gets the events of a module, in a session, apart from its globs."""
        return (
            self._session_id in (None, origin.session_id)
            and self._module in (None, origin.module)
            and self.principal.owns(origin.owner)
        )


class _Names:
    """The subscribers by name: a name is looked up, and not matched against each subscriber."""

    def __init__(self) -> None:
        self._names: dict[str, set[Subscription]] = {}
        self._beginnings: dict[str, set[Subscription]] = {}
        self._lengths: Counter[int] = Counter()
        """Of the beginnings."""

    def add(self, one: Subscription) -> None:
        for name in one.names:
            self._names.setdefault(name, set()).add(one)
        for name in one.beginnings:
            self._beginnings.setdefault(name, set()).add(one)
            self._lengths[len(name)] += 1

    def remove(self, one: Subscription) -> None:
        for name in one.names:
            _discard(self._names, name, one)
        for name in one.beginnings:
            _discard(self._beginnings, name, one)
            self._lengths[len(name)] -= 1
        self._lengths += Counter()  # without those of which there are none

    def wanted_by(self, name: str) -> set[Subscription]:
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
    """An event with its size, and the subscribers that want it."""

    event: SeenUiEvent
    size: int
    wanted_by: frozenset[Subscription]


class UiBounds(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 10_000
    bytes: int = 32 << 20
    """Bytes kept for all subscribers; beyond either, slow subscribers fall behind the oldest."""
    behind_bytes: int = 32 << 20
    """Bytes of those that are behind: each keeps its own, so that nobody else's events displace
    them, within what is left of this for all. Events without room are lost to the subscriber."""
    subscriptions: int = 512
    of_one_party: int = 64
    """Subscriptions of one party: each new name is matched against all of them."""


class UiEvents:
    """The `ui_event`s of one daemon: kept once, for all subscribers, each at its own place."""

    def __init__(self, ledger: HeldBytes, bounds: UiBounds | None = None) -> None:
        self._bounds = bounds or UiBounds()
        self._placeholders = 0
        self._subscriptions: set[Subscription] = set()
        self._shares = Shares[Subscription](self._bounds.subscriptions)
        self._account = Account(ledger, "the ui_events")
        self._kept: LastItems[_Kept] = LastItems(
            self._account, ANSWERS, self._bounds.events, self._bounds.bytes, self._leave_behind
        )
        self._behind_bytes = 0
        """Of all subscribers that are behind."""
        self._waiting: set[Subscription] = set()
        """The subscribers that have read all that they want."""
        self._names = _Names()
        self._globs: dict[tuple[str, ...], set[Subscription]] = {}
        """The subscribers, by their globs."""
        self._covered: dict[tuple[str, str], frozenset[Subscription]] = {}
        """The subscribers whose globs cover an op of a module."""
        self._seeing: dict[_Source, frozenset[Subscription]] = {}
        """The subscribers that see a source, apart from globs."""
        self._wanted_by: dict[tuple[_Source, str, str], frozenset[Subscription]] = {}
        self.plain = _RUNNING_TEXT
        """The names that are passed on as they are; none while anybody subscribes."""

    def status(self) -> dict[str, int]:
        return {"subscribers": len(self._subscriptions), "placeholders": self._placeholders}

    def subscribe(self, subscription: Subscription) -> Callable[[], None]:
        """Add a subscriber; returns the function that removes it. Raises `RefusedError`.

        If there is no room, the principal that has most loses its oldest.
        """
        same = sum(one.party == subscription.party for one in self._subscriptions)
        most, of_one = self._bounds.subscriptions, self._bounds.of_one_party
        owner = subscription.principal.name
        if same >= of_one or self._shares.growth(owner, 1) < 1:
            words = f"there are {same} subscriptions of this connection, and may be {of_one};"
            words += f" of all {len(self._subscriptions)}, and may be {most}"
            raise RefusedError.because(Reason.QUEUE_FULL, words)
        globs, more = self._shares_of_globs(), 0
        if subscription.globs not in self._globs:
            more = len(subscription.globs)
        if more and globs.growth(owner, more) < more:
            held = SUBSCRIBED_GLOBS - globs.left + more
            words = f"all that subscribe would have {held} globs, and may have {SUBSCRIBED_GLOBS}"
            raise RefusedError.because(Reason.QUEUE_FULL, words)
        while globs.left < more:
            gone = next(iter(globs.to_lose(owner)))
            for one in tuple(self._globs[gone]):
                self._end(one)
            globs = self._shares_of_globs()
        self._shares.put(owner, subscription)
        while self._shares.left < 0:
            self._end(next(iter(self._shares.to_lose(owner))))
        self._subscriptions.add(subscription)
        self._globs.setdefault(subscription.globs, set()).add(subscription)
        self._names.add(subscription)
        self._changed()
        subscription.number = self._kept.end_number
        return partial(self._unsubscribe, subscription)

    def _shares_of_globs(self) -> Shares[tuple[str, ...]]:
        """Return who holds which globs alone; those of several count for none of them."""
        alone = {}
        left = SUBSCRIBED_GLOBS
        for globs, whose in self._globs.items():
            owners = {one.principal.name for one in whose}
            if len(owners) == 1:
                alone[globs] = owners.pop()
            else:
                left -= len(globs)
        shares = Shares[tuple[str, ...]](left)
        for globs, owner in alone.items():
            shares.put(owner, globs, len(globs))
        return shares

    def _end(self, one: Subscription) -> None:
        words = f"others needed room for theirs, and {one.principal.name} had most subscriptions"
        one.gave_way = words
        self._unsubscribe(one)
        one.woken.set()

    async def next(self, one: Subscription) -> SeenUiEvent | Log | None:
        """Wait for the next event, or for the notice that some were lost before it.

        None after a look at many events that others want: then it is the neighbours' turn. Raises
        `RefusedError` if it had to give way to others.
        """
        kept = self._kept
        while one.number >= kept.end_number and not one.gave_way:
            await self._wait(one)
        if one.gave_way:
            raise RefusedError.because(Reason.QUEUE_FULL, one.gave_way)
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
        """Return whether it is running text as agreed, without subscribers; streams ask this."""
        return (
            event.event in self.plain
            and type(event.payload) is dict
            and type(event.payload.get("content")) is str
        )

    def tell(self, event: UiEvent, origin: Provenance) -> None:
        """Send subscribers an event of the host's own."""
        wanted_by, is_new = self._who_wants(event, origin)
        self._keep(event, origin, wanted_by, is_new=is_new)

    def pass_on(self, event: UiEvent, origin: Provenance) -> UiEvent:
        """Send an event to subscribers; returns the event for the client that invoked."""
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
        if subscription not in self._subscriptions:
            return  # it gave way
        self._subscriptions.remove(subscription)
        self._waiting.discard(subscription)
        self._shares.take(subscription.principal.name, subscription)
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

    def _who_wants(
        self, event: UiEvent, origin: Provenance
    ) -> tuple[frozenset[Subscription], bool]:
        """Return the subscribers that want an event, and whether that was computed just now."""
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
        origin: Provenance,
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
        """Give an event that is kept for all no more to those that have not read it, or count it.

        Events after a lost one are lost too, until the subscriber was told: so the notice stands
        where the gap is. And it costs the turn of a module little, however many are behind.
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
