"""Who is called next, of those for whom a turn of the event loop has no time left."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from itertools import groupby

import pytest
import trio
import trio.testing

from supervisor.runtime.fair_queue import CREDIT_S, NAMED, FairQueue
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import Stalls
from supervisor.runtime.turns import (
    ALL_S,
    LEAST_S,
    SERVING,
    TURN_S,
    WHOLE_BYTES,
    Serving,
    Turn,
)

CROWD = 50
REQUEST_S = 0.0001


class Room:
    """Whether there is room, as it is said."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


class Line(trio.abc.Instrument):
    """Some who wait in a queue, and in which order they are called."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.queue = FairQueue()
        self.room = Room()
        self.called: list[str] = []
        self.called_in: list[int] = []
        """In which turn of the loop each was."""
        self._turns = 0
        self._nursery = nursery

    def hold(self) -> None:
        """Have those who come stand behind one that was called and has not come yet."""
        self.queue._called = 1

    async def come(self, *names: str, size_s: float = 0.0) -> None:
        """Have some come, one after the other."""
        for name in names:
            waiting = self.queue.waiting
            self._nursery.start_soon(self._wait, name, size_s)
            while self.queue.waiting == waiting:
                await trio.lowlevel.checkpoint()

    async def all_called(self) -> list[str]:
        """Have the one come that was called, and return in which order the others are."""
        self.queue._come()
        await trio.testing.wait_all_tasks_blocked()
        assert self.queue.waiting == 0
        return self.called

    async def _wait(self, name: str, size_s: float) -> None:
        await self.queue.wait(name, size_s, self.room)
        self.called.append(name)
        self.called_in.append(self._turns)

    def after_io_wait(self, timeout: float) -> None:
        self._turns += 1


@pytest.fixture
async def line(nursery: trio.Nursery) -> AsyncIterator[Line]:
    made = Line(nursery)
    trio.lowlevel.add_instrument(made)
    yield made
    trio.lowlevel.remove_instrument(made)


async def test_who_had_less_is_called_before_and_the_others_in_their_order(line: Line) -> None:
    line.hold()
    for name, seconds in {"a": 0.3, "b": 0.1, "c": 0.1, "d": 0.0}.items():
        line.queue.charge(name, seconds)
    await line.come("a", "b", "c", "d")
    assert line.queue.precedes("e") is False  # as `d`, but later
    assert await line.all_called() == ["d", "b", "c", "a"]


async def test_of_those_who_had_as_much_who_comes_with_little_is_called_first(line: Line) -> None:
    line.hold()
    await line.come("a", "b", size_s=0.001)
    await line.come("c", size_s=0.0001)
    assert await line.all_called() == ["c", "a", "b"]


async def test_nobody_saves_up_more_than_a_credit(line: Line) -> None:
    line.queue._now = 100.0
    line.hold()
    line.queue.charge("busy", CREDIT_S + 0.001)
    await line.come("busy")
    line.queue.charge("late", CREDIT_S - 0.001)
    assert line.queue.precedes("late") is True
    line.queue.charge("late", 0.003)
    assert line.queue.precedes("late") is False
    await line.all_called()


async def test_what_was_is_forgotten_when_nobody_waits(line: Line) -> None:
    line.hold()
    line.queue.charge("busy", 100.0)
    await line.come("a")
    await line.all_called()
    line.hold()
    await line.come("busy", "a")
    assert await line.all_called() == ["a", "busy", "a"]


async def test_where_there_is_room_one_more_is_called_in_each_turn_of_the_loop(line: Line) -> None:
    line.room.left = 100
    line.hold()
    await line.come(*map(str, range(10)))
    await line.all_called()
    assert [len(list(those)) for _, those in groupby(line.called_in)] == [1, 2, 3, 4]


async def test_who_is_cancelled_is_not_called_and_holds_up_nobody(
    line: Line, nursery: trio.Nursery
) -> None:
    scope = trio.CancelScope()

    async def leave() -> None:
        with scope:
            await line.queue.wait("a", 0.0, line.room)

    line.hold()
    nursery.start_soon(leave)
    await trio.testing.wait_all_tasks_blocked()
    await line.come("b")
    scope.cancel()
    assert await line.all_called() == ["b"]


NEIGHBOUR_S = 0.05
"""Who asks little fails if it waits so long for others' requests."""


class Loop(trio.abc.Instrument):
    """Tells of the turns of this event loop, and how much was served in each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.passes = 0
        self.most_s = 0.0
        self.serving = Serving(lambda: self.now, lambda: self.now)

    def after_io_wait(self, timeout: float) -> None:
        self.passes += 1
        self.most_s = max(self.most_s, self.serving.all_s)
        self.serving.turn_ended()

    def serve(self, who: str, turn: Turn | None = None) -> None:
        """Serve requests for a turn, or a single one."""
        self.serving.begin(who, "requests")
        self.now += REQUEST_S
        while turn is not None and not turn.over:
            self.now += REQUEST_S
        self.serving.end()


@pytest.mark.fault(29)
async def test_in_a_crowd_a_turn_of_the_loop_is_short_and_a_neighbour_waits_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop()
    monkeypatch.setattr("supervisor.runtime.turns.SERVING", loop.serving)
    served_s = dict.fromkeys((f"client {number}" for number in range(CROWD)), 0.0)
    waited: list[int] = []

    async def flood(who: str) -> None:
        turn = Turn(lambda: loop.now, who)
        while True:
            if turn.begin():
                began = loop.now
                loop.serve(who, turn)
                served_s[who] += loop.now - began
            await turn.wait()

    async def ask() -> None:
        turn = Turn(lambda: loop.now, "the neighbour")
        for _ in range(CROWD):
            for _ in range(5):  # it thinks for a while
                await trio.lowlevel.checkpoint()
            since = loop.passes
            if not turn.begin():
                await turn.wait(WHOLE_BYTES // 10)
                turn.begin()
            loop.serve("the neighbour")
            waited.append(loop.passes - since)

    trio.lowlevel.add_instrument(loop)
    try:
        async with trio.open_nursery() as nursery:
            for who in served_s:
                nursery.start_soon(flood, who)
            await ask()
            nursery.cancel_scope.cancel()
    finally:
        trio.lowlevel.remove_instrument(loop)
    slack_s = 2 * (LEAST_S + REQUEST_S)
    assert loop.most_s <= ALL_S + slack_s
    assert max(waited) <= 2  # who of those that were called comes first in a pass is chance
    # A call and its answer wait in turn, and each may have just missed a pass before that.
    assert 2 * (max(waited) + 1) * (ALL_S + slack_s) < NEIGHBOUR_S
    # What somebody had before anybody waited does not count.
    assert max(served_s.values()) - min(served_s.values()) <= 2 * TURN_S + slack_s


def test_after_an_event_loop_that_told_of_its_turns_all_are_whole_again() -> None:
    async def serve() -> float:
        await trio.lowlevel.checkpoint()
        return SERVING.all_s

    assert run_timed(serve, stalls=Stalls()) == 0.0
    assert SERVING.all_s == -math.inf


def test_parties_that_come_and_go_while_others_wait_are_forgotten() -> None:
    # Each process per invocation and each connection has a name of its own.
    queue = FairQueue()
    for number in range(20 * NAMED):
        queue._now = number * CREDIT_S / 100
        queue.charge(f"once#{number}", CREDIT_S / 1000)
    assert len(queue._times) <= NAMED + 1
    assert f"once#{20 * NAMED - 1}" in queue._times
