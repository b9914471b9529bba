from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from protocol.events import Log, Progress, UiEvent
from protocol.host_events import PlaceholderUiEvent, SeenUiEvent
from supervisor.kernel import ui_events
from supervisor.kernel.kernel import HeldBounds, RefusedError, UiBounds
from supervisor.kernel.parties import Provenance
from supervisor.kernel.ui_events import Subscription, UiEvents
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.held_bytes import HeldBytes
from tests.factories import actor
from tests.kernel.conftest import Asker, begin, daemon_with, run_op
from tests.principals import ADA

HERE = Provenance("m", "say", "r1", "s-1")


def ui(name: str, payload: Any = msgspec.UNSET) -> UiEvent:
    return UiEvent(version="0", event=name, payload=payload)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("message.chunk", {"content": "x", "more": 1}),
        ("agent.thinking", {"content": ""}),
        ("agent.thinking", {"thought": "hm"}),
        ("agent.thinking", {"plan": [{"content": "look"}]}),
        ("tool.call_start", {"tool_name": "dice", "arguments": {}}),
        ("tool.call_start", {"title": "Roll"}),
        ("tool.call_start", {"tool_call_id": "c1"}),
        ("tool.call_error", {"tool_call_id": "c1"}),
        ("progress", {"done": 0.5, "total": None}),
        ("tool.call_complete", {"tool_name": "dice"}),
        ("tool.call_complete", {"tool_call_id": "c1"}),
    ],
)
def test_an_agreed_name_with_its_payload_passes_as_it_is(name: str, payload: Any) -> None:
    events = UiEvents(HeldBytes())
    event = ui(name, payload)
    assert events.is_plain(event) == ("content" in (payload or {}))
    assert events.pass_on(event, HERE) is event
    assert events.status() == {"subscribers": 0, "placeholders": 0}


@pytest.mark.clause("N001-4.4-d")
@pytest.mark.parametrize(
    ("name", "payload", "words"),
    [
        ("toast", {"text": "hi"}, "['toast' cannot be shown: nothing here knows this event]"),
        ("message.chunk", msgspec.UNSET, '"content" must be a string'),
        ("message.chunk", {"content": 5}, '"content" must be a string'),
        ("agent.thinking", {}, '"content" or "thought" must be a string'),
        ("agent.thinking", {"plan": ["look"]}, '"plan" a list of objects'),
        ("tool.call_start", {"tool_name": 1}, '"tool_name" or "title" or "tool_call_id" must be'),
        ("tool.call_error", {}, '"tool_name" or "tool_call_id" must be a string'),
        ("tool.call_complete", {}, '"tool_name" or "tool_call_id" must be a string'),
        ("x" * 5000, {}, "cannot be shown"),
    ],
)
def test_what_nobody_handles_has_a_placeholder_and_is_counted(
    name: str, payload: Any, words: str
) -> None:
    events = UiEvents(HeldBytes())
    event = ui(name, payload)
    assert not events.is_plain(event)
    passed = events.pass_on(event, HERE)
    assert isinstance(passed, PlaceholderUiEvent)
    assert (passed.event, passed.payload) == (event.event, event.payload)
    assert words in passed.placeholder
    assert len(passed.placeholder) < 400
    assert events.status() == {"subscribers": 0, "placeholders": 1}


@pytest.mark.clause("N001-4.4-c")
async def test_a_subscriber_gets_what_it_wants_and_then_there_is_no_placeholder() -> None:
    events = UiEvents(HeldBytes())
    subscription = Subscription(ADA, ["toast", "menu.*"])
    unsubscribe = events.subscribe(subscription)
    assert events.status()["subscribers"] == 1
    assert type(events.pass_on(ui("toast", {"n": 1}), HERE)) is UiEvent
    assert type(events.pass_on(ui("menu.open"), HERE)) is UiEvent
    assert isinstance(events.pass_on(ui("other"), HERE), PlaceholderUiEvent)
    for name in ("toast", "menu.open"):
        seen = await events.next(subscription)
        assert isinstance(seen, SeenUiEvent)
        assert seen.event == name
        assert seen.origin == {
            "module": "m", "op": "say", "request_id": "r1", "session_id": "s-1",
        }  # fmt: skip
    unsubscribe()
    assert isinstance(events.pass_on(ui("toast"), HERE), PlaceholderUiEvent)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        (Subscription(ADA), True),
        (Subscription(ADA, session_id="s-1"), True),
        (Subscription(ADA, session_id="s-2"), False),
        (Subscription(ADA, module="m"), True),
        (Subscription(ADA, module="n"), False),
        (Subscription(ADA, ["toast", "x"]), True),
        (Subscription(ADA, ["x", "to*"]), True),
        (Subscription(ADA, ["to*", "toa*", "*"]), True),
        (Subscription(ADA, ["toast*"]), True),
        (Subscription(ADA, ["oast*", "toas", ""]), False),
        (Subscription(ADA, ["TOAST"]), False),
        (Subscription(ADA, ["[mt]oast", "?oast", "toas?*"]), False),
    ],
)
def test_a_subscriber_may_want_a_session_a_module_and_names(
    wanted: Subscription, got: bool
) -> None:
    events = UiEvents(HeldBytes())
    events.subscribe(wanted)
    assert isinstance(events.pass_on(ui("toast"), HERE), PlaceholderUiEvent) is not got


