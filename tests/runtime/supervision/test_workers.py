"""A module with several instances, with fake lives and a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
import trio.testing

from protocol.errors import Failure, Success
from protocol.replies import Operation
from supervisor.kernel.status import module_status
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module
from tests.factories import Heard, call
from tests.runtime.conftest import Running
from tests.runtime.fakes import FakeLife, Stage, staged
from tests.runtime.supervision.test_fleet import admit, on

Clock = trio.testing.MockClock
STEADY = {"backoff": {"initial_s": 4, "factor": 2, "jitter": 0}}


def up(running: Running, folder: Path, stage: Stage, **instances: Any) -> Module:
    """Return a module that has started, its first lives ready."""
    module = running(staged(folder, supervision={**STEADY, "instances": instances}))
    module.start("the test")
    for life in stage.lives:
        life.get_ready()
    return module


def submit(module: Module, count: int) -> list[Heard]:
    heard = []
    for _ in range(count):
        one, who = call()
        module.submit(one)
        heard.append(who)
    return heard


async def pass_time(clock: Clock, seconds: float) -> None:
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


def loads(stage: Stage) -> list[int]:
    return [len(life.calls) for life in stage.lives if not life.gone]


async def test_it_starts_min_processes_and_gives_each_call_to_the_least_loaded(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    document = {"instances": {"min": 3, "max": 3}, "concurrency": 2}
    module = running(staged(tmp_path, supervision=document))
    module.start("the test")
    assert stage.alive == ["m#1", "m#2", "m#3"]
    for life in stage.lives:
        life.get_ready()
    submit(module, 4)
    assert loads(stage) == [2, 1, 1]
    stage.lives[0].answer()
    stage.lives[0].answer()
    submit(module, 1)
    assert loads(stage) == [1, 1, 1]
    submit(module, 9)
    assert (loads(stage), module.queued) == ([2, 2, 2], 6)


async def test_one_that_missed_a_probe_is_the_last_to_get_a_call(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, tmp_path, stage, min=2, max=2)
    stage.lives[0].probe(well=False)
    assert module.state is State.DEGRADED
    submit(module, 1)
    assert loads(stage) == [0, 1]


async def test_it_grows_once_a_call_has_waited_while_all_are_full(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, max=4)
    submit(module, 3)
    await pass_time(mock_clock, 0.09)
    assert len(stage.alive) == 1
    await pass_time(mock_clock, 0.02)
    assert len(stage.alive) == 3  # two wait
    submit(module, 9)
    await pass_time(mock_clock, 1)
    assert len(stage.alive) == 4  # and that is max
    for life in stage.lives[1:]:
        life.get_ready()
    assert loads(stage) == [1, 1, 1, 1]


async def test_a_call_that_is_served_in_time_makes_nothing_grow(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, max=4)
    for _ in range(20):
        submit(module, 2)
        await pass_time(mock_clock, 0.04)
        stage.life.answer()
        stage.life.answer()
    assert len(stage.lives) == 1


async def test_one_that_is_stopped_is_not_degraded_on_its_way(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, tmp_path, stage, min=3, max=3)
    assert module.state is State.READY
    lines: list[str] = []
    module.log.follow(lambda line: lines.append(line.text))
    module.stop("the test")
    moves = [line for line in lines if not line.startswith("this instance")]
    assert moves == ["ready -> stopping: the test"]


async def test_what_is_idle_is_stopped_down_to_min(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, max=3, idle_stop_s=10)
    submit(module, 3)
    await pass_time(mock_clock, 0.2)
    for life in stage.lives[1:]:
        life.get_ready()
    for life in stage.lives[:2]:
        life.answer()
    await pass_time(mock_clock, 11)
    assert [life.endings for life in stage.lives] == [[False], [False], []]
    for life in stage.lives[:2]:
        await life.die(0)
    assert (module.state, module.restarts) == (State.READY, 0)
    stage.lives[2].answer()
    await pass_time(mock_clock, 100)
    assert stage.alive == ["m#3"]


async def test_with_min_0_the_last_is_stopped_too_and_a_request_starts_it_again(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, min=0, idle_stop_s=10)
    await pass_time(mock_clock, 11)
    assert module.state is State.STOPPING
    (early,) = submit(module, 1)  # while it stops
    await stage.life.die(0)
    stage.life.get_ready()
    stage.life.answer("early")
    assert early.outcomes == [Success("early")]
    await pass_time(mock_clock, 11)
    await stage.life.die(0)
    assert (module_status(module)["state"], stage.alive) == ("down", [])
    (late,) = submit(module, 1)
    stage.life.get_ready()
    stage.life.answer("late")
    assert late.outcomes == [Success("late")]
    module.stop("the test")
    await stage.life.die(0)
    (refused,) = submit(module, 1)
    assert isinstance(refused.outcomes[0], Failure)


async def test_what_a_running_module_depends_on_is_not_stopped_for_being_idle(
    fleet: Fleet, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    admit(
        fleet,
        tmp_path,
        {"kv": {"instances": {"min": 0, "idle_stop_s": 10}}, "user": on("kv", start="lazy")},
    )
    stage.life.get_ready()
    await pass_time(mock_clock, 11)
    await stage.life.die(0)
    assert stage.alive == []
    fleet.modules["user"].start("the test")
    stage.of("kv").get_ready()
    stage.of("user").get_ready()
    await pass_time(mock_clock, 100)
    assert stage.of("kv").endings == []
    fleet.modules["user"].stop("the test")
    await stage.of("user").die(0)
    await pass_time(mock_clock, 11)
    assert stage.of("kv").endings == [False]


async def test_after_max_requests_a_successor_gets_ready_before_the_old_one_leaves(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, tmp_path, stage, max_requests=2)
    old = stage.life
    for _ in range(2):
        submit(module, 1)
        old.answer()
    assert stage.alive == ["m#1", "m#2"]
    submit(module, 1)
    assert loads(stage) == [1, 0]  # it still serves
    stage.life.get_ready()
    assert old.endings == []  # a call is in flight
    waiting = submit(module, 1)
    assert loads(stage) == [1, 1]
    old.answer()
    assert (old.endings, old.cut) == ([False], [])
    await old.die(0)
    stage.life.answer()
    assert (module.state, module.restarts, stage.alive) == (State.READY, 0, ["m#2"])
    assert isinstance(waiting[0].outcomes[0], Success)


async def test_at_max_age_they_are_renewed_one_after_the_other(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    up(running, tmp_path, stage, min=2, max=2, max_age_s=60)
    await pass_time(mock_clock, 61)
    assert stage.alive == ["m#1", "m#2", "m#3"]
    stage.life.get_ready()
    await stage.lives[0].die(0)
    assert stage.alive == ["m#2", "m#3", "m#4"]


async def test_a_successor_that_does_not_start_leaves_the_old_one_serving(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, max_age_s=60)
    await pass_time(mock_clock, 61)
    await stage.life.fail_to_spawn()
    assert (module.state, module.next_retry_s) == (State.READY, 4)
    submit(module, 1)
    stage.lives[0].answer()
    await pass_time(mock_clock, 5)
    stage.life.get_ready()
    assert stage.lives[0].endings == [False]


async def test_a_crash_takes_one_slot_and_the_module_is_degraded_below_min(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = up(running, tmp_path, stage, min=2, max=2)
    await stage.lives[0].die()
    assert stage.alive == ["m#2", "m#3"]  # at once, as for a module of its own
    await stage.life.die()
    assert (module.state, module.restarts) == (State.DEGRADED, 1)
    assert module.last_exit is not None
    entry = module_status(module)
    assert [one["id"] for one in entry["instances"]] == ["m#2"]
    assert entry["next_retry_s"] == 4
    waiting = submit(module, 2)
    stage.lives[1].answer()
    stage.lives[1].answer()
    assert all(isinstance(one.outcomes[0], Success) for one in waiting)
    await pass_time(mock_clock, 4)
    stage.life.get_ready()
    assert module.state is State.READY


async def test_a_command_is_for_all_of_them(running: Running, stage: Stage, tmp_path: Path) -> None:
    module = up(running, tmp_path, stage, min=2, max=2)
    module.restart("the test")
    assert [life.endings for life in stage.lives] == [[False], [False]]
    waiting = submit(module, 1)
    for life in tuple(stage.lives):
        await life.die(0)
    assert stage.alive == ["m#3", "m#4"]
    for life in stage.lives[2:]:
        life.get_ready()
    stage.lives[2].answer()
    assert isinstance(waiting[0].outcomes[0], Success)
    module.stop("the test")
    for life in stage.lives[2:]:
        await life.die(0)
    assert (module.state, stage.alive) == (State.DOWN, [])


async def test_a_reload_changes_the_number_of_instances(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = up(running, tmp_path, stage, min=2, max=3)
    before = tuple(stage.lives)
    fewer = staged(tmp_path, supervision={"instances": {"min": 1, "max": 1}})
    module.succession.offer(fewer, "the test", anew=False)
    stage.life.get_ready()
    for life in before:
        await life.die(0)
    assert (stage.alive, len(module.workers)) == (["m#3"], 1)
    more = staged(tmp_path, supervision={"instances": {"min": 2, "max": 2}})
    module.succession.offer(more, "the test", anew=False)
    assert stage.alive == ["m#3", "m#4", "m#5"]
    stage.life.get_ready()
    assert stage.lives[2].endings == []  # the other one is not ready yet
    stage.lives[3].get_ready()
    assert stage.lives[2].endings == [False]


class Unwell(FakeLife):
    async def ask(self, operation: Operation, timeout_s: float) -> Success:
        return Success({"status": "unavailable"})


async def test_health_is_that_of_the_worst(running: Running, stage: Stage, tmp_path: Path) -> None:
    module = up(running, tmp_path, stage, min=3, max=3)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    stage.lives[1].__class__ = Unwell
    assert await module.ask(Operation.HEALTH) == Success({"status": "unavailable"})


async def test_a_storm_of_starts_is_a_few_at_a_time_and_dependencies_come_first(
    fleet: Fleet, stage: Stage, tmp_path: Path
) -> None:
    names = [f"leaf-{number}" for number in range(40)]
    admit(fleet, tmp_path, {**{name: {} for name in names}, "kv": {}, "last": on("kv")})
    await trio.testing.wait_all_tasks_blocked()
    begun = [life.name for life in stage.lives if life.begun]
    assert (len(begun), begun[0]) == (32, "kv")
    stage.of("kv").get_ready()
    await trio.testing.wait_all_tasks_blocked()
    assert sum(life.begun for life in stage.lives) == 33
    fleet.modules["leaf-39"].stop("the test")  # before its turn
    await trio.testing.wait_all_tasks_blocked()
    assert fleet.modules["leaf-39"].state is State.DOWN
    assert not stage.of("leaf-39").begun
