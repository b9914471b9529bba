"""A chunk is cut so that no turn has many lines, and nothing is lost by that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.turns import A_FEW_LINES, LINES_A_TURN, TURN_S, Turn, takes_a_turn, turns

RUNS = st.lists(
    st.tuples(st.sampled_from([b"\n", b"x", b"{}\r\n", b"\0"]), st.integers(0, 5000)), max_size=6
)


@given(RUNS)
def test_the_pieces_are_the_chunk_and_each_has_few_lines(runs: list[tuple[bytes, int]]) -> None:
    chunk = b"".join(piece * times for piece, times in runs)
    pieces = turns(chunk)
    assert b"".join(pieces) == chunk
    assert all(piece.count(b"\n") <= LINES_A_TURN for piece in pieces)


def test_a_chunk_of_few_lines_is_one_piece() -> None:
    chunk = b"x" * 65_535 + b"\n"
    assert turns(chunk)[0] is chunk


@pytest.mark.fault(29)
def test_a_turn_is_over_when_its_time_is() -> None:
    times = [100.0, 100.0, 100.0 + TURN_S, 101.0, 101.0]
    turn = Turn(lambda: times.pop(0))
    turn.begin()
    assert [turn.over, turn.over] == [False, True]
    turn.begin()
    assert not turn.over


def test_a_few_lines_take_no_turn_however_long_they_are() -> None:
    assert not takes_a_turn(b"x" * 65_536)
    assert not takes_a_turn(b"{}\n" * A_FEW_LINES)
    assert takes_a_turn(b"{}\n" * (A_FEW_LINES + 1))
