"""Hooks that observe: told of what fits, never of themselves, never in anyone's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio

from supervisor.kernel.kernel import JournalOptions, Kernel
from supervisor.policy.lifecycle import State
from tests.factories import actor
from tests.kernel.conftest import ask, daemon_with, run_op
from tests.kernel.hooks.parties import entries, given, hook, reload, seen, unemitted
from tests.kernel.host_calls import allowing
from tests.principals import ADA


async def observed(daemon: Kernel, name: str = "h") -> dict[str, Any]:
    shown = await run_op(daemon, "status", {"module": name}, unemitted)
    found: dict[str, Any] = shown["hook"]["events"]
    return found


async def until(daemon: Kernel, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until what `status` says of the observer h holds."""
    while not holds(events := await observed(daemon)):
        await trio.lowlevel.checkpoint()
    return events


async def test_a_hook_is_given_the_whole_event_as_the_journal_has_it(tmp_path: Path) -> None:
    hooks = hook(tmp_path, observe=["module:invoke", "session:*"])
    async with daemon_with(tmp_path, actor(tmp_path), hooks, memory=JournalOptions()) as daemon:
        await ask(daemon, "m", args={"n": 1}).response()
        session = daemon.sessions.new(ADA)
        first, second = await given(daemon, 2)
    assert (first["event"], first["data"]["event"]) == ("module:invoke", "module:invoke")
    assert first["data"]["data"] == {"op": "echo"}
    assert (second["event"], second["data"]["session_id"]) == ("session:start", session.id)
    kept = {one["id"]: one for one in entries(tmp_path)}
    assert [kept[one["data"]["id"]] for one in (first, second)] == [first["data"], second["data"]]


async def test_a_hook_is_told_also_where_nothing_is_kept(tmp_path: Path) -> None:
    hooks = hook(tmp_path, observe=["module:invoke"])
    async with daemon_with(tmp_path, actor(tmp_path), hooks) as daemon:
        await ask(daemon, "m").response()
        (event,) = await given(daemon, 1)
    assert event["data"]["module"] == "m"


async def test_a_hook_is_told_also_where_the_journal_could_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "data" / "journal.db").mkdir(parents=True)
    hooks = hook(tmp_path, observe=["module:invoke"])
    async with daemon_with(tmp_path, actor(tmp_path), hooks, memory=JournalOptions()) as daemon:
        await ask(daemon, "m").response()
        (event,) = await given(daemon, 1)
    assert event["data"]["module"] == "m"


async def test_a_hook_is_told_nothing_of_itself_and_its_calls_are_not_recorded(
    tmp_path: Path,
) -> None:
    hooks = hook(tmp_path, observe=["*"])
    async with daemon_with(tmp_path, actor(tmp_path), hooks, memory=JournalOptions()) as daemon:
        for _ in range(3):
            await ask(daemon, "m").response()
        await until(daemon, lambda events: events["delivered"] >= 3 and not events["waiting"])
        found = await seen(daemon)
    assert not [one for one in found if one["data"].get("module") == "h"]
    assert [one["event"] for one in found].count("module:invoke") == 3
    calls = [one for one in entries(tmp_path, "module:invoke") if one["module"] == "h"]
    assert {one["data"]["op"] for one in calls} == {"seen"}


@pytest.mark.parametrize("drop", ["oldest", "newest"])
async def test_while_a_hook_hangs_nobody_waits_and_the_oldest_or_newest_are_dropped(
    drop: str, tmp_path: Path
) -> None:
    hooks = hook(
        tmp_path,
        answers={"*": "hang"},
        observe=["module:invoke"],
        queue=2,
        drop=drop,
        supervision={"concurrency": 2},
    )
    async with daemon_with(tmp_path, actor(tmp_path), hooks, memory=JournalOptions()) as daemon:
        for number in range(8):
            asker = ask(daemon, "m", args={"n": number})
            assert (await asker.response()).ok
            if number < 2:
                await until(daemon, lambda events: events["in_flight"] == number + 1)  # noqa: B023
        events = await observed(daemon)
        assert (events["in_flight"], events["waiting"], events["dropped"]) == (2, 2, 4)
        shown = await run_op(daemon, "status", {"module": "h"}, unemitted)
        assert (shown["hook"]["queue"], shown["hook"]["drop"]) == (2, drop)
    told = entries(tmp_path, "hook:dropped")
    # The first at once, what came within the same while together, and at the end what was left.
    assert [one["data"]["count"] for one in told] == [1, 5]
    assert {one["module"] for one in told} == {"h"}


async def test_while_a_hook_is_down_events_wait_for_it(tmp_path: Path) -> None:
    hooks = hook(tmp_path, observe=["module:invoke"])
    async with daemon_with(tmp_path, actor(tmp_path), hooks) as daemon:
        module = daemon.fleet.modules["h"]
        module.stop("the test")
        await daemon.fleet.wait_until(lambda: module.state is State.DOWN or None)
        for _ in range(3):
            await ask(daemon, "m").response()
        events = await observed(daemon)
        assert (events["waiting"], events["in_flight"], events["delivered"]) == (3, 0, 0)
        module.start("the test")
        await until(daemon, lambda events: events["delivered"] == 3)
        assert len(await seen(daemon)) == 3


async def test_a_lazy_hook_is_started_by_an_event(tmp_path: Path) -> None:
    hooks = hook(tmp_path, observe=["module:invoke"], supervision={"start": "lazy"})
    async with daemon_with(tmp_path, actor(tmp_path), hooks) as daemon:
        await ask(daemon, "m").response()
        await until(daemon, lambda events: events["delivered"] == 1)


