"""Modules that depend on each other, with fake lives."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Failure
from supervisor.kernel.status import module_status
from supervisor.policy.findings import Found, QuarantinedFile
from supervisor.policy.lifecycle import State
from supervisor.policy.reload_plan import Changed, ReloadPlan
from supervisor.runtime.supervision.fleet import Fleet
from tests.factories import Heard, call
from tests.runtime.fakes import Stage, staged

Clock = trio.testing.MockClock
STEADY = {"backoff": {"initial_s": 4, "factor": 2, "jitter": 0}}

STACK_FRAMES = 400
"""Enough for trio and pytest, and few modules make a chain that is longer."""


def admit(fleet: Fleet, folder: Path, plan: dict[str, dict[str, Any]]) -> None:
    made = [
        staged(folder, name=name, supervision={**STEADY, **supervision})
        for name, supervision in plan.items()
    ]
    fleet.admit(Found(tuple(made)))


def on(*names: str, **supervision: Any) -> dict[str, Any]:
    return {"depends_on": list(names), **supervision}


def waits_for(fleet: Fleet, name: str) -> tuple[str, ...]:
    return fleet.modules[name].waits_for


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_dependants_wait_until_what_they_need_is_ready(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"c": on("a", "b"), "b": on("a"), "a": {}, "z": {}})
    assert stage.names == ["a", "z"]
    assert waits_for(fleet, "c") == ("a", "b")
    stage.of("a").get_ready()
    assert stage.names == ["a", "z", "b"]
    assert waits_for(fleet, "c") == ("b",)
    stage.of("b").get_ready()
    assert stage.names == ["a", "z", "b", "c"]


async def test_a_lazy_module_is_started_by_an_eager_one_that_needs_it(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"start": "lazy"}, "b": on("a"), "c": {"start": "lazy"}})
    assert stage.names == ["a"]
    stage.of("a").get_ready()
    assert stage.names == ["a", "b"]


async def test_a_call_to_a_lazy_module_starts_what_it_needs_first(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"start": "lazy"}, "b": on("a", start="lazy")})
    assert stage.names == []
    one, heard = call()
    fleet.modules["b"].submit(one)
    assert stage.names == ["a"]
    stage.of("a").get_ready()
    stage.of("b").get_ready()
    stage.of("b").answer("served")
    assert len(heard.outcomes) == 1


async def test_the_end_comes_in_reverse_order(fleet: Fleet, stage: Stage, tmp_path: Path) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": on("a"), "c": on("b")})
    for name in "abc":
        stage.of(name).get_ready()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.stop)
        for name in "cba":
            await settle()
            ending = [life.name for life in stage.lives if life.endings]
            assert ending == [one for one in "abc" if one >= name]
            await stage.of(name).die(0)
    assert {module.state for module in fleet.modules.values()} == {State.DOWN}


@pytest.mark.fault(29)
async def test_those_that_wait_at_the_end_are_answered_in_turns_with_one_failure(
    fleet: Fleet, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del stage
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    admit(fleet, tmp_path, {"a": {"queue": 1024}})
    a = fleet.modules["a"]

    def submit(count: int) -> list[Heard]:
        asked = [call() for _ in range(count)]
        for one, _ in asked:
            a.submit(one)
        return [heard for _, heard in asked]

    waiting = submit(100)
    steps, answered = trio.Event(), list[int]()

    async def watch() -> None:
        waiting.extend(submit(1))  # comes in the midst of it
        while not steps.is_set():
            answered.append(sum(len(one.outcomes) for one in waiting))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        with trio.CancelScope() as cancelled:
            cancelled.cancel()
            await fleet.abandon()
        steps.set()
    assert {len(one.outcomes) for one in waiting} == {1}
    failures = [outcome for one in waiting[:100] for outcome in one.outcomes]
    assert all(one is failures[0] for one in failures)
    most = max(after - before for before, after in itertools.pairwise(answered))
    assert most <= 2  # who of the two comes first in a pass of the loop is chance


async def test_nobody_can_start_a_module_again_once_the_end_has_begun(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": {}, "c": {"start": "lazy"}, "d": on("a")})
    stage.of("a").get_ready()
    stage.of("b").get_ready()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.stop)
        await settle()
        for module in fleet.modules.values():
            module.restart("a command")
            module.start("a command")
            changed = staged(tmp_path, name=module.name, description="new")
            module.succession.offer(changed, "its descriptor changed", anew=False)
        # What is up goes down, each after those that depend on it, and the end is not held up.
        for name in ("d", "b", "a"):
            await stage.of(name).die(0)
            await settle()
    assert [life.name for life in stage.lives] == ["a", "b", "d"]
    assert {module.state for module in fleet.modules.values()} == {State.DOWN}


async def test_the_end_does_not_wait_for_what_waits_to_be_tried_again(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": on("a")})
    await stage.of("a").fail_to_spawn()
    assert fleet.modules["a"].state is State.BACKOFF
    await fleet.stop()
    assert stage.names == []


async def test_a_dependency_that_failed_is_the_verdict_on_its_dependants(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"intensity": 0}, "b": on("a"), "c": on("b")})
    b, c = fleet.modules["b"], fleet.modules["c"]
    assert fleet.verdict(c) is None
    await stage.of("a").fail_to_spawn()
    for module in (b, c):
        verdict = fleet.verdict(module)
        assert verdict is not None
        assert verdict.details["waits_for"] == "a"
        assert "no such program" in verdict.message
        assert verdict.message.startswith(f"{module.name} waits for a: a failed too often")


async def test_a_call_to_a_module_whose_dependency_failed_is_refused_at_once_with_the_cause(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"intensity": 0}, "b": on("a")})
    await stage.of("a").fail_to_spawn()
    one, heard = call()
    fleet.modules["b"].submit(one)
    (outcome,) = heard.outcomes
    assert isinstance(outcome, Failure)
    assert (outcome.details["reason"], outcome.details["waits_for"]) == ("not_ready", "a")


async def test_a_module_that_may_still_get_ready_has_no_final_verdict(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {}})
    a = fleet.modules["a"]
    await stage.of("a").fail_to_spawn()
    assert fleet.verdict(a) is not None
    assert fleet.verdict(a, final=True) is None
    a.stop("the test")
    assert fleet.verdict(a, final=True) is not None


async def test_a_dependency_that_recovers_brings_its_dependants_up(
    fleet: Fleet, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": on("a")})
    await stage.of("a").fail_to_spawn()
    mock_clock.jump(4)
    await settle()
    stage.of("a").get_ready()
    assert stage.names == ["a", "b"]


async def test_a_dependency_that_an_operator_stopped_stays_stopped(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"start": "lazy"}, "b": on("a", start="lazy")})
    fleet.modules["a"].stop("a command")
    fleet.modules["b"].start("a command")
    assert stage.names == []
    assert fleet.verdict(fleet.modules["b"]) is not None


async def test_a_dependency_that_ended_for_good_is_not_started_again_and_again(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {"restart": "temporary"}, "b": on("a")})
    await stage.of("a").die(0)
    await settle()
    assert len(stage.lives) == 1
    verdict = fleet.verdict(fleet.modules["b"])
    assert verdict is not None
    assert verdict.details["waits_for"] == "a"


async def test_a_dependant_outlives_the_crash_of_what_it_needed_to_start(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": on("a")})
    stage.of("a").get_ready()
    stage.of("b").get_ready()
    await stage.of("a").die()
    assert fleet.modules["b"].state is State.READY


@pytest.fixture
def stack() -> Iterator[int]:
    """Have a stack that is not as long as Python's; returns how many frames it takes."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(STACK_FRAMES)
    yield STACK_FRAMES
    sys.setrecursionlimit(limit)


