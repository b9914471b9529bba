"""When a process is asked for its health, with a virtual clock and without a process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from protocol.connection import Request
from protocol.descriptor.model import HealthChecks
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.replies import Operation
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.health import TICKS, HealthWatch

Clock = trio.testing.MockClock
INTERVAL_S, HEALTH_S = 10.0, 2.0
WELL: Outcome = Success({"status": "ok"})
ILL: Outcome = Failure.because(Reason.NOT_READY, "it says so")


class FakeChecked:
    """A process that answers at once, or when the test says so."""

    def __init__(self, *, prompt: bool = True) -> None:
        self.occupied = False
        self.asked_at: list[float] = []
        self.found_well: list[bool] = []
        self.replaced: list[str] = []
        self.calls: list[Call] = []
        self.full = False
        self._prompt = prompt

    def check(self, answered: HealthWatch) -> Call | None:
        if self.full:
            return None
        self.asked_at.append(trio.current_time())
        self.calls.append(Call(Request("r1", Operation.HEALTH), answered))
        if self._prompt:
            trio.lowlevel.current_trio_token().run_sync_soon(self.calls[-1].settle, WELL)
        return self.calls[-1]

    def found(self, *, well: bool) -> None:
        self.found_well.append(well)

    def replace(self, why: str) -> None:
        self.replaced.append(why)


class Watched(FakeChecked):
    """One with its watch."""

    def __init__(self, deadlines: Deadlines, phase: float = 0.0, *, prompt: bool = True) -> None:
        super().__init__(prompt=prompt)
        this: Any = self
        self.watch = HealthWatch(HealthChecks(failures=2), HEALTH_S, deadlines, this)
        self.watch.begin(phase)


@pytest.fixture
async def deadlines(nursery: trio.Nursery, mock_clock: Clock) -> Deadlines:
    queue = Deadlines()
    nursery.start_soon(queue.run)
    await trio.testing.wait_all_tasks_blocked()
    return queue


async def pass_time(clock: Clock, seconds: float) -> None:
    """Let time pass in steps, each as long as from one moment of the interval to the next."""
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(round(seconds * TICKS / INTERVAL_S)):
        clock.jump(INTERVAL_S / TICKS)
        await trio.testing.wait_all_tasks_blocked()


async def test_two_hundred_processes_share_the_moments_of_an_interval_and_none_has_them_all(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    # Phases as a fair draw spreads them.
    watched = [Watched(deadlines, (number + 0.5) * 0.618034 % 1) for number in range(200)]
    await pass_time(mock_clock, INTERVAL_S)
    moments = Counter(at for one in watched for at in one.asked_at)
    assert moments.total() == 200
    assert len(moments) <= TICKS
    assert max(moments.values()) <= 2 * 200 / TICKS


async def test_a_process_keeps_its_moment_however_long_its_answers_take(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    one = Watched(deadlines, 0.5, prompt=False)
    await pass_time(mock_clock, 5)
    await pass_time(mock_clock, 1)
    one.calls[0].settle(WELL)
    await pass_time(mock_clock, 9)
    one.calls[1].settle(WELL)
    assert one.asked_at == [5.0, 15.0]
    assert one.found_well == [True, True]


async def test_an_answer_that_is_late_is_a_miss_and_says_nothing_later(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    one = Watched(deadlines, prompt=False)
    await pass_time(mock_clock, HEALTH_S)
    assert one.found_well == [False]
    one.calls[0].settle(WELL)
    assert one.found_well == [False]
    await pass_time(mock_clock, INTERVAL_S)
    assert one.replaced == ["missed 2 health probes in a row"]
    await pass_time(mock_clock, INTERVAL_S)
    assert len(one.calls) == 2, "it is asked after it was given up"


async def test_a_moment_that_passes_while_an_answer_is_waited_for_is_left_out(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    patient: Any = FakeChecked(prompt=False)
    watch = HealthWatch(HealthChecks(interval_s=1, failures=9), 2.5, deadlines, patient)
    watch.begin(0)
    await pass_time(mock_clock, 7)
    assert patient.asked_at == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("well", [True, False])
async def test_an_answer_says_how_it_is(
    deadlines: Deadlines, mock_clock: Clock, *, well: bool
) -> None:
    one = Watched(deadlines, prompt=False)
    await pass_time(mock_clock, 1)
    one.calls[0].settle(WELL if well else ILL)
    assert one.found_well == [well]


async def test_one_that_leaves_too_many_probes_unanswered_misses_the_next_ones(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    one = Watched(deadlines)
    one.full = True
    await pass_time(mock_clock, INTERVAL_S)
    assert one.found_well == [False]
    assert one.replaced == ["missed 2 health probes in a row"]


async def test_one_that_is_occupied_is_not_asked_and_starts_counting_anew(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    one = Watched(deadlines, prompt=False)
    await pass_time(mock_clock, HEALTH_S)
    one.occupied = True
    await pass_time(mock_clock, INTERVAL_S)
    one.occupied = False
    await pass_time(mock_clock, INTERVAL_S)
    assert len(one.calls) == 2
    assert (one.found_well, one.replaced) == ([False, False], [])


async def test_at_the_end_nothing_is_due_any_more(deadlines: Deadlines, mock_clock: Clock) -> None:
    one = Watched(deadlines, prompt=False)
    await pass_time(mock_clock, 1)
    one.watch.end()
    one.calls[0].settle(WELL)
    await pass_time(mock_clock, 3 * INTERVAL_S)
    assert (len(one.calls), one.found_well) == (1, [])


async def test_one_that_shows_by_itself_that_it_is_not_stuck_has_missed_no_check(
    deadlines: Deadlines, mock_clock: Clock
) -> None:
    process = Watched(deadlines, prompt=False)
    await pass_time(mock_clock, INTERVAL_S / 2)
    assert process.found_well == [False]
    process.watch.alive()
    await pass_time(mock_clock, INTERVAL_S)
    assert process.replaced == []
    await pass_time(mock_clock, INTERVAL_S)
    assert process.replaced == ["missed 2 health probes in a row"]
