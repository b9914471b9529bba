from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.events import Log, Progress, UiEvent
from protocol.host_events import PlaceholderUiEvent, SeenUiEvent
from supervisor.kernel import ui_events
from supervisor.kernel.parties import Origin, RefusedError
from supervisor.kernel.ui_events import Subscription, UiEvents
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with, run_op
from tests.principals import ADA

HERE = Origin("m", "say", "r1", "s-1")


def ui(name: str, payload: Any = msgspec.UNSET) -> UiEvent:
    return UiEvent(version="0", event=name, payload=payload)


async def nobody(event: Progress | None) -> None:
    raise AssertionError(event)


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
    events = UiEvents()
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
    events = UiEvents()
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
    events = UiEvents()
    subscription = Subscription(ADA, ["toast", "menu.*"])
    unsubscribe = events.subscribe(subscription)
    assert events.status()["subscribers"] == 1
    assert type(events.pass_on(ui("toast", {"n": 1}), HERE)) is UiEvent
    assert type(events.pass_on(ui("menu.open"), HERE)) is UiEvent
    assert isinstance(events.pass_on(ui("other"), HERE), PlaceholderUiEvent)
    for name in ("toast", "menu.open"):
        seen = await subscription.next()
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
        (Subscription(ADA, ["toast*"]), True),
        (Subscription(ADA, ["oast*", "toas", ""]), False),
        (Subscription(ADA, ["TOAST"]), False),
        (Subscription(ADA, ["[mt]oast", "?oast", "toas?*"]), False),
    ],
)
def test_a_subscriber_may_want_a_session_a_module_and_names(
    wanted: Subscription, got: bool
) -> None:
    assert wanted.wants(ui("toast"), HERE) is got


@pytest.mark.fault(29)
@pytest.mark.parametrize("pattern", ["*a", "a*b", "a*b*", "**", "*a*" * 60 + "b"])
async def test_a_star_that_is_not_the_end_of_a_name_is_refused(
    pattern: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path) as daemon:
        with pytest.raises(RefusedError, match="has a `\\*` that is not its end") as refused:
            await run_op(daemon, "ui.subscribe", {"events": ["toast", pattern]}, nobody)
        assert refused.value.failure.details["pointer"] == "/events/1"


async def test_a_wrong_payload_reaches_subscribers_with_its_placeholder() -> None:
    events = UiEvents()
    subscription = Subscription(ADA)
    events.subscribe(subscription)
    assert isinstance(events.pass_on(ui("message.chunk"), HERE), PlaceholderUiEvent)
    seen = await subscription.next()
    assert isinstance(seen, SeenUiEvent)
    assert "its payload is wrong" in str(seen.placeholder)


@pytest.mark.parametrize("bound", ["WAITING_EVENTS", "WAITING_BYTES"])
async def test_a_slow_subscriber_loses_the_oldest_and_is_told(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(ui_events, bound, 3 if bound == "WAITING_EVENTS" else 400)
    events = UiEvents()
    slow, other = Subscription(ADA), Subscription(ADA, ["nothing"])
    events.subscribe(slow)
    events.subscribe(other)
    for number in range(10):
        events.pass_on(ui(f"e{number}"), HERE)
    told = await slow.next()
    assert isinstance(told, Log)
    left = []
    while slow._waiting:
        one = await slow.next()
        assert isinstance(one, SeenUiEvent)
        left.append(one.event)
    assert told.message == (f"{10 - len(left)} events were left out: the subscriber was too slow")
    assert left == [f"e{n}" for n in range(10 - len(left), 10)]
    assert len(left) == 3 or bound == "WAITING_BYTES"
    assert slow._bytes == 0


async def test_one_event_beyond_the_bound_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_events, "WAITING_BYTES", 10)
    events = UiEvents()
    subscription = Subscription(ADA)
    events.subscribe(subscription)
    events.pass_on(ui("first"), HERE)
    events.pass_on(ui("second"), HERE)
    assert isinstance(await subscription.next(), Log)
    last = await subscription.next()
    assert isinstance(last, SeenUiEvent)
    assert last.event == "second"


async def test_the_op_streams_the_events_of_all_invocations(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        send, receive = trio.open_memory_channel[Any](10)
        args = {"events": ["to*"], "module": "m"}
        assert daemon.requests.operations.refusal("ui.subscribe", args) is None
        assert daemon.requests.operations.refusal("ui.subscribe", {"events": []}) is not None
        with pytest.raises(RefusedError, match="no session 'none'"):
            await run_op(daemon, "ui.subscribe", {"session_id": "none"}, send.send)

        async def emit(event: Progress | None) -> None:
            await send.send(event)

        async def subscribe() -> None:
            await run_op(daemon, "ui.subscribe", args, emit)

        nursery.start_soon(subscribe)
        ui_of_daemon = daemon.requests._effects.ui
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


async def test_there_are_so_many_subscriptions_of_one_connection_and_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ui_events, "SUBSCRIPTIONS", 3)
    monkeypatch.setattr(ui_events, "OF_ONE_PARTY", 2)
    events = UiEvents()
    ends = [events.subscribe(Subscription(ADA, party="client 1")) for _ in range(2)]
    with pytest.raises(RefusedError, match="2 subscriptions of this connection"):
        events.subscribe(Subscription(ADA, party="client 1"))
    events.subscribe(Subscription(ADA, party="client 2"))
    with pytest.raises(RefusedError, match="of all 3"):
        events.subscribe(Subscription(ADA, party="client 3"))
    ends[0]()
    events.subscribe(Subscription(ADA, party="client 3"))
