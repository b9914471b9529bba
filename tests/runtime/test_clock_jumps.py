"""The wall clock may jump as it likes: it makes stamps, and nothing waits by it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.policy.lifecycle import State
from tests.runtime.conftest import Running
from tests.runtime.fakes import Stage, staged

DAY_S = 86_400.0
STEADY = {"backoff": {"initial_s": 10, "factor": 1, "max_s": 10, "jitter": 0}, "intensity": 100}


@pytest.mark.fault(23)
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_jump_of_a_day_moves_stamps_and_no_timer(
    running: Running,
    stage: Stage,
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
    jump_s: float,
) -> None:
    wall_s = 1_000_000.0
    running.host.wall_clock = lambda: wall_s
    module = running(staged(tmp_path, supervision=STEADY))
    module.start("the test")
    stage.life.get_ready()
    await stage.life.die()  # again at once
    stage.life.get_ready()
    await stage.life.die()
    assert (module.state, module.next_retry_s) == (State.BACKOFF, 10)

    wall_s += jump_s
    await trio.testing.wait_all_tasks_blocked()
    assert (module.state, module.next_retry_s) == (State.BACKOFF, 10)
    mock_clock.jump(9.5)
    await trio.testing.wait_all_tasks_blocked()
    assert (module.state, len(stage.lives)) == (State.BACKOFF, 2)
    mock_clock.jump(0.5)
    await trio.testing.wait_all_tasks_blocked()
    assert (module.state, len(stage.lives)) == (State.STARTING, 3)

    # Neither is a day of sustained health made of it, nor are the crashes forgotten.
    stage.life.get_ready()
    wall_s += jump_s
    await stage.life.die()
    assert (module.state, len(stage.lives)) == (State.BACKOFF, 3)
    assert module.last_exit is not None
    assert module.last_exit.ts == wall_s
