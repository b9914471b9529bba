"""The lives of a worker, with fakes and a virtual clock."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Failure
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.module import Module
from tests.factories import call
from tests.runtime.conftest import Running
from tests.runtime.fakes import Stage, staged

Clock = trio.testing.MockClock
STEADY = {"backoff": {"initial_s": 1, "factor": 2, "max_s": 8, "jitter": 0}, "retry_failed_s": 300}


def state(module: Module) -> State:
    return module.workers[0].state


async def pass_time(clock: Clock, seconds: float) -> None:
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


def started(running: Running, folder: Path, **supervision: Any) -> Module:
    module = running(staged(folder, supervision={**STEADY, **supervision}))
    module.start("the test")
    return module


@pytest.mark.fault(11)
async def test_a_crash_after_health_restarts_at_once_then_later_and_later(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path, intensity=10)
    stage.life.get_ready()
    await stage.life.die()
    assert (state(module), module.restarts, len(stage.lives)) == (State.STARTING, 1, 2)
    for delay_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        stage.life.get_ready()
        await stage.life.die()
        assert state(module) is State.BACKOFF
        assert module.next_retry_s == delay_s
        assert stage.alive == []
        await pass_time(mock_clock, delay_s)
        assert state(module) is State.STARTING
        assert module.next_retry_s is None
    assert module.restarts == 6


async def test_a_first_start_that_fails_waits_before_the_next(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path)
    await stage.life.fail_to_spawn()
    assert (state(module), module.next_retry_s) == (State.BACKOFF, 1.0)
    assert module.last_exit is not None
    assert module.last_exit.reason == "spawn_failed"
    await pass_time(mock_clock, 1)
    stage.life.get_ready()
    assert state(module) is State.READY


async def test_too_many_crashes_are_a_failure_that_is_tried_again_half_open(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path, intensity=2)
    for delay_s in (1, 2):
        await stage.life.fail_to_spawn()
        await pass_time(mock_clock, delay_s)
    await stage.life.fail_to_spawn()
    assert (state(module), module.next_retry_s) == (State.FAILED, 300.0)
    await pass_time(mock_clock, 300)
    assert state(module) is State.STARTING
    stage.life.get_ready()
    await stage.life.die()  # one try, not a fresh budget
    assert (state(module), module.next_retry_s) == (State.FAILED, 300.0)


@pytest.mark.fault(11)
async def test_sustained_health_forgets_the_crashes_before(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path, intensity=1)
    stage.life.get_ready()
    for _ in range(5):
        await pass_time(mock_clock, 60)
        await stage.life.die()
        assert state(module) is State.STARTING  # at once, as if it were the first
        stage.life.get_ready()


@pytest.mark.fault(11)
async def test_health_that_was_interrupted_is_not_sustained(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path, intensity=5, period_s=100)
    stage.life.get_ready()
    await stage.life.die()
    stage.life.get_ready()
    await pass_time(mock_clock, 60)
    stage.life.probe(well=False)
    assert state(module) is State.DEGRADED
    stage.life.probe(well=True)
    assert state(module) is State.READY
    await pass_time(mock_clock, 60)
    await stage.life.die()
    assert state(module) is State.BACKOFF


async def test_one_that_needs_replacement_is_ended_abruptly_and_counts_as_a_crash(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    stage.life.get_ready()
    stage.life.need_replacement()
    assert (state(module), stage.life.endings) == (State.STOPPING, [True])
    await stage.life.die(code=0)
    assert module.last_exit is not None
    assert module.last_exit.reason == "replaced"
    assert module.last_exit.message == "closed its stdout"
    assert state(module) is State.STARTING


@pytest.mark.parametrize(
    ("restart", "code", "comes_back"),
    [
        ("permanent", 0, True),
        ("permanent", 1, True),
        ("transient", 0, False),
        ("transient", 1, True),
        ("temporary", 0, False),
        ("temporary", 1, False),
    ],
)
async def test_restart_types_are_those_of_otp(
    running: Running, stage: Stage, tmp_path: Path, *, restart: str, code: int, comes_back: bool
) -> None:
    module = started(running, tmp_path, restart=restart)
    stage.life.get_ready()
    await stage.life.die(code)
    assert state(module) is (State.STARTING if comes_back else State.DOWN)
    assert module.workers[0].is_wanted is comes_back


@pytest.mark.fault(12)
async def test_what_a_former_life_reports_changes_nothing(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    former = stage.life
    former.get_ready()
    await former.die()
    current = stage.life
    assert current is not former
    before = list(running.states)
    former.get_ready()
    former.probe(well=False)
    former.need_replacement()
    former.fail_to_start()
    former._owner.capacity_freed(former)
    assert running.states == before
    assert current.endings == []
    assert state(module) is State.STARTING
    current.get_ready()
    assert state(module) is State.READY


async def test_a_stop_while_it_waits_to_try_again_disarms_the_timer(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock
) -> None:
    module = started(running, tmp_path)
    await stage.life.fail_to_spawn()
    module.stop("the test")
    assert (state(module), module.next_retry_s) == (State.DOWN, None)
    await pass_time(mock_clock, 1000)
    assert (state(module), len(stage.lives)) == (State.DOWN, 1)


@pytest.mark.parametrize("intensity", [0, 5])
async def test_a_start_while_it_waits_tries_at_once_and_only_once(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock, *, intensity: int
) -> None:
    module = started(running, tmp_path, intensity=intensity)
    await stage.life.fail_to_spawn()
    assert state(module) is (State.BACKOFF if intensity else State.FAILED)
    module.start("the test")
    module.start("the test")
    assert (state(module), len(stage.lives)) == (State.STARTING, 2)
    await pass_time(mock_clock, 1000)
    assert len(stage.lives) == 2


async def test_a_start_that_fails_while_it_still_lives_is_ended_first(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    stage.life.fail_to_start()
    assert (state(module), stage.life.endings) == (State.STOPPING, [True])
    await stage.life.die(None, 15)
    assert state(module) is State.BACKOFF
    assert module.last_exit is not None
    assert (module.last_exit.reason, module.last_exit.exit.signal) == (
        "start_deadline",
        15,
    )


async def test_a_restart_waits_for_the_end_of_the_one_before(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    stage.life.get_ready()
    module.restart("the test")
    assert (state(module), stage.life.endings, len(stage.lives)) == (State.STOPPING, [False], 1)
    await stage.life.die(0)
    assert (state(module), len(stage.lives), module.restarts) == (State.STARTING, 2, 0)
    assert module.last_exit is not None
    assert module.last_exit.reason == "stopped"


async def test_of_a_crash_and_a_restart_by_hand_only_the_crash_counts(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    await stage.life.die(1)
    assert (state(module), module.restarts) == (State.BACKOFF, 0)
    module.restart("the test")
    assert (state(module), module.restarts) == (State.STARTING, 1)
    stage.life.get_ready()
    module.restart("the test")
    await stage.life.die(0)
    assert (state(module), module.restarts) == (State.STARTING, 1)


async def test_a_start_during_a_stop_comes_back_and_a_stop_during_a_restart_does_not(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path)
    stage.life.get_ready()
    module.stop("the test")
    module.start("the test")
    await stage.life.die(0)
    assert state(module) is State.STARTING
    module.restart("the test")
    module.stop("the test")
    await stage.life.die(0)
    assert (state(module), stage.alive) == (State.DOWN, [])


@pytest.mark.fault(12)
@pytest.mark.parametrize("seed", range(20))
async def test_commands_and_deaths_in_any_order_leave_one_life_at_the_most(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: Clock, seed: int
) -> None:
    chance = random.Random(seed)
    module = running(staged(tmp_path, supervision={**STEADY, "intensity": 3}))
    for _ in range(100):
        living = [life for life in stage.lives if not life.gone]
        assert len(living) <= 1
        assert (module.workers[0].life is not None) == bool(living)
        match chance.randrange(9):
            case 0 | 1:
                module.start("the test")
            case 2:
                module.stop("the test")
            case 3:
                module.restart("the test")
            case 4 if state(module) is State.STARTING:
                stage.life.get_ready()
            case 5 if state(module) is State.STARTING:
                stage.life.fail_to_start()
            case 6 if state(module) in (State.READY, State.DEGRADED):
                stage.life.probe(well=chance.random() < 0.5)
            case 7 if living:
                await stage.life.die(chance.randrange(2))
            case _:
                await pass_time(mock_clock, chance.choice([0, 1, 10, 400]))
    module.stop("the end")
    if not stage.life.gone:
        await stage.life.die(0)
    assert (state(module), stage.alive) == (State.DOWN, [])


# restart_on, never_on.


async def test_an_end_that_restart_on_names_is_restarted_whatever_the_restart_type(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path, restart="temporary", restart_on=[75, "SIGKILL"])
    stage.life.get_ready()
    await stage.life.die(code=75)
    assert (state(module), module.restarts) == (State.STARTING, 1)
    stage.life.get_ready()
    await stage.life.die(code=None, signal=9)
    assert state(module) is State.BACKOFF


async def test_an_end_that_never_on_names_is_the_last_and_says_so(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path, never_on=["SIGKILL", 78])
    stage.life.get_ready()
    await stage.life.die(code=78)
    assert (state(module), module.workers[0].is_wanted, stage.alive) == (State.DOWN, False, [])
    died = module.last_exit
    assert died is not None
    assert (died.reason, died.exit.exit_code, died.rule) == (
        "exited",
        78,
        "/supervision/never_on/1",
    )
    words = "exited with code 78 and is not restarted: its supervision.never_on has 78"
    assert died.message == words
    one, heard = call()
    module.submit(one)
    (refusal,) = heard.outcomes
    assert isinstance(refusal, Failure)
    assert refusal.message == f"m is stopped: it {words}; `stdiod start m` starts it"
    assert refusal.details["rule"] == "/supervision/never_on/1"
    module.start("a person")
    stage.life.get_ready()
    await stage.life.die(code=1)
    assert state(module) is State.STARTING
    assert module.last_exit is not None
    assert module.last_exit.rule is None


async def test_a_request_does_not_wake_a_lazy_module_that_never_on_keeps_down(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path, start="lazy", never_on=[78])
    stage.life.get_ready()
    await stage.life.die(code=78)
    one, heard = call()
    module.submit(one)
    assert (len(heard.outcomes), state(module)) == (1, State.DOWN)
    changed = staged(tmp_path, supervision={**STEADY, "start": "lazy"})
    module.succession.offer(changed, "its descriptor changed", anew=False)
    module.submit(call()[0])
    assert state(module) is State.STARTING


async def test_a_replacement_is_no_end_that_never_on_names(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    module = started(running, tmp_path, never_on=["SIGTERM"])
    stage.life.get_ready()
    stage.life.need_replacement()
    await stage.life.die(code=None, signal=15)
    assert state(module) is State.STARTING