async def test_a_chain_longer_than_pythons_stack_is_no_recursion(
    fleet: Fleet, stage: Stage, tmp_path: Path, stack: int
) -> None:
    lazy = {"start": "lazy", "intensity": 0}
    length = stack + 100
    chain = {f"m{n}": on(f"m{n + 1}", **lazy) for n in range(length)}
    admit(fleet, tmp_path, {**chain, f"m{length}": lazy})
    fleet.modules["m0"].start("the test")
    assert stage.names == [f"m{length}"]
    assert fleet.verdict(fleet.modules["m0"]) is None
    await stage.life.fail_to_spawn()
    verdict = fleet.verdict(fleet.modules["m0"])
    assert verdict is not None
    assert verdict.details["waits_for"] == f"m{length}"


async def test_hurrying_reaches_every_life(fleet: Fleet, stage: Stage, tmp_path: Path) -> None:
    admit(fleet, tmp_path, {"a": {}, "b": {}})
    stage.of("a").get_ready()
    fleet.hurry()
    assert all(life.hurried for life in stage.lives)


async def test_what_was_quarantined_is_kept_for_status(fleet: Fleet, tmp_path: Path) -> None:
    bad = QuarantinedFile("/x.json", "is empty")
    fleet.admit(Found((), (bad,)))
    assert fleet.quarantined == (bad,)


# Those that run while what they depend on goes away.


def told(fleet: Fleet, name: str) -> list[str]:
    """Return the host's lines in a module's log from now on."""
    lines: list[str] = []
    fleet.modules[name].log.follow(
        lambda line: lines.append(line.text) if "depends" in line.text else None
    )
    return lines


def missing(fleet: Fleet, name: str) -> list[str]:
    shown: list[str] = module_status(fleet.modules[name])["missing"]
    return shown


