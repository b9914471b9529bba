"""A chunk is cut so that no turn has many lines, and nothing is lost by that."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.turns import (
    ALL_S,
    LEAST_S,
    LINES_AT_ONCE,
    PIECES_A_TURN,
    SAMPLE_BYTES,
    THE_DAEMON,
    TURN_S,
    LineTurn,
    Serving,
    SharedTurn,
    Turn,
    length_s,
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


@pytest.mark.fault(29)
def test_a_turn_is_over_when_its_time_is() -> None:
    times = [100.0, 100.0, 100.0 + TURN_S, 101.0, 101.0]
    turn = Turn(lambda: times.pop(0))
    turn.begin()
    assert [turn.over, turn.over] == [False, True]
    turn.begin()
    assert not turn.over


@pytest.mark.fault(29)
def test_where_many_are_served_each_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving(lambda: 0.0)
    monkeypatch.setattr("supervisor.runtime.turns.SERVING", serving)
    for parties, expected in ((1, TURN_S), (10, ALL_S / 10), (1000, LEAST_S), (0, TURN_S)):
        for number in range(parties):
            for _ in range(3):  # who comes again at once does not count again
                serving.begin(f"client {number}", "requests")
        serving.turn_ended()
        assert length_s() == expected


@pytest.mark.fault(29)
def test_who_begins_when_others_had_much_of_a_turn_has_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    serving = Serving(lambda: now)
    monkeypatch.setattr("supervisor.runtime.turns.SERVING", serving)
    serving.turn_ended()
    for left_s, expected in ((ALL_S, TURN_S), (TURN_S / 2, TURN_S / 2), (-1.0, LEAST_S)):
        serving.begin("a client", "requests")
        now += ALL_S - left_s
        serving.end()
        assert length_s() == pytest.approx(expected)
        serving.turn_ended()


def test_where_nobody_tells_of_turns_all_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    serving = Serving(lambda: now)
    monkeypatch.setattr("supervisor.runtime.turns.SERVING", serving)
    serving.begin("a client", "requests")
    now += 1.0
    serving.end()
    assert length_s() == TURN_S


def test_the_turn_of_a_module_is_over_when_its_pieces_or_its_time_are() -> None:
    now = 0.0
    turn = LineTurn(lambda: now)
    turn.begin()
    assert [turn.took_piece() for _ in range(PIECES_A_TURN)].index(True) == PIECES_A_TURN - 1
    turn.begin()
    assert not turn.took_piece()
    now = TURN_S
    assert turn.took_piece()


@pytest.mark.fault(29)
async def test_tasks_of_one_party_have_one_turn_together_and_others_theirs_in_between() -> None:
    now = 0.0
    turn = SharedTurn("a client", lambda: now)
    steps_in_a_row = most = passes = 0

    async def serve() -> str:
        nonlocal now, steps_in_a_row, most
        for _ in range(5):
            now += 2 * TURN_S  # a step is a whole turn, and more
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


@pytest.mark.fault(29)
async def test_who_waits_in_the_queue_within_a_shared_turn_comes_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A reload in a daemon of busy clients: it was called, and stood in the queue again instead of
    # coming, in the turn that its client's requests have together. Nobody was called any more.
    now = 0.0
    serving = Serving(lambda: now, lambda: now)
    monkeypatch.setattr("supervisor.runtime.turns.SERVING", serving)
    told: list[str] = []
    steps = 20

    class Passes(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            serving.turn_ended()

    async def busy(number: int) -> None:
        nonlocal now
        turn = Turn(lambda: now, f"client {number}")
        while not told:
            if turn.begin():
                serving.begin(f"client {number}", "requests")
                now += TURN_S
                serving.end()
                await trio.lowlevel.checkpoint()
            else:
                await turn.wait()

    async def reload() -> str:
        nonlocal now
        turn = Turn(lambda: now, THE_DAEMON)
        for _ in range(steps):
            now += TURN_S
            await turn.go_on()
        return "reloaded"

    serving.turn_ended()
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as clients:
        for number in range(6):
            clients.start_soon(busy, number)
        await trio.lowlevel.checkpoint()
        told.append(await SharedTurn("a client", lambda: now).serve(reload(), "a reload"))
    trio.lowlevel.remove_instrument(passes)
    assert told == ["reloaded"]
    assert serving.queue.waiting == 0