def test_who_may_see_one_op_of_a_module_is_told_of_that_one() -> None:
    events = UiEvents(HeldBytes())
    narrow = ADA.narrowed(modules=["m.say", "n"])
    leave = events.subscribe(Subscription(narrow, ["toast"]))
    seen = []
    for module, op in (("m", "say"), ("m", "sing"), ("n", "say"), ("o", "say")):
        passed = events.pass_on(ui("toast"), Provenance(module, op, "r1", owner=ADA.name))
        seen.append(type(passed) is UiEvent)
    assert seen == [True, False, True, False]
    leave()
    passed = events.pass_on(ui("toast"), Provenance("n", "say", "r1", owner=ADA.name))
    assert isinstance(passed, PlaceholderUiEvent)


async def test_a_wrong_payload_reaches_subscribers_with_its_placeholder() -> None:
    events = UiEvents(HeldBytes())
    subscription = Subscription(ADA)
    events.subscribe(subscription)
    assert isinstance(events.pass_on(ui("message.chunk"), HERE), PlaceholderUiEvent)
    seen = await events.next(subscription)
    assert isinstance(seen, SeenUiEvent)
    assert "its payload is wrong" in str(seen.placeholder)


@pytest.mark.fault(30)
@pytest.mark.parametrize("bound", ["events", "bytes", "ledger"])
async def test_a_slow_subscriber_loses_the_oldest_and_is_told(bound: str) -> None:
    cost = await kept_bytes_of([ui("e0")], subscribers=2)
    held, ui_bounds = HeldBounds(), UiBounds(behind_bytes=0)
    if bound == "events":
        ui_bounds = UiBounds(behind_bytes=0, events=3)
    elif bound == "bytes":
        ui_bounds = UiBounds(behind_bytes=0, bytes=3 * cost)
    else:
        held = HeldBounds(all=0, least_free=3 * cost)
    ledger = HeldBytes(held)
    events = UiEvents(ledger, ui_bounds)
    everything, some = Subscription(ADA), Subscription(ADA, ["e0", "e8"])
    events.subscribe(everything)
    events.subscribe(some)
    for number in range(10):
        events.pass_on(ui(f"e{number}"), HERE)
    assert 0 < ledger.total <= 3 * cost
    for subscription, lost, left in (
        (everything, 7, ["e7", "e8", "e9"]),
        (some, 1, ["e8"]),  # no more than it wanted
    ):
        told = await events.next(subscription)
        assert isinstance(told, Log)
        assert told.message == f"{lost} events were left out: the subscriber was too slow"
        assert [await next_name(events, subscription) for _ in left] == left


async def next_name(events: UiEvents, subscription: Subscription) -> str:
    seen = await events.next(subscription)
    assert isinstance(seen, SeenUiEvent)
    return seen.event


async def kept_bytes_of(kept: Sequence[UiEvent], subscribers: int) -> int:
    ledger = HeldBytes()
    events = UiEvents(ledger)
    for number in range(subscribers):
        events.subscribe(Subscription(ADA, party=str(number)))
    for event in kept:
        events.pass_on(event, HERE)
    return ledger.total


async def test_who_wants_an_event_is_counted_once_for_all_that_the_same_want() -> None:
    one, all_64 = [await kept_bytes_of([ui("toast")], subscribers=n) for n in (1, 64)]
    ten_for_one, ten_for_64 = [await kept_bytes_of([ui("toast")] * 10, n) for n in (1, 64)]
    assert ten_for_64 - ten_for_one == all_64 - one > 0
    more = await kept_bytes_of([ui(f"toast {n}") for n in range(10)], subscribers=64)
    assert more > 10 * (all_64 - one)  # of each name it has to be known


