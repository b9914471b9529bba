from __future__ import annotations

import weakref

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.supervision.deadlines import (
    COMPACT_FROM,
    DUE_AT_ONCE,
    MOST_LENGTHS,
    SHARE_S,
    Deadlines,
)

Clock = trio.testing.MockClock


async def pass_time(clock: Clock, seconds: float) -> None:
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


async def test_actions_come_in_the_order_of_their_times_then_of_their_setting(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(), list[str]()
    nursery.start_soon(deadlines.run)
    for name, delay_s in [("c", 3), ("a", 1), ("b", 2), ("b2", 2), ("now", 0)]:
        deadlines.after(delay_s, lambda name=name: called.append(name))  # type: ignore[misc]
    await pass_time(mock_clock, 0)
    assert called == ["now"]
    await pass_time(mock_clock, 5)
    assert called == ["now", "a", "b", "b2", "c"]


async def test_a_deadline_is_not_early(mock_clock: Clock, nursery: trio.Nursery) -> None:
    deadlines, called = Deadlines(), list[int]()
    nursery.start_soon(deadlines.run)
    deadlines.after(2, lambda: called.append(1))
    await pass_time(mock_clock, 1.99)
    assert called == []
    await pass_time(mock_clock, 0.01)
    assert called == [1]


async def test_a_cancelled_deadline_does_nothing_and_may_be_cancelled_again(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(), list[int]()
    nursery.start_soon(deadlines.run)
    timer = deadlines.after(1, lambda: called.append(1))
    kept = deadlines.after(1, lambda: called.append(2))
    timer.cancel()
    timer.cancel()
    await pass_time(mock_clock, 2)
    kept.cancel()  # too late
    assert called == [2]


async def test_an_earlier_deadline_set_later_wakes_the_queue(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(), list[str]()
    nursery.start_soon(deadlines.run)
    deadlines.after(100, lambda: called.append("late"))
    await pass_time(mock_clock, 0)
    deadlines.after(1, lambda: called.append("early"))
    await pass_time(mock_clock, 1)
    assert called == ["early"]


async def test_an_action_may_set_and_cancel_deadlines(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(), list[str]()
    nursery.start_soon(deadlines.run)
    doomed = deadlines.after(2, lambda: called.append("doomed"))

    def act() -> None:
        doomed.cancel()
        deadlines.after(0, lambda: called.append("at once"))
        deadlines.after(1, lambda: called.append("later"))

    deadlines.after(1, act)
    await pass_time(mock_clock, 1)
    assert called == ["at once"]
    await pass_time(mock_clock, 5)
    assert called == ["at once", "later"]


async def test_cancelled_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines()
    kept = [deadlines.after(1000, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        deadlines.after(30, lambda: None).cancel()
        assert len(deadlines._heap) <= max(COMPACT_FROM, 2 * len(kept)) + 1
    assert all(timer in [entry[2] for entry in deadlines._heap] for timer in kept)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=300))
def test_each_deadline_that_is_not_cancelled_comes_once(plan: list[tuple[int, bool]]) -> None:
    called: list[int] = []

    async def play() -> None:
        deadlines = Deadlines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            for number, (delay_s, cancelled) in enumerate(plan):
                timer = deadlines.after(delay_s, lambda number=number: called.append(number))  # type: ignore[misc]
                if cancelled:
                    timer.cancel()
            await pass_time(clock, 10)
            nursery.cancel_scope.cancel()

    clock = Clock()
    trio.run(play, clock=clock)
    expected = [n for n, (_, cancelled) in enumerate(plan) if not cancelled]
    assert called == sorted(expected, key=lambda n: plan[n][0])


async def test_a_cancelled_deadline_wakes_nobody(mock_clock: Clock, nursery: trio.Nursery) -> None:
    deadlines, called = Deadlines(), list[int]()
    nursery.start_soon(deadlines.run)
    doomed = [deadlines.after(at, lambda: called.append(0)) for at in range(1, 9)]
    deadlines.after(0, lambda: None)
    for timer in doomed:
        timer.cancel()
    deadlines.after(9, lambda: called.append(9))
    await pass_time(mock_clock, 0)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    for _ in range(8):
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(steps)
    assert steps.of(Deadlines.run) == 0
    await pass_time(mock_clock, 1)
    assert called == [9]


async def test_deadlines_of_one_time_make_one_wake_up(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(), list[int]()
    nursery.start_soon(deadlines.run)
    for number in range(100):
        deadlines.at(5.0, lambda number=number: called.append(number))  # type: ignore[misc]
    await pass_time(mock_clock, 0)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await pass_time(mock_clock, 5)
    trio.lowlevel.remove_instrument(steps)
    assert called == list(range(100))
    assert steps.of(Deadlines.run) == 1


async def test_who_is_added_while_others_are_told_is_not_told_in_the_same_step(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    """The clock stands still, as the loop's does after a stall."""
    deadlines, called = Deadlines(), list[str]()
    nursery.start_soon(deadlines.run)

    def act() -> None:
        called.append("timer")
        if called.count("timer") < 5:
            deadlines.after(0, act)

    class Again:
        def expired(self) -> None:
            called.append("bound")
            if called.count("bound") < 5:
                deadlines.bound(self, 0, trio.current_time())

    await pass_time(mock_clock, 0)
    deadlines.after(0, act)
    deadlines.bound(Again(), 0, trio.current_time())
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await trio.testing.wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(steps)
    assert called == ["timer", "bound"] * 5
    assert steps.of(Deadlines.run) >= 5


@pytest.mark.fault(29)
async def test_of_many_that_are_due_only_some_are_told_in_one_turn(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    deadlines, called = Deadlines(lambda: 0.0), list[int]()
    nursery.start_soon(deadlines.run)
    for number in range(3 * DUE_AT_ONCE):
        deadlines.bound(Called(number, called), 5, trio.current_time())
        deadlines.at(5.0, lambda number=number: called.append(-number))  # type: ignore[misc]
    await pass_time(mock_clock, 0)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await pass_time(mock_clock, 5)
    trio.lowlevel.remove_instrument(steps)
    assert steps.of(Deadlines.run) == 3
    assert sorted(called) == sorted(one for n in range(3 * DUE_AT_ONCE) for one in (n, -n))


@pytest.mark.fault(29)
async def test_what_is_due_and_takes_long_is_told_a_few_at_a_time_of_either_kind(
    mock_clock: Clock, nursery: trio.Nursery
) -> None:
    # A hundred clients whose list of tools is laid out in turns had 0.5 ms each, one by one.
    spent_s = 0.0
    told: list[str] = []

    class Slow:
        def __init__(self, kind: str) -> None:
            self._kind = kind

        def expired(self) -> None:
            nonlocal spent_s
            spent_s += SHARE_S
            told.append(self._kind)

    deadlines, many = Deadlines(lambda: spent_s), 10
    nursery.start_soon(deadlines.run)
    for _ in range(many):
        deadlines.bound(Slow("bound"), 5, trio.current_time())
        deadlines.at(5.0, Slow("timer").expired)
    await pass_time(mock_clock, 0)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await pass_time(mock_clock, 5)
    trio.lowlevel.remove_instrument(steps)
    assert steps.of(Deadlines.run) == many
    assert told == ["timer", "bound"] * many


class Steps(trio.abc.Instrument):
    """How often each task ran."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._names.append(task.name)

    def of(self, function: object) -> int:
        name = getattr(function, "__qualname__", "")
        return sum(one.endswith(name) for one in self._names)


class Called:
    """Something with a bound, which notes when it was told of it."""

    def __init__(self, number: int, called: list[int]) -> None:
        self._number = number
        self._called = called

    def expired(self) -> None:
        self._called.append(self._number)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=300))
def test_each_that_does_not_leave_is_told_once_when_its_bound_is_due(
    plan: list[tuple[int, bool]],
) -> None:
    called: list[int] = []

    async def play() -> None:
        deadlines = Deadlines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            for number, (length_s, leaves) in enumerate(plan):
                one = Called(number, called)
                queue = deadlines.bound(one, length_s, trio.current_time())
                if leaves:
                    del queue[one]
            for second in range(10):
                due = sum(1 for length_s, leaves in plan if length_s <= second and not leaves)
                await pass_time(clock, 0 if second == 0 else 1)
                assert len(called) == due
            nursery.cancel_scope.cancel()

    clock = Clock()
    trio.run(play, clock=clock)
    assert sorted(called) == [n for n, (_, leaves) in enumerate(plan) if not leaves]


class Held:
    """Something with a deadline that an answer would take with it."""

    def expired(self) -> None:
        """Be due."""


async def test_who_has_left_is_held_no_more(mock_clock: Clock, nursery: trio.Nursery) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    one, other = Held(), Held()
    seen = weakref.ref(one), weakref.ref(other)
    queue = deadlines.bound(one, 60, trio.current_time())
    deadlines.after(1, other.expired)
    await pass_time(mock_clock, 1)  # it wakes for the other, and looks at the one
    queue.pop(one, None)
    del one, other
    assert [ref() for ref in seen] == [None, None]


async def test_lengths_that_nobody_has_any_more_are_forgotten() -> None:
    deadlines = Deadlines()
    for number in range(10 * MOST_LENGTHS):
        one = Called(number, [])
        del deadlines.bound(one, float(number), 0.0)[one]
        assert len(deadlines._queues) <= MOST_LENGTHS
