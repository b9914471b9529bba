"""How long a call of an MCP server may take, on a virtual clock: from when, and what renews it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from supervisor.runtime.supervision.deadlines import Deadlines
from tests.kernel.conftest import Asker
from tests.kernel.pipeline import World, pipeline
from tests.principals import ADA

Clock = trio.testing.MockClock
INVOKE_S, TOTAL_S, START_S = 120, 3600, 300
BOUNDS: dict[str, float] = {"invoke_s": INVOKE_S, "total_s": TOTAL_S}
MOMENT_S = 0.01


@pytest.fixture
def clock(mock_clock: Clock) -> Clock:
    """Give a clock that does not show 0, which stands for no time."""
    mock_clock.jump(1)
    return mock_clock


def invoke(world: World, op: str = "go", **content: Any) -> Asker:
    asker = Asker()
    world.requests.invoke(ADA, "m", {"op": op, **content}, asker)
    return asker


async def passed(clock: Clock, seconds: float) -> None:
    """Let time pass, so that each timer on the way is told in its time."""
    until = trio.current_time() + seconds
    while (left_s := until - trio.current_time()) > 0:
        clock.jump(min(left_s, 1))
        await trio.testing.wait_all_tasks_blocked()


def words(asker: Asker) -> str:
    (response,) = asker.responses
    error = response.document()["error"]
    assert error["details"]["reason"] == "deadline"
    return str(error["message"])


async def ends_at(asker: Asker, clock: Clock, seconds: float) -> str:
    """Return what a request is told that ends after so long, and not before."""
    await passed(clock, seconds - MOMENT_S)
    assert not asker.responses
    await passed(clock, 2 * MOMENT_S)
    return words(asker)


async def test_a_call_that_says_nothing_ends_after_its_time(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        said = await ends_at(invoke(world), clock, INVOKE_S)
        assert said == "m.go gave no answer in 120 s"


async def test_each_event_gives_it_as_much_time_again(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        asker = invoke(world)
        for number in range(10):
            await passed(clock, INVOKE_S - 1)
            world.module.say("go", number)
        said = await ends_at(asker, clock, INVOKE_S)
        assert said == ("m.go gave no answer in 1310 s, and told of no progress in the last 120 s")


async def test_an_answer_after_much_progress_is_an_answer(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        asker = invoke(world)
        for number in range(20):
            await passed(clock, INVOKE_S - 1)
            world.module.say("go", number)
        world.module.answer("go")
        assert (await asker.document())["result"] == "go"


async def test_no_progress_takes_it_beyond_the_most_that_it_may_take(
    tmp_path: Path, clock: Clock
) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        asker = invoke(world)
        for number in range(TOTAL_S // 100 - 1):
            await passed(clock, 100)
            world.module.say("go", number)
        said = await ends_at(asker, clock, 100)
        assert said == (
            "m.go gave no answer in 3600 s, which is the most that a call may take with progress "
            "(supervision.timeouts.total_s)"
        )


async def test_its_time_counts_from_when_its_server_has_it(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        world.module.full = True
        asker = invoke(world)
        await passed(clock, INVOKE_S - 1)
        world.module.begin("go")
        said = await ends_at(asker, clock, INVOKE_S)
        assert said == "m.go gave no answer in 120 s"


async def test_the_most_that_it_may_take_counts_from_then_too(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", {"invoke_s": INVOKE_S, "total_s": INVOKE_S + 10}) as world:
        world.module.full = True
        asker = invoke(world)
        await passed(clock, INVOKE_S - 1)
        world.module.begin("go")
        await passed(clock, INVOKE_S - 1)
        world.module.say("go", 1)
        assert "total_s" in await ends_at(asker, clock, 11)


async def test_the_wait_for_its_turn_has_a_bound_of_its_own(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        world.module.full = True
        said = await ends_at(invoke(world), clock, INVOKE_S)
        assert said == "m.go was not begun in 120 s"


async def test_a_start_that_it_waits_for_has_its_own_time_too(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        world.module.full, world.module.start_s = True, START_S
        said = await ends_at(invoke(world), clock, START_S + INVOKE_S)
        assert said == "m.go was not begun in 420 s"


@pytest.mark.parametrize("waited_s", [1, 130, 250, 419])
async def test_after_a_start_it_has_its_whole_time_and_no_more(
    tmp_path: Path, clock: Clock, waited_s: int
) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        world.module.full, world.module.start_s = True, START_S
        asker = invoke(world)
        await passed(clock, waited_s)
        world.module.start_s = 0.0
        world.module.begin("go")
        assert "gave no answer in 120 s" in await ends_at(asker, clock, INVOKE_S)


@pytest.mark.parametrize("full", [False, True])
async def test_what_a_caller_says_itself_is_renewed_by_nothing(
    tmp_path: Path, clock: Clock, full: bool
) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        world.module.full, world.module.start_s = full, START_S
        asker = invoke(world, timeout_s=INVOKE_S + 100)
        await passed(clock, INVOKE_S)
        if full:
            world.module.begin("go")
        world.module.say("go", 1)
        assert await ends_at(asker, clock, 100) == "m.go gave no answer in 220 s"


async def test_of_other_protocols_nothing_renews_the_time(tmp_path: Path, clock: Clock) -> None:
    async with pipeline(tmp_path, "module", BOUNDS) as world:
        asker = invoke(world)
        await passed(clock, INVOKE_S - 10)
        world.module.say("go", 1)
        assert await ends_at(asker, clock, 10) == "m.go gave no answer in 120 s"


async def test_many_events_cost_no_timer_each(tmp_path: Path, clock: Clock) -> None:
    bounded: list[float] = []

    class Counted(Deadlines):
        def bound(self, one: Any, length_s: float, now: float) -> Any:
            bounded.append(length_s)
            return super().bound(one, length_s, now)

    async with pipeline(tmp_path, "mcp", BOUNDS, Counted()) as world:
        asker = invoke(world)
        for number in range(1000):
            world.module.say("go", number)
        await passed(clock, INVOKE_S - 1)
        for number in range(1000):
            world.module.say("go", number)
        await ends_at(asker, clock, INVOKE_S)
        assert len(bounded) == 2


THINKS_S = 250
"""Less than a question waits for an answer."""


async def decided(world: World, count: int = 1) -> None:
    await trio.testing.wait_all_tasks_blocked()
    waiting = world.approvals.waiting(ADA)
    assert len(waiting) == count
    for one in waiting:
        world.approvals.decide(one["id"], "allow", ADA)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("protocol", ["module", "mcp"])
@pytest.mark.parametrize("questions", [1, 2])
async def test_the_clock_of_a_call_stands_still_while_a_person_thinks(
    protocol: str, questions: int, tmp_path: Path, clock: Clock
) -> None:
    async with pipeline(tmp_path, protocol, BOUNDS) as world:
        asker = invoke(world)
        for number in range(3):
            await passed(clock, 10)
            for other in range(questions):
                world.module.ask("go", 10 * number + other)
            await trio.testing.wait_all_tasks_blocked()
            await passed(clock, THINKS_S)
            assert not asker.responses
            await decided(world, questions)
        # With the answer to its own call, a server of MCP has been heard of.
        left_s = INVOKE_S - 30 if protocol == "module" else INVOKE_S
        assert "gave no answer in" in await ends_at(asker, clock, left_s)


async def test_the_longest_time_of_a_call_is_without_that_of_people(
    tmp_path: Path, clock: Clock
) -> None:
    async with pipeline(tmp_path, "mcp", {"invoke_s": 100, "total_s": 150}) as world:
        asker = invoke(world)
        await passed(clock, 90)
        world.module.ask("go")
        await trio.testing.wait_all_tasks_blocked()
        await passed(clock, THINKS_S)
        await decided(world)
        assert "which is the most" in await ends_at(asker, clock, 60)


async def test_a_question_that_nobody_answers_stops_the_clock_for_its_own_time(
    tmp_path: Path, clock: Clock
) -> None:
    async with pipeline(tmp_path, "module", BOUNDS) as world:
        asker = invoke(world)
        await trio.testing.wait_all_tasks_blocked()
        world.module.ask("go")
        await trio.testing.wait_all_tasks_blocked()
        await ends_at(asker, clock, 300 + INVOKE_S)


async def test_the_callers_own_bound_goes_on_while_a_person_thinks(
    tmp_path: Path, clock: Clock
) -> None:
    async with pipeline(tmp_path, "mcp", BOUNDS) as world:
        asker = invoke(world, timeout_s=20)
        world.module.ask("go")
        await trio.testing.wait_all_tasks_blocked()
        assert "`stdiod approve ap-" in await ends_at(asker, clock, 20)