@pytest.mark.fault(30)
@pytest.mark.parametrize("bound", ["events", "bytes"])
async def test_a_flood_takes_nothing_from_a_slow_subscriber_that_does_not_want_it(
    bound: str,
) -> None:
    if bound == "events":
        bounds = UiBounds(events=3)
    else:
        bounds = UiBounds(bytes=3 * ui_events.EVENT_COST_BYTES)
    ledger = HeldBytes()
    events = UiEvents(ledger, bounds)
    slow, flooded = Subscription(ADA, module="m"), Subscription(ADA, module="flood")
    leave = events.subscribe(slow)
    leave_too = events.subscribe(flooded)
    for number in range(4):
        events.pass_on(ui(f"e{number}"), HERE)
        for _ in range(10):
            events.pass_on(ui("toast"), Provenance("flood", "say", "r2", None))
    assert [await next_name(events, slow) for _ in range(2)] == ["e0", "e1"]
    events.pass_on(ui("last"), HERE)
    assert [await next_name(events, slow) for _ in range(3)] == ["e2", "e3", "last"]
    leave()
    leave_too()
    assert ledger.total == 0


async def test_what_is_lost_to_a_subscriber_is_told_where_it_is_missing() -> None:
    one, two = [await kept_bytes_of([ui("e0")] * n, subscribers=1) for n in (1, 2)]
    events = UiEvents(HeldBytes(), UiBounds(events=1, behind_bytes=6 * (two - one)))
    first, late = Subscription(ADA, ["e*"]), Subscription(ADA, ["f*"])
    events.subscribe(first)
    events.subscribe(late)
    for name in ("e0", "e1", "e2", "e3", "e4", "e5", "f0", "f1", "f2", "f3"):
        events.pass_on(ui(name), HERE)
    assert await next_name(events, first) == "e0"
    events.pass_on(ui("e6"), HERE)
    events.pass_on(ui("e7"), HERE)  # there is room for e6 again, but e3 is missing before it
    assert await all_of(events, first) == ["e1", "e2", 4, "e7"]
    assert await all_of(events, late) == ["f0", "f1", 2]  # no more than is left
    events.pass_on(ui("e8"), HERE)
    events.pass_on(ui("f4"), HERE)
    assert await all_of(events, first) == ["e8"]
    assert await all_of(events, late) == ["f4"]


async def all_of(events: UiEvents, subscription: Subscription) -> list[str | int]:
    """Return the names of what a subscriber has not read, and between them how many it lost."""
    told: list[str | int] = []
    with trio.move_on_after(0):
        while True:
            seen = await events.next(subscription)
            if isinstance(seen, SeenUiEvent):
                told.append(seen.event)
            elif seen is not None:
                told.append(int(seen.message.partition(" ")[0]))
    return told


async def test_what_all_have_read_is_kept_no_longer() -> None:
    ledger = HeldBytes()
    events = UiEvents(ledger)
    first, second = Subscription(ADA), Subscription(ADA, ["toast"])
    leave = events.subscribe(first)
    events.subscribe(second)
    names: list[str] = []

    async def read(subscription: Subscription) -> None:
        while True:
            names.append(await next_name(events, subscription))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, second)
        events.pass_on(ui("toast"), HERE)
        await trio.testing.wait_all_tasks_blocked()
        assert ledger.total > 0  # the first one has not read it
        nursery.start_soon(read, first)
        await trio.testing.wait_all_tasks_blocked()
        assert (names, ledger.total) == (["toast", "toast"], 0)
        events.pass_on(ui("menu"), HERE)  # which only one of them is woken for
        await trio.testing.wait_all_tasks_blocked()
        events.pass_on(ui("toast"), HERE)
        await trio.testing.wait_all_tasks_blocked()
        assert (names[2:], ledger.total) == (["menu", "toast", "toast"], 0)
        nursery.cancel_scope.cancel()
    leave()
    events.pass_on(ui("toast"), HERE)
    assert ledger.total > 0
    events._unsubscribe(second)
    assert ledger.total == 0