async def test_a_dependant_that_runs_is_told_what_became_of_what_it_depends_on(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"kv": {}, "shop": on("kv"), "late": on("shop", "kv"), "other": {}})
    for name in ("kv", "shop", "other"):
        stage.of(name).get_ready()
    lines = {name: told(fleet, name) for name in ("shop", "late", "other")}
    shop = stage.of("shop")
    await stage.of("kv").die(code=None, signal=9)
    assert (missing(fleet, "shop"), missing(fleet, "other")) == (["kv"], [])
    stage.of("kv").get_ready()
    assert missing(fleet, "shop") == []
    await stage.of("kv").die(code=None, signal=9)
    expected = [
        "kv, which it depends on, went from ready to starting: was killed by SIGKILL",
        "kv, which it depends on, went from starting to ready: answered health and describe",
        "kv, which it depends on, went from ready to backoff: was killed by SIGKILL",
    ]
    # `late` is starting since `shop` is ready, so it is told too.
    assert lines == {"shop": expected, "late": expected, "other": []}
    assert missing(fleet, "shop") == ["kv"]
    assert stage.of("shop") is shop  # it is not restarted
    assert not shop.gone


async def test_a_dependant_that_waits_is_not_told(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"kv": {}, "shop": on("kv")})
    lines = told(fleet, "shop")
    await stage.of("kv").fail_to_spawn()
    assert lines == []
    assert waits_for(fleet, "shop") == ("kv",)
    assert missing(fleet, "shop") == []


async def test_a_dependant_is_told_of_a_restart_and_of_a_stop(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"kv": {}, "shop": on("kv")})
    stage.of("kv").get_ready()
    stage.of("shop").get_ready()
    lines = told(fleet, "shop")
    fleet.modules["kv"].restart("restart was asked for")
    assert lines == ["kv, which it depends on, went from ready to stopping: restart was asked for"]
    await stage.of("kv").die(code=0)
    stage.of("kv").get_ready()
    fleet.modules["kv"].stop("stop was asked for")
    await stage.of("kv").die(code=0)
    assert [line.partition(" went ")[2] for line in lines[1:]] == [
        "from starting to ready: answered health and describe",
        "from ready to stopping: stop was asked for",
        "from stopping to down: exited with code 0",
    ]
    assert missing(fleet, "shop") == ["kv"]


async def test_at_the_daemons_end_nobody_is_told(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"kv": {}, "shop": on("kv")})
    stage.of("kv").get_ready()
    stage.of("shop").get_ready()
    lines = told(fleet, "shop")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.stop)
        await settle()
        await stage.of("shop").die(code=0)
        await stage.of("kv").die(code=0)
    assert lines == []


async def test_a_module_that_waits_starts_when_it_depends_on_nothing_any_more(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    admit(fleet, tmp_path, {"kv": {}, "shop": on("kv")})
    assert stage.names == ["kv"]
    free = staged(tmp_path, name="shop", supervision=STEADY)
    await fleet.apply(
        ReloadPlan(changed=(Changed(free),), unchanged=(fleet.modules["kv"].descriptor,))
    )
    await settle()
    assert stage.names == ["kv", "shop"]


@pytest.mark.fault(29)
async def test_a_reload_of_many_leaves_others_their_turns_and_holds_dependants_back(
    fleet: Fleet, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"m{number}" for number in range(20)]
    plan = {"shop": on("kv"), "kv": {}, **{name: {} for name in many}}
    admit(fleet, tmp_path, plan)
    for name in ("kv", "shop", *many):
        stage.of(name).get_ready()
    before, rounds = len(stage.names), 0
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each module is a turn of its own
    changed = [
        staged(tmp_path, name=name, description="new", supervision={**STEADY, **supervision})
        for name, supervision in plan.items()
    ]

    async def neighbour() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        await fleet.apply(ReloadPlan(changed=tuple(map(Changed, changed))))
        nursery.cancel_scope.cancel()
    await settle()
    assert rounds >= len(changed) // 2  # who of the two comes first in a turn is chance
    assert stage.names[before:] == ["kv", *many]
    stage.of("kv").get_ready()
    await settle()
    assert stage.names[-1] == "shop"


async def test_a_log_that_cannot_be_written_is_an_error_until_its_module_is_gone(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    files = fleet._host.log_files
    files.path("a").mkdir(parents=True)
    admit(fleet, tmp_path, {"a": {}})
    stage.of("a").get_ready()
    module = fleet.modules["a"]
    await module.log.last_lines(1)
    assert files.last_error is not None
    await fleet.apply(ReloadPlan(removed=(module.descriptor,)))
    await settle()
    await stage.of("a").die(0)
    await settle()
    assert not fleet.leaving
    await module.log.last_lines(1)
    assert files.last_error is None