@pytest.mark.parametrize("answer", ["exit", "refuse"])
async def test_an_event_that_a_hook_fails_with_is_not_given_again(
    tmp_path: Path, answer: str
) -> None:
    hooks = hook(
        tmp_path,
        answers={"session:start": answer},
        observe=["session:*"],
        supervision={"backoff": {"initial_s": 0.01}},
    )
    async with daemon_with(tmp_path, hooks) as daemon:
        session = daemon.sessions.new(ADA)
        await until(daemon, lambda events: events["failed"] == 1)
        daemon.sessions.end(ADA, session.id)
        await until(daemon, lambda events: events["delivered"] == 1)
        assert [one["event"] for one in await seen(daemon)][-1] == "session:end"


@pytest.mark.parametrize("answer", ["nonsense", "flood"])
async def test_what_an_observer_answers_means_nothing(tmp_path: Path, answer: str) -> None:
    hooks = hook(tmp_path, answers={"*": answer}, observe=["session:*"])
    async with daemon_with(tmp_path, hooks) as daemon:
        for _ in range(3):
            daemon.sessions.new(ADA)
        await until(daemon, lambda events: events["delivered"] == 3)


async def test_what_a_hook_registers_is_recorded_and_again_when_it_changes(tmp_path: Path) -> None:
    before = hook(tmp_path, observe=["session:*"], gate=["tool:pre"])
    async with daemon_with(tmp_path, before, memory=JournalOptions()) as daemon:
        await reload(daemon, before)
        await reload(daemon, hook(tmp_path, observe=["module:*"]))
        await reload(daemon)
        session = daemon.sessions.new(ADA)
        assert session.id
    told = [one["data"] for one in entries(tmp_path, "hook:register")]
    assert [(one["event"], one["as"]) for one in told] == [
        ("session:*", "observer"),
        ("tool:pre", "gate"),
        ("module:*", "observer"),
    ]


async def test_a_reloaded_hook_is_told_by_its_new_globs_and_a_removed_one_no_more(
    tmp_path: Path,
) -> None:
    parties = actor(tmp_path), hook(tmp_path, observe=["session:*"])
    async with daemon_with(tmp_path, *parties) as daemon:
        await reload(daemon, parties[0], hook(tmp_path, observe=["module:invoke"]))
        daemon.sessions.new(ADA)
        await ask(daemon, "m").response()
        await until(daemon, lambda events: events["delivered"] == 1)
        assert [one["event"] for one in await seen(daemon)] == ["module:invoke"]
        await reload(daemon, parties[0])
        await ask(daemon, "m").response()
        assert (await run_op(daemon, "status", {"module": "m"}, unemitted))["hook"] is None


async def test_a_hook_that_hangs_at_the_end_is_stopped_like_any_module(tmp_path: Path) -> None:
    timeouts = {"stop_s": 0.05, "exit_s": 0.05}
    hooks = hook(
        tmp_path,
        answers={"*": "hang"},
        observe=["*"],
        supervision={"timeouts": timeouts},
    )
    async with daemon_with(tmp_path, actor(tmp_path), hooks) as daemon:
        await ask(daemon, "m").response()
        await until(daemon, lambda events: events["in_flight"] > 0)


async def test_a_hook_that_is_told_of_nothing_is_named_in_log_and_status(tmp_path: Path) -> None:
    bare = actor(tmp_path, name="bare", kind="hook", supervision={"start": "lazy"})
    gate = hook(tmp_path, "gate", gate=["tool:pre"], modules=["n"])
    with structlog.testing.capture_logs() as logs:
        async with daemon_with(tmp_path, actor(tmp_path), bare, gate) as daemon:
            shown = [
                await run_op(daemon, "status", {"module": name}, unemitted)
                for name in ("bare", "gate", "m")
            ]
    warned = [one["words"] for one in logs if one["event"] == "hook"]
    assert [one.partition(" ")[0] for one in warned] == ["/hook:", "/hook/modules/0:"]
    assert [one["misfits"] for one in shown] == [*([words] for words in warned), []]


async def test_a_hook_that_is_removed_leaves_no_task(tmp_path: Path) -> None:
    def tasks() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    m, watching = actor(tmp_path), hook(tmp_path, observe=["*"])
    async with daemon_with(tmp_path, m) as daemon:
        before = tasks()
        await reload(daemon, m, watching)
        await ask(daemon, "m").response()
        await given(daemon, 1)
        assert tasks() > before
        await reload(daemon, m)
        while tasks() != before:
            await trio.lowlevel.checkpoint()


async def test_a_hook_is_told_nothing_of_what_is_done_on_its_behalf(tmp_path: Path) -> None:
    watched = ["module:invoke"]
    capable = ("module.invoke",)
    caller = hook(tmp_path, answers={"*": "call"}, capabilities=capable, observe=watched)
    modules = actor(tmp_path), caller, hook(tmp_path, "other", observe=watched)
    async with daemon_with(tmp_path, *modules, operator=allowing(tmp_path)) as daemon:
        for asked in (1, 2):
            await ask(daemon, "m").response()
            while (await observed(daemon, "other"))["delivered"] < 2 * asked:
                await trio.lowlevel.checkpoint()
        events = await until(daemon, lambda events: events["in_flight"] == 0)
        assert (events["delivered"], events["waiting"]) == (2, 0)
        told = [one["data"]["module"] for one in await seen(daemon, "other")]
        assert told == ["m"] * 4
