"""The doubt after a call was given up, with a fake process and a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.connection import Answered, Request
from protocol.errors import Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.supervision.health import Probes
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.life import Life, LifeEnd
from tests.factories import actor
from tests.runtime.fakes import FakeLife, plain_setting

Clock = trio.testing.MockClock
HEALTH_S, INVOKE_S = 2.0, 30.0
TIMEOUTS = {"health_s": HEALTH_S, "invoke_s": INVOKE_S}


class FakeProcess(FakeLife):
    """What is probed: it answers and talks when the test says so; and its owner."""

    is_ending = False
    times_heard = 0

    def __init__(self, folder: Path, host: Host, concurrency: int) -> None:
        supervision = {"concurrency": concurrency, "timeouts": TIMEOUTS}
        supervision["health"] = {"interval_s": HEALTH_S, "failures": 1}
        made = actor(folder, supervision=supervision)
        setting = plain_setting(made, host, iter(["m#1"]))
        this: Any = self
        super().__init__(setting, this)
        self.asked: list[Request] = []
        self.replaced: list[str] = []
        self.trusted = 0
        self.process = self
        self.probes = Probes(setting, this, this)

    def ask(self, request: Request) -> None:  # type: ignore[override] # as a process
        assert request.operation is Operation.HEALTH
        self.asked.append(request)

    def happened(self, life: Life, news: Input, why: str, failure: LifeEnd | None = None) -> None:
        assert news in (Input.HEALTHY, Input.UNHEALTHY)

    def run_failed(self, life: Life, ended: LifeEnd) -> None:
        raise AssertionError(ended)

    def capacity_freed(self, life: Life) -> None:
        self.trusted += 1

    def replace(self, why: str) -> None:
        self.replaced.append(why)

    def answer_all(self) -> None:
        for one in self.asked:
            outcome = Success({"status": "ok"})
            self.probes.answered(Answered(one.request_id, outcome), outcome)


@pytest.fixture(params=[1, 2])
async def doubted(
    request: pytest.FixtureRequest, tmp_path: Path, host: Host, nursery: trio.Nursery
) -> FakeProcess:
    process = FakeProcess(tmp_path, host, request.param)
    nursery.start_soon(host.deadlines.run)
    process.probes.watch.begin(0.5)
    nursery.start_soon(process.probes.resolve_doubts)
    await trio.testing.wait_all_tasks_blocked()
    process.probes.given_up(written=True)
    await trio.testing.wait_all_tasks_blocked()
    return process


async def talk(process: FakeProcess, clock: Clock, seconds: float) -> None:
    for _ in range(int(seconds)):
        process.times_heard += 1
        clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()


async def test_a_process_that_still_talks_is_not_replaced_and_trusted_once_it_answers(
    doubted: FakeProcess, mock_clock: Clock
) -> None:
    # Review: a module that a flood kept busy was replaced 2 s after its client hung up.
    await talk(doubted, mock_clock, INVOKE_S - 1)
    assert (doubted.replaced, doubted.probes.in_doubt) == ([], True)
    assert len(doubted.asked) == 1
    doubted.answer_all()
    await trio.testing.wait_all_tasks_blocked()
    assert (doubted.replaced, doubted.probes.in_doubt, doubted.trusted) == ([], False, 1)


async def test_one_that_falls_silent_without_an_answer_is_replaced(
    doubted: FakeProcess, mock_clock: Clock
) -> None:
    await talk(doubted, mock_clock, 5)
    for _ in range(2):
        mock_clock.jump(HEALTH_S)
        await trio.testing.wait_all_tasks_blocked()
    assert doubted.replaced == ["did not answer after a call was given up"]


@pytest.mark.parametrize(("doubted", "replaced"), [(1, 1), (2, 0)], indirect=["doubted"])
async def test_one_that_talks_without_end_is_replaced_if_others_wait_for_it(
    doubted: FakeProcess, mock_clock: Clock, replaced: int
) -> None:
    await talk(doubted, mock_clock, 3 * INVOKE_S)
    assert len(doubted.replaced) == replaced
