"""What is waited for has a bound, and what the machine keeps from running has more time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.cli.checking import answer
from supervisor.conformance.trial import KEPT_FOR, PATIENCE, Timing, Trial, TrialHost
from supervisor.policy.capabilities import Policy
from supervisor.runtime.containment import procfs
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.host import Host
from tests.factories import actor

NOWHERE = Path("/nonexistent")

IDLE, BUSY = 0.0, 1.0
"""The part of its time in which a machine keeps a process from running."""


@pytest.mark.parametrize(
    ("machine", "times_s", "timing"),
    [
        (IDLE, (0.9, 0.9), Timing.IN_TIME),
        (IDLE, (1.9, 1.9), Timing.LATE),
        (IDLE, (2.1, PATIENCE), Timing.NEVER),
        (BUSY, (9.9, 9.9), Timing.IN_TIME),
        (BUSY, (99.0, PATIENCE + KEPT_FOR), Timing.NEVER),
    ],
)
async def test_what_a_busy_machine_keeps_from_running_has_more_time(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    machine: float,
    times_s: tuple[float, float],
    timing: Timing,
) -> None:
    del autojump_clock
    comes_after_s, ends_after_s = times_s
    began = trio.current_time()
    monkeypatch.setattr(procfs, "run_delay_s", lambda _: machine * (trio.current_time() - began))
    place = TrialHost(Host({}, LogFiles(NOWHERE)), partial(answer, Policy()))
    trial = Trial(actor(NOWHERE), place, {}, lambda: "id")
    came = trio.Event()

    async def come() -> None:
        await trio.sleep(comes_after_s)
        came.set()
        trial.receive([])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come)
        assert await trial.until(came.is_set, 1.0) is timing
        assert trio.current_time() - began == pytest.approx(ends_after_s)
        nursery.cancel_scope.cancel()
