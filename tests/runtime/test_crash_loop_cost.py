"""What a crash loop costs the daemon, counted in spawns and in wake-ups and not in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from supervisor.policy.lifecycle import State
from tests.runtime.conftest import Running
from tests.runtime.fakes import FakeLife, Stage, staged

HOUR_S = 3600.0


class Steps(trio.abc.Instrument):
    """Counts how often any task is woken."""

    def __init__(self) -> None:
        self.number = 0

    def before_task_step(self, task: Any) -> None:
        self.number += 1


@pytest.mark.fault(10, 11)
@pytest.mark.parametrize("gets_ready", [False, True])
async def test_an_hour_of_crashes_costs_few_spawns_and_few_wake_ups(
    running: Running,
    stage: Stage,
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
    gets_ready: bool,
) -> None:
    module = running(staged(tmp_path))  # with everything at its default
    module.start("the test")
    crashed: FakeLife | None = None
    steps, until = Steps(), trio.current_time() + HOUR_S
    trio.lowlevel.add_instrument(steps)
    spent = 0
    while trio.current_time() < until:
        if stage.life is not crashed:
            crashed = stage.life
            if gets_ready:
                crashed.get_ready()
            await crashed.die()
            continue
        assert module.state in (State.BACKOFF, State.FAILED)
        assert module.next_retry_s
        mock_clock.jump(module.next_retry_s)
        before = steps.number
        await trio.testing.wait_all_tasks_blocked()
        spent += steps.number - before
    # Six within the first minute (docs/descriptor.md: 5 in 60 s), then one every 300 s.
    assert len(stage.lives) <= 6 + HOUR_S / 300 + 1
    assert State.FAILED in running.states
    # Each retry wakes a handful of tasks; nothing polls meanwhile.
    assert spent <= 20 * len(stage.lives)


@pytest.mark.fault(10)
async def test_nothing_runs_while_a_module_waits_to_be_tried_again(
    running: Running, stage: Stage, tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    module = running(staged(tmp_path, supervision={"intensity": 0}))
    module.start("the test")
    await stage.life.die()
    assert module.state is State.FAILED
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    for _ in range(299):
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
    # This task is woken once per second of the test's making, and no other one.
    assert steps.number <= 2 * 299
    assert len(stage.lives) == 1


@pytest.mark.fault(10)
async def test_modules_that_crash_together_do_not_come_back_together(
    running: Running, stage: Stage, tmp_path: Path
) -> None:
    waits = set()
    for draw in (0.0, 0.25, 0.5, 0.75):
        running.host.draw = lambda draw=draw: draw  # type: ignore[misc]
        module = running(staged(tmp_path))
        module.start("the test")
        await stage.life.die()
        waits.add(module.next_retry_s)
    assert len(waits) == 4
