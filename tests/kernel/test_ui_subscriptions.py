"""`ui_event`s on their way: placeholders for who invoked, and what each subscriber gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

from protocol.events import Log, UiEvent
from supervisor.kernel.kernel import Capacity, Congestion, Kernel, Party, UiBounds
from supervisor.policy.principals import Principal, Scope
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import GONE, Asker, begin, daemon_with, own
from tests.principals import ADA

TEXT = "must be a string"
THINKING = f'"content" or "thought" {TEXT}, or "plan" a list of objects'
STARTED = f'"tool_name" or "title" or "tool_call_id" {TEXT}'
CALLED = f'"tool_name" or "tool_call_id" {TEXT}'

AGREED: list[tuple[str, Any, str]] = [
    ("message.chunk", {"content": "x", "more": 1}, ""),
    ("message.chunk", {"content": 5}, f'"content" {TEXT}'),
    ("message.chunk", {}, f'"content" {TEXT}'),
    ("agent.thinking", {"content": ""}, ""),
    ("agent.thinking", {"thought": "hm"}, ""),
    ("agent.thinking", {"plan": [{"content": "look"}]}, ""),
    ("agent.thinking", {"plan": []}, ""),
    ("agent.thinking", {"plan": ["look"]}, THINKING),
    ("agent.thinking", {"plan": {}}, THINKING),
    ("agent.thinking", {}, THINKING),
    ("tool.call_start", {"tool_name": "dice"}, ""),
    ("tool.call_start", {"title": "Roll"}, ""),
    ("tool.call_start", {"tool_call_id": "c1"}, ""),
    ("tool.call_start", {"tool_name": 1}, STARTED),
    ("tool.call_complete", {"tool_name": "dice"}, ""),
    ("tool.call_complete", {"tool_call_id": "c1"}, ""),
    ("tool.call_complete", {"title": "Roll"}, CALLED),
    ("tool.call_error", {"tool_name": "dice"}, ""),
    ("tool.call_error", {"tool_call_id": "c1"}, ""),
    ("tool.call_error", {}, CALLED),
    ("progress", {"done": 1}, ""),
    ("progress", {"done": 0.5, "total": None}, ""),
    ("progress", {"done": True}, '"done" must be a number'),
    ("progress", {"done": "1"}, '"done" must be a number'),
]


def ui(name: str, payload: Any = None) -> dict[str, Any]:
    known = {} if payload is None else {"payload": payload}
    return {"version": "0", "type": "ui_event", "event": name, **known}


async def said(
    daemon: Kernel, *events: dict[str, Any], module: str = "m", who: Principal = ADA, **more: Any
) -> list[dict[str, Any]]:
    """Have a module say events; returns what its client got."""
    lines = [json.dumps(one) for one in (*events, {"version": "0", "type": "done", "ok": True})]
    content = {"op": "say", "args": {"lines": lines}, **more}
    asker = begin(daemon, module, "invoke", content, who)
    assert (await asker.response()).ok
    return [msgspec.to_builtins(one) for one in asker.events]


async def ui_status(daemon: Kernel) -> Any:
    return (await own(daemon, ADA, "status"))["daemon"]["ui"]


class Subscriber(Asker):
    """A client that watches, and the handle of that."""

    def __init__(self, daemon: Kernel, party: Party | None = None, **args: Any) -> None:
        super().__init__()
        content = {"op": "ui.subscribe", "args": args}
        party = party or Party(ADA)
        self.handle = daemon.begin(party, "supervisor", "invoke", content, self)

    async def watches(self) -> Subscriber:
        await self.heard(1)
        [first] = self.events
        assert isinstance(first, Log)
        assert first.message == "watching for ui events"
        return self

    def go_on(self) -> None:
        assert self.handle is not None
        self.slow = Congestion.NONE
        self.handle.resume()

    async def seen(self) -> list[str]:
        """Return the names of the events, and the words of notices, once all have come."""
        await trio.testing.wait_all_tasks_blocked()
        found: list[Any] = self.events[1:]
        return [one.event if isinstance(one, UiEvent) else one.message for one in found]

    async def refused(self) -> str:
        error = (await self.document())["error"]
        assert error["details"]["reason"] == "queue_full"
        return str(error["message"])


@pytest.mark.clause("N001-4.4-d")
async def test_an_event_that_is_not_as_agreed_has_a_placeholder_for_who_invoked(
    tmp_path: Path,
) -> None:
    odd = [("toast", {"text": "hi"}), ("toast", None), ("Progress", {"done": 1}), ("x" * 201, None)]
    events = [ui(name, payload) for name, payload, _ in AGREED] + [ui(*one) for one in odd]
    placeholders = [
        f"['{name}' cannot be shown: its payload is wrong, {words}]" if words else None
        for name, _, words in AGREED
    ]
    placeholders += [
        f"['{name[:200]}' cannot be shown: nothing here knows this event]" for name, _ in odd
    ]
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        got = await said(daemon, *events)
        assert [one.pop("placeholder", None) for one in got] == placeholders
        assert got == events
        count = len([one for one in placeholders if one is not None])
        assert await ui_status(daemon) == {"subscribers": 0, "placeholders": count}


async def test_a_subscriber_gets_events_with_their_origin_and_nobody_a_placeholder(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await own(daemon, ADA, "session.new", session_id="s")
        watcher = await Subscriber(daemon, events=["toast", "menu.*", "message.chunk"]).watches()
        assert (await ui_status(daemon))["subscribers"] == 1
        told = [ui("toast", {"n": 1}), ui("menu.open"), ui("other"), ui("message.chunk", {"n": 1})]
        got = await said(daemon, *told, session_id="s")
        wrong = (
            "['message.chunk' cannot be shown: its payload is wrong, \"content\" must be a string]"
        )
        odd = "['other' cannot be shown: nothing here knows this event]"
        assert [one.get("placeholder") for one in got] == [None, None, odd, wrong]
        await watcher.heard(4)
        seen = [msgspec.to_builtins(one) for one in watcher.events[1:]]
        origins = [one.pop("origin") for one in seen]
        assert seen == [told[0], told[1], {**told[3], "placeholder": wrong}]
        request, span = origins[0]["request_id"], origins[0]["span_id"]
        assert span.endswith(f"-i{request}")
        origin = {"module": "m", "op": "say", "session_id": "s"}
        assert origins == [{**origin, "request_id": request, "span_id": span}] * 3
        assert watcher.handle is not None
        watcher.handle.cancel(GONE)
        assert (await watcher.document())["error"]["code"] == "cancelled"
        await trio.testing.wait_all_tasks_blocked()
        assert (await ui_status(daemon))["subscribers"] == 0
        [again] = await said(daemon, ui("toast"))
        assert again["placeholder"] == "['toast' cannot be shown: nothing here knows this event]"
    assert len(watcher.events) == 4


READING = frozenset({Scope.READ})
NARROW = Principal("ada", "test", frozenset({Scope.READ, Scope.INVOKE}), ("m.say", "n"))


@pytest.mark.parametrize(
    ("who", "args", "gets"),
    [
        (ADA, {}, "m:toast n:toast m:toss m:t"),
        (ADA, {"session_id": "s"}, "n:toast"),
        (ADA, {"module": "m"}, "m:toast m:toss m:t"),
        (ADA, {"module": "m", "session_id": "s"}, ""),
        (ADA, {"events": ["toast"]}, "m:toast n:toast"),
        (ADA, {"events": ["to*", "toa*", "toast"]}, "m:toast n:toast m:toss"),
        (ADA, {"events": ["t*"]}, "m:toast n:toast m:toss m:t"),
        (ADA, {"events": ["t"]}, "m:t"),
        (ADA, {"events": ["toss", "x*"]}, "m:toss"),
        (ADA, {"events": ["oast*", "TOAST", "[t]oast", "?oast", "toas", ""]}, ""),
        (NARROW, {}, "m:toast n:toast m:toss m:t"),
        (ADA.narrowed({Scope.READ}, ("n",)), {}, "n:toast"),
        (ADA.narrowed({Scope.READ}, ("m.sing", "o")), {}, ""),
        (Principal("eve", "test", READING), {}, ""),
        (
            Principal("eve", "test", READING | {Scope.ADMIN}),
            {},
            "m:toast n:toast m:toss m:t",
        ),
    ],
)
async def test_a_subscriber_gets_what_it_wants_and_may_see(
    who: Principal, args: dict[str, Any], gets: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), actor(tmp_path, name="n")) as daemon:
        await own(daemon, ADA, "session.new", session_id="s")
        watcher = await Subscriber(daemon, Party(who), **args).watches()
        for _ in range(2):  # what is known of the first event serves the second
            await said(daemon, ui("toast"))
            await said(daemon, ui("toast"), module="n", session_id="s")
            await said(daemon, ui("toss"), ui("t"))
        await watcher.seen()
    seen: list[Any] = watcher.events[1:]
    assert [f"{one.origin['module']}:{one.event}" for one in seen] == gets.split() * 2


async def test_a_connection_and_all_have_a_bounded_number_of_subscriptions(tmp_path: Path) -> None:
    bounds = Capacity(ui=UiBounds(subscriptions=3, of_one_party=2))
    async with daemon_with(tmp_path, bounds=bounds) as daemon:
        party, other = Party(ADA), Party(ADA)
        first = await Subscriber(daemon, party).watches()
        await Subscriber(daemon, party).watches()
        assert await Subscriber(daemon, party).refused() == (
            "there are 2 subscriptions of this connection, and may be 2; of all 2, and may be 3"
        )
        await Subscriber(daemon, other).watches()
        assert await Subscriber(daemon, other).refused() == (
            "there are 1 subscriptions of this connection, and may be 2; of all 3, and may be 3"
        )
        assert first.handle is not None
        first.handle.cancel(GONE)
        await first.response()
        await trio.testing.wait_all_tasks_blocked()
        await Subscriber(daemon, party).watches()
        assert (await ui_status(daemon))["subscribers"] == 3


async def test_globs_of_subscribers_have_a_bound_and_equal_ones_count_once(tmp_path: Path) -> None:
    def who(first: int, number: int) -> Party:
        globs = tuple(f"m{n}" for n in range(first, first + number))
        return Party(ADA.narrowed({Scope.READ}, globs))

    async with daemon_with(tmp_path) as daemon:
        for first in (0, 0, 50):
            await Subscriber(daemon, who(first, 50)).watches()
        assert await Subscriber(daemon, who(100, 1)).refused() == (
            "all that subscribe would have 101 globs, and may have 100"
        )
        await Subscriber(daemon, Party(ADA)).watches()
        await Subscriber(daemon, who(50, 50)).watches()


LEFT_OUT = "events were left out: the subscriber was too slow"


async def test_a_slow_subscriber_loses_the_oldest_of_what_it_wants_and_is_told(
    tmp_path: Path,
) -> None:
    bounds = Capacity(ui=UiBounds(events=3, behind_bytes=0))
    async with daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon:
        everything = await Subscriber(daemon).watches()
        some = await Subscriber(daemon, events=["e0", "e8"]).watches()
        quick = await Subscriber(daemon).watches()
        for one in (everything, some):
            one.slow = Congestion.SLOW
        await said(daemon, ui("first"))
        await quick.heard(2)
        for number in range(10):
            await said(daemon, ui(f"e{number}"))
            await quick.heard(number + 3)
        for one in (everything, some):
            one.go_on()
        names = [f"e{number}" for number in range(10)]
        assert await quick.seen() == ["first", *names]
        assert await everything.seen() == ["first", f"7 {LEFT_OUT}", "e7", "e8", "e9"]
        assert await some.seen() == ["e0", "e8"]
        await said(daemon, ui("e8"))
        assert (await everything.seen())[-1] == (await some.seen())[-1] == "e8"


async def test_what_a_slow_subscriber_has_not_read_is_kept_for_it_within_a_bound(
    tmp_path: Path,
) -> None:
    bounds = Capacity(ui=UiBounds(events=2))
    async with daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon:
        slow = await Subscriber(daemon, events=["e*"]).watches()
        slow.slow = Congestion.SLOW
        for number in range(6):
            await said(daemon, ui(f"e{number}"), *(ui(f"other{n}") for n in range(3)))
        held = (await own(daemon, ADA, "status"))["daemon"]["held_bytes"]["total"]
        assert held > 6 * 512
        slow.go_on()
        assert await slow.seen() == [f"e{number}" for number in range(6)]
        assert (await own(daemon, ADA, "status"))["daemon"]["held_bytes"]["total"] == 0


async def test_who_leaves_while_it_is_behind_leaves_nothing(tmp_path: Path) -> None:
    bounds = Capacity(ui=UiBounds(events=1))
    async with daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon:
        slow = await Subscriber(daemon).watches()
        slow.slow = Congestion.SLOW
        for number in range(4):
            await said(daemon, ui(f"e{number}"))
        assert slow.handle is not None
        slow.handle.cancel(Stopped(GONE.reason, "it left"))
        await slow.response()
        await trio.testing.wait_all_tasks_blocked()
        status = (await own(daemon, ADA, "status"))["daemon"]
        assert (status["held_bytes"]["total"], status["ui"]["subscribers"]) == (0, 0)


async def test_a_connection_may_have_64_subscriptions_and_a_daemon_512(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        party = Party(ADA)
        for _ in range(64):
            await Subscriber(daemon, party).watches()
        assert await Subscriber(daemon, party).refused() == (
            "there are 64 subscriptions of this connection, and may be 64;"
            " of all 64, and may be 512"
        )


async def test_who_stays_gets_what_another_of_the_same_beginning_wanted_too(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        leaves, stays = [await Subscriber(daemon, events=["to*"]).watches() for _ in range(2)]
        assert leaves.handle is not None
        leaves.handle.cancel(GONE)
        await leaves.response()
        await trio.testing.wait_all_tasks_blocked()
        await said(daemon, ui("toast"))
        assert await stays.seen() == ["toast"]
        assert len(leaves.events) == 1
