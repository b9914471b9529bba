"""What a daemon does while nobody wants anything of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.runtime.supervision.health import TICKS
from tests import factories
from tests.budget.conftest import assert_within
from tests.budget.fake_process import FakeProcess, without_processes
from tests.budget.turns import Turns, taking_turns
from tests.kernel.conftest import daemon_with

INTERVAL_S = 10.0
INTERVALS = 100
MODULES = 20
MANY = 40
MOMENTS = 20


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    with taking_turns() as made:
        yield made


async def test_a_health_check_costs_a_wake_up_and_an_answer(
    tmp_path: Path,
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: trio.testing.MockClock,
) -> None:
    processes = without_processes(turns, monkeypatch)
    # In the middle between two jumps of the clock: no check is due while an answer is waited for.
    checked = {"health": {"interval_s": INTERVAL_S}}
    made = factories.descriptor(tmp_path, ["true"], supervision=checked)
    async with daemon_with(tmp_path, made, draw=lambda: 0.5):
        module = processes["m"]
        before = module.answered
        with turns.counting(monkeypatch) as counts:
            for _ in range(INTERVALS):
                turned = module.turned
                mock_clock.jump(INTERVAL_S)
                await turned.wait()
                await trio.testing.wait_all_tasks_blocked()  # the answer is read
            counted = Counter(counts)
        assert module.answered - before == INTERVALS
    # The deadlines wake up and write; the reader reads, and looks for more. The look at the data
    # directory, which is due as well, wakes up, takes a thread and hears of it; the rest is ours.
    each = {"writes": 1, "reads": 2, "steps": 3 + 3 + 2, "passes": 3 + 2 + 1}
    assert_within(counted, INTERVALS, each)


async def test_an_idle_daemon_wakes_up_at_the_shared_moments_and_at_no_other_time(
    tmp_path: Path,
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: trio.testing.MockClock,
) -> None:
    without_processes(turns, monkeypatch)
    checked = {"health": {"interval_s": INTERVAL_S}}
    modules = [
        factories.descriptor(tmp_path, ["true"], name=f"m{number}", supervision=checked)
        for number in range(MODULES)
    ]
    async with daemon_with(tmp_path, *modules) as daemon:
        await trio.testing.wait_all_tasks_blocked()
        due: set[float] = set()
        # Whatever the phases are: each deadline there is lies at one of the moments.
        for at, _, timer in daemon.fleet._host.deadlines._heap:
            if timer.action is not None:  # a cancelled one wakes nobody
                due.add(at / INTERVAL_S * TICKS)
        assert 0 < len(due) <= MODULES
        assert due == {float(round(moment)) for moment in due}
        statistics = trio.lowlevel.current_statistics()
        assert statistics.seconds_to_next_deadline <= INTERVAL_S


async def test_a_round_of_checks_wakes_the_daemon_at_few_moments_however_many_modules_there_are(
    tmp_path: Path,
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: trio.testing.MockClock,
) -> None:
    processes = without_processes(turns, monkeypatch)
    phases = itertools.cycle(number / MANY for number in range(MANY))
    drawn = itertools.chain([0.5], phases)  # the first one is for the tail of request ids
    checked = {"health": {"interval_s": INTERVAL_S}}
    modules = [
        factories.descriptor(tmp_path, ["true"], name=f"m{number}", supervision=checked)
        for number in range(MANY)
    ]
    moments: set[float] = set()

    async def asked(process: FakeProcess) -> None:
        await process.turned.wait()
        moments.add(trio.current_time())

    async with daemon_with(tmp_path, *modules, draw=lambda: next(drawn)):
        await trio.testing.wait_all_tasks_blocked()
        turns.counts.clear()
        # Above 0, so that the modules have their turns before the time goes on.
        mock_clock.autojump_threshold = 0.001
        with trio.fail_after(2 * INTERVAL_S):
            async with trio.open_nursery() as nursery:
                for process in processes.values():
                    nursery.start_soon(asked, process)
        mock_clock.autojump_threshold = math.inf
        counted = Counter(turns.counts)
    assert len(moments) <= MOMENTS
    # A moment: the clock jumps, the deadlines wake up. A check: its answer is read by itself, since
    # modules take turns here. The rest is the test's, 100 steps.
    assert_within(counted, 1, {"passes": 2 * MOMENTS + MANY + 2, "steps": MOMENTS + MANY + 100})


async def test_a_module_has_seven_tasks(
    tmp_path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_processes(turns, monkeypatch)
    alive: list[int] = []
    for count in (1, 1 + MODULES):
        modules = [
            factories.descriptor(tmp_path, ["true"], name=f"m{number}") for number in range(count)
        ]
        async with daemon_with(tmp_path / str(count), *modules):
            alive.append(trio.lowlevel.current_statistics().tasks_living)
    # Its life; two that see to its beginning, its doubts and its end; readers of stdout and
    # stderr, the writer of stdin, and the stop ladder.
    assert alive[1] - alive[0] <= 7 * MODULES