async def test_each_line_is_kept_once_and_no_subscriber_is_asked_in_the_turn_of_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of issue 13: 128 lines for 512 subscribers took 83 ms in one turn of the module."""
    asked = {"sees": 0, "covers": 0}

    def count(of: type, name: str) -> None:
        unchanged = getattr(of, name)

        def counted(*args: Any) -> Any:
            asked[name] += 1
            return unchanged(*args)

        monkeypatch.setattr(of, name, counted)

    count(Subscription, "sees")
    count(Principal, "covers")
    ledger = HeldBytes()
    events = UiEvents(ledger)
    narrow = ADA.narrowed(modules=["m*"])
    subscribers = [Subscription(narrow, party=str(number)) for number in range(64)]
    for one in subscribers:
        events.subscribe(one)
    for number in range(128):
        events.pass_on(ui("progress", {"done": number}), HERE)
        events.pass_on(ui("toast"), HERE)
    for number in range(128):
        events.pass_on(ui(f"made up {number}"), HERE)
    for number in range(128):
        events.pass_on(ui("toast"), Provenance("m", f"op {number}", f"r{number}", "s-1"))
    assert asked == {"sees": 64, "covers": 1 + 128}  # once for each op, and not for each line
    held = ledger.total
    for one in subscribers:
        for _ in range(4 * 128):
            assert isinstance(await events.next(one), SeenUiEvent)
    assert ledger.total == held < 4 * 128 * 8192  # once, however many read


async def test_who_wants_little_of_much_lets_others_go_on_before_it_has_looked_at_all() -> None:
    events = UiEvents(HeldBytes())
    little, much = Subscription(ADA, ["wanted"]), Subscription(ADA)
    events.subscribe(little)
    events.subscribe(much)
    for _ in range(2 * ui_events.LOOKED_AT):
        events.pass_on(ui("other"), HERE)
    events.pass_on(ui("wanted"), HERE)
    assert [await events.next(little) for _ in range(2)] == [None, None]
    assert await next_name(events, little) == "wanted"


async def test_one_event_beyond_the_bound_is_kept() -> None:
    events = UiEvents(HeldBytes(), UiBounds(bytes=10, behind_bytes=0))
    subscription = Subscription(ADA)
    events.subscribe(subscription)
    events.pass_on(ui("first"), HERE)
    events.pass_on(ui("second"), HERE)
    assert isinstance(await events.next(subscription), Log)
    last = await events.next(subscription)
    assert isinstance(last, SeenUiEvent)
    assert last.event == "second"


async def test_the_op_streams_the_events_of_all_invocations(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        send, receive = trio.open_memory_channel[Any](10)
        args = {"events": ["to*"], "module": "m"}
        asker = begin(daemon, "supervisor", "ui.subscribe", {"events": []})
        assert not (await asker.response()).ok
        with pytest.raises(RefusedError, match="no session 'none'"):
            await run_op(daemon, "ui.subscribe", {"session_id": "none"}, send.send)

        async def emit(event: Progress | None) -> None:
            await send.send(event)

        async def subscribe() -> None:
            await run_op(daemon, "ui.subscribe", args, emit)

        nursery.start_soon(subscribe)
        ui_of_daemon = daemon.effects.ui
        while not ui_of_daemon.status()["subscribers"]:
            await trio.lowlevel.checkpoint()
        askers = []
        for number in range(2):
            lines: list[dict[str, Any]] = [
                {"type": "ui_event", "event": "toast", "payload": {"n": number}},
                {"type": "ui_event", "event": "message.chunk", "payload": {"content": "x"}},
                {"type": "done", "ok": True},
            ]
            said = [json.dumps({"version": "0", **one}) for one in lines]
            askers.append(Asker())
            daemon.requests.invoke(ADA, "m", {"op": "say", "args": {"lines": said}}, askers[-1])
            await askers[-1].response()
        assert isinstance(await receive.receive(), Log)  # it is there
        seen = [await receive.receive(), await receive.receive()]
        assert [one.payload for one in seen] == [{"n": 0}, {"n": 1}]
        assert [len(one.events) for one in askers] == [2, 2]  # the client gets its own anyway
        nursery.cancel_scope.cancel()
    assert ui_of_daemon.status() == {"subscribers": 0, "placeholders": 0}


async def test_there_are_so_many_subscriptions_of_one_connection_and_in_all() -> None:
    events = UiEvents(HeldBytes(), UiBounds(subscriptions=3, of_one_party=2))
    ends = [events.subscribe(Subscription(ADA, party="client 1")) for _ in range(2)]
    with pytest.raises(RefusedError, match="2 subscriptions of this connection"):
        events.subscribe(Subscription(ADA, party="client 1"))
    events.subscribe(Subscription(ADA, party="client 2"))
    with pytest.raises(RefusedError, match="of all 3"):
        events.subscribe(Subscription(ADA, party="client 3"))
    ends[0]()
    events.subscribe(Subscription(ADA, party="client 3"))


@pytest.mark.fault(29)
def test_each_op_of_a_module_is_held_against_so_many_globs_of_all_subscribers() -> None:
    """It was held against those of each subscriber anew, with each new name of an event."""
    events = UiEvents(HeldBytes())
    globs = [f"m{number}" for number in range(ui_events.SUBSCRIBED_GLOBS // 2)]
    narrow = ADA.narrowed(modules=globs), ADA.narrowed(modules=["n", *globs[1:]])
    ends = [events.subscribe(Subscription(one)) for one in narrow for _ in range(3)]
    more = Subscription(ADA.narrowed(modules=["o"]))
    with pytest.raises(RefusedError, match="would have 101 globs, and may have 100"):
        events.subscribe(more)
    for everything in (ADA, ADA.narrowed(scopes=[Scope.READ]), ADA.narrowed(modules=["*", "o"])):
        events.subscribe(Subscription(everything))  # who may see all is not kept out by others
    for end in ends[:3]:
        end()
    events.subscribe(more)
