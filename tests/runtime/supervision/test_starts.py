"""The turns in which processes are started, with a virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.supervision.starts import HELD_S, Starts, StartTurn

Clock = trio.testing.MockClock


def taken(starts: Starts, *urgent: bool) -> list[StartTurn]:
    return [starts.turn(urgent=one) for one in urgent]


async def test_a_turn_that_is_free_comes_at_once_and_others_in_their_order() -> None:
    starts = Starts(Deadlines(), at_once=2)
    turns = taken(starts, False, False, False, False)
    assert [turn.came for turn in turns] == [True, True, False, False]
    turns[1].give_back()
    turns[1].give_back()  # once is all that it can
    assert [turn.came for turn in turns] == [True, True, True, False]


async def test_urgent_starts_come_before_others() -> None:
    starts = Starts(Deadlines(), at_once=1)
    held, ordinary, urgent = taken(starts, False, False, True)
    held.give_back()
    assert (ordinary.came, urgent.came) == (False, True)
    assert await urgent.wait()


async def test_one_that_waits_can_give_up_and_is_told() -> None:
    starts = Starts(Deadlines(), at_once=1)
    held, first, second = taken(starts, False, False, False)
    first.give_up()
    assert not await first.wait()
    held.give_back()
    assert (first.came, second.came) == (False, True)
    second.give_back()
    (last,) = taken(starts, False)
    assert last.came


async def test_a_start_that_takes_long_passes_its_turn_on(
    nursery: trio.Nursery, mock_clock: Clock
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    starts = Starts(deadlines, at_once=1)
    slow, behind = taken(starts, False, False)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(HELD_S)
    assert await behind.wait()
    slow.give_back()  # no second time
    (another,) = taken(starts, False)
    assert not another.came


async def test_what_was_given_up_is_not_kept() -> None:
    starts = Starts(Deadlines(), at_once=1)
    taken(starts, False)
    for _ in range(10_000):
        starts.turn(urgent=False).give_up()
    assert not starts._others
