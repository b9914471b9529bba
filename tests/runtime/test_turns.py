"""Parties share the event loop a turn at a time; a chunk is cut so that no turn has many lines."""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import Stalls
from supervisor.runtime.turns import (
    ALL_S,
    CALLED,
    CREDIT_S,
    LEAST_S,
    LINES_AT_ONCE,
    LOOP,
    NAMED,
    PIECES_A_TURN,
    SAMPLE_BYTES,
    THE_DAEMON,
    TURN_S,
    WHOLE_BYTES,
    LineTurn,
    LoopTime,
    SharedTurn,
    Turn,
    pieces,
)

RUNS = st.lists(
    st.tuples(st.sampled_from([b"\n", b"x", b"{}\r\n", b"\0"]), st.integers(0, 5000)), max_size=6
)


@given(RUNS)
def test_the_pieces_are_the_chunk_and_each_has_few_lines(runs: list[tuple[bytes, int]]) -> None:
    chunk = b"".join(piece * times for piece, times in runs)
    cut = pieces(chunk)
    assert b"".join(cut) == chunk
    assert all(piece.count(b"\n") <= LINES_AT_ONCE for piece in cut)


def test_a_chunk_of_few_lines_is_one_piece() -> None:
    chunk = b"x" * 65_535 + b"\n"
    assert pieces(chunk)[0] is chunk


class Counted(bytes):
    """Bytes that note how many of them are counted."""

    looked_at = 0

    def count(self, what: Any, begin: Any = 0, end: Any = 1 << 20) -> int:
        Counted.looked_at += min(end, len(self)) - begin
        return super().count(what, begin, end)

    def __getitem__(self, at: Any) -> Any:
        return Counted(super().__getitem__(at))


@pytest.mark.parametrize("line_bytes", [20, 130, 360, 700])
def test_the_newlines_of_a_stream_are_counted_once(line_bytes: int) -> None:
    chunk = Counted((b"x" * (line_bytes - 1) + b"\n") * (65_536 // line_bytes))
    Counted.looked_at = 0
    assert b"".join(pieces(chunk)) == chunk
    assert Counted.looked_at <= len(chunk) + SAMPLE_BYTES


class World:
    """An event loop in whose passes time goes on by nothing but work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = LoopTime(lambda: self.now)
        self.had_s: dict[str, float] = defaultdict(float)
        """How much each party has worked (s)."""
        self.passes = 0
        self.longest_pass_s = 0.0
        self._pass_began_at = 0.0

    def run(self, main: Callable[[], Awaitable[object]]) -> None:
        async def observed() -> None:
            trio.lowlevel.add_instrument(self)  # type: ignore[arg-type]
            await main()

        run_timed(observed, stalls=Stalls(loop=self.loop), clock=lambda: self.now)

    def after_io_wait(self, timeout: float) -> None:
        self.passes += 1
        self.longest_pass_s = max(self.longest_pass_s, self.now - self._pass_began_at)
        self._pass_began_at = self.now

    def work(self, who: str, seconds: float) -> None:
        self.loop.begin(who, "requests")
        self.now += seconds
        self.had_s[who] += seconds
        self.loop.end()

    async def flood(self, who: str, request_s: float = 0.0001) -> NoReturn:
        """Work for as long as there is time, until cancelled."""
        turn = Turn(who, self.loop)
        while True:
            if turn.begin():
                while not turn.over:
                    self.work(who, request_s)
            await turn.wait()

    async def come_again(self, who: str, request_s: float) -> NoReturn:
        """Come with one request after the other, until cancelled."""
        while True:
            await self.ask(who, request_s)
            await trio.lowlevel.checkpoint()

    async def ask(self, who: str, request_s: float = 0.0001) -> int:
        """Do one request as soon as there is time; returns for how many passes that waited."""
        turn, since = Turn(who, self.loop), self.passes
        while not turn.begin():
            await turn.wait(WHOLE_BYTES // 10)
        self.work(who, request_s)
        return self.passes - since


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.fault(29)
def test_a_turn_is_over_when_its_time_is(world: World) -> None:
    turn = Turn(loop=world.loop)
    over = []
    for seconds in (0.0, TURN_S):
        turn.begin()
        world.now += seconds
        over.append(turn.over)
    assert over == [False, True]


@pytest.mark.fault(29)
def test_where_many_work_each_has_less(world: World) -> None:
    for parties, expected in ((1, TURN_S), (10, ALL_S / 10), (1000, LEAST_S), (0, TURN_S)):
        for number in range(parties):
            for _ in range(3):  # one that comes again at once does not count again
                world.work(f"client {number}", 0.0)
        world.loop.pass_ended()
        assert world.loop.length_s() == expected


@pytest.mark.fault(29)
def test_a_party_that_begins_when_others_had_much_of_a_pass_has_less(world: World) -> None:
    world.loop.pass_ended()
    for left_s, expected in ((ALL_S, TURN_S), (TURN_S / 2, TURN_S / 2), (-1.0, LEAST_S)):
        world.work("a client", ALL_S - left_s)
        assert world.loop.length_s() == pytest.approx(expected)
        world.loop.pass_ended()


def test_where_nothing_tells_of_passes_all_turns_are_whole(world: World) -> None:
    world.work("a client", 1.0)
    assert world.loop.length_s() == TURN_S
    assert world.loop.may_begin("another client")


def test_after_an_event_loop_that_told_of_its_passes_all_turns_are_whole_again() -> None:
    async def work() -> float:
        await trio.lowlevel.checkpoint()
        return LOOP.all_s

    assert run_timed(work, stalls=Stalls()) == 0.0
    assert LOOP.all_s == -math.inf


def test_the_turn_of_a_module_is_over_when_its_pieces_or_its_time_are(world: World) -> None:
    turn = LineTurn(loop=world.loop)
    turn.begin()
    assert [turn.took_piece() for _ in range(PIECES_A_TURN)].index(True) == PIECES_A_TURN - 1
    turn.begin()
    assert not turn.took_piece()
    world.now += TURN_S
    assert turn.took_piece()


# Whose turn it is.

CROWD = 64
NEIGHBOUR_S = 0.05
"""A party that asks for little fails if it waits so long for others' requests."""

SLACK_S = 0.0002
"""The request in which a turn ends is finished."""


def crowded(world: World, main: Callable[[trio.Nursery], Awaitable[object]]) -> None:
    """Run `main` beside a crowd that floods."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(CROWD):
                nursery.start_soon(world.flood, f"client {number}")
            await main(nursery)
            nursery.cancel_scope.cancel()

    world.run(run)


async def until(world: World, now: float) -> None:
    while world.now < now:
        await trio.lowlevel.checkpoint()


@pytest.mark.fault(29)
def test_in_a_crowd_a_pass_is_short_and_a_neighbour_waits_for_few(world: World) -> None:
    waited: list[int] = []

    async def ask_now_and_then(nursery: trio.Nursery) -> None:
        for _ in range(CROWD):
            for _ in range(5):  # it thinks for a while
                await trio.lowlevel.checkpoint()
            waited.append(await world.ask("the neighbour"))

    crowded(world, ask_now_and_then)
    # One more than are called: the neighbour begins where there is time.
    most_s = (CALLED + 1) * (LEAST_S + SLACK_S)
    assert world.longest_pass_s <= most_s
    # A call and its answer wait in turn, and each may have just missed a pass before that.
    assert 2 * (max(waited) + 1) * most_s < NEIGHBOUR_S
    del world.had_s["the neighbour"]
    had_s = world.had_s.values()
    # What a party had before any other waited does not count.
    assert max(had_s) - min(had_s) <= 2 * TURN_S + SLACK_S


@pytest.mark.fault(29)
@pytest.mark.parametrize("way", ["flood", "come_again"])
def test_a_party_with_long_requests_has_no_more_than_others(world: World, way: str) -> None:
    async def come(nursery: trio.Nursery) -> None:
        nursery.start_soon(getattr(world, way), "long", 0.01)
        await until(world, CROWD * 0.1)

    crowded(world, come)
    fair_s = world.now / (CROWD + 1)
    assert world.had_s["long"] <= fair_s + CREDIT_S + 0.01
    assert min(world.had_s.values()) >= fair_s / 2


@pytest.mark.fault(29)
def test_a_party_that_asked_for_nothing_saves_up_no_more_than_a_credit(world: World) -> None:
    begins_at, takes_s = CROWD * CREDIT_S * 4, 1.0

    async def come_late(nursery: trio.Nursery) -> None:
        await until(world, begins_at)
        nursery.start_soon(world.flood, "late")
        await until(world, begins_at + takes_s)

    crowded(world, come_late)
    fair_s = takes_s / (CROWD + 1)
    assert fair_s < world.had_s["late"] <= fair_s + CREDIT_S + TURN_S


def test_a_party_that_is_cancelled_while_it_waits_holds_up_no_other(world: World) -> None:
    async def cancel_some(nursery: trio.Nursery) -> None:
        for _ in range(10):
            async with trio.open_nursery() as leaving:
                for number in range(2 * CALLED):
                    leaving.start_soon(world.flood, f"leaving {number}")
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                leaving.cancel_scope.cancel()
        await world.ask("the neighbour")

    crowded(world, cancel_some)
    assert len(world.had_s) >= CROWD


@pytest.mark.fault(29)
def test_the_loop_does_not_sleep_while_a_party_waits(world: World) -> None:
    async def reload() -> None:
        turn = Turn(THE_DAEMON, world.loop)
        for _ in range(20):
            world.now += TURN_S
            await turn.go_on()

    async def main(nursery: trio.Nursery) -> None:
        # A reload takes turns itself, within those that its client's requests have together.
        await SharedTurn("a client", world.loop).serve(reload(), "a reload")

    crowded(world, main)
    assert len(world.had_s) == CROWD


def test_parties_that_come_and_go_while_others_wait_are_forgotten(world: World) -> None:
    # Each process per invocation and each connection has a name of its own.
    async def come_and_go(nursery: trio.Nursery) -> None:
        for number in range(3 * NAMED):
            world.work(f"once#{number}", CREDIT_S / 100)
            if number % 10 == 0:
                await trio.lowlevel.checkpoint()
        kept = (len(held) for held in gc.get_referents(world.loop) if isinstance(held, dict))
        assert max(kept) <= NAMED + CROWD

    crowded(world, come_and_go)


@pytest.mark.fault(29)
async def test_tasks_of_one_party_have_one_turn_together_and_others_theirs_in_between() -> None:
    world = World()
    turn = SharedTurn("a client", world.loop)
    steps_in_a_row = most = passes = 0

    async def serve() -> str:
        nonlocal steps_in_a_row, most
        for _ in range(5):
            world.now += 2 * TURN_S  # a step is a whole turn, and more
            steps_in_a_row += 1
            most = max(most, steps_in_a_row)
            await trio.lowlevel.checkpoint()
        return "served"

    async def ask() -> None:
        told.append(await turn.serve(serve(), "steps"))

    async def neighbour() -> None:
        nonlocal steps_in_a_row, passes
        while True:
            steps_in_a_row = 0
            passes += 1
            await trio.lowlevel.checkpoint()

    told: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        async with trio.open_nursery() as tasks:
            for _ in range(100):
                tasks.start_soon(ask)
        nursery.cancel_scope.cancel()
    assert told == ["served"] * 100
    assert most <= 2  # who of the two comes first in a pass of the loop is chance
    assert passes >= 500 / 2


async def test_a_task_in_its_partys_turn_is_told_what_it_waited_for_and_ends_as_any_other() -> None:
    turn = SharedTurn("a client")
    scope = trio.CancelScope()
    ended: list[str] = []

    async def waits() -> None:
        try:
            with scope:
                await trio.sleep_forever()
            ended.append("cancelled")
            await trio.to_thread.run_sync(int, "no number")
        except ValueError:
            ended.append("raised")
            raise

    async def serve() -> None:
        with pytest.raises(ValueError, match="no number"):
            await turn.serve(waits(), "a wait")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
    assert ended == ["cancelled", "raised"]
