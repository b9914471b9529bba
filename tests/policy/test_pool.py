"""The sizes and the state of a module with several processes, as functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.pool import (
    Condition,
    more_needed,
    renewed_after_requests,
    renewed_at_age_s,
    state_of,
)

CONDITIONS = st.builds(Condition, st.sampled_from(State), st.booleans(), st.booleans())
DRAWS = st.floats(0, 1, exclude_max=True)


@given(st.sampled_from(State), st.booleans(), st.integers(0, 1))
def test_one_slot_is_the_module(state: State, restarted: bool, least: int) -> None:
    assert state_of([Condition(state, restarted)], least) is state


@given(st.lists(CONDITIONS, min_size=1), st.integers(0, 5))
def test_a_module_serves_if_one_that_stays_does(slots: list[Condition], least: int) -> None:
    serves = any(one.state in SERVES and not one.leaving for one in slots)
    assert (state_of(slots, least) in SERVES) == serves


@given(st.lists(CONDITIONS, min_size=1), st.integers(0, 5))
def test_a_module_is_down_only_without_a_process(slots: list[Condition], least: int) -> None:
    if state_of(slots, least) is State.DOWN:
        assert not any(one.state in HAS_PROCESS for one in slots)


READY, STARTING = Condition(State.READY), Condition(State.STARTING)


@pytest.mark.parametrize(
    ("slots", "least", "state"),
    [
        ([READY, READY], 2, State.READY),
        ([READY, STARTING], 2, State.READY),  # a first start is nothing unwell
        ([READY, Condition(State.STARTING, restarted=True)], 2, State.DEGRADED),
        ([READY, Condition(State.BACKOFF, restarted=True)], 2, State.DEGRADED),
        ([READY, Condition(State.BACKOFF, restarted=True)], 1, State.READY),
        ([READY, Condition(State.DEGRADED)], 2, State.DEGRADED),
        ([Condition(State.DEGRADED)], 0, State.DEGRADED),
        ([STARTING, Condition(State.FAILED)], 2, State.STARTING),
        ([Condition(State.BACKOFF), Condition(State.FAILED)], 2, State.BACKOFF),
        ([Condition(State.FAILED), Condition(State.FAILED)], 2, State.FAILED),
        ([Condition(State.READY, leaving=True), Condition(State.BACKOFF)], 1, State.BACKOFF),
        ([Condition(State.READY, leaving=True), Condition(State.DOWN)], 1, State.STOPPING),
    ],
)
def test_the_state_of_several(slots: list[Condition], least: int, state: State) -> None:
    assert state_of(slots, least) is state


@given(st.integers(0, 99), st.integers(0, 9), st.integers(1, 9), st.integers(0, 9))
def test_growth_takes_what_waits_and_no_more(
    waiting: int, starting: int, concurrency: int, room: int
) -> None:
    more = more_needed(waiting, starting, concurrency, room)
    assert 0 <= more <= room
    if more > 0:
        assert (starting + more - 1) * concurrency < waiting
    if more < room:
        assert (starting + more) * concurrency >= waiting


@given(st.integers(1, 10**6), DRAWS)
def test_a_renewal_by_requests_is_up_to_a_tenth_early(most: int, draw: float) -> None:
    assert max(1, most * 0.899) <= renewed_after_requests(most, draw) <= most
    assert renewed_after_requests(most, 0) == most


@given(st.floats(0.001, 10**6), DRAWS)
def test_a_renewal_by_age_is_up_to_a_tenth_early(most_s: float, draw: float) -> None:
    assert most_s * 0.899 <= renewed_at_age_s(most_s, draw) <= most_s


@pytest.mark.parametrize(
    ("most", "draw", "after"), [(100, 0.0, 100), (100, 0.5, 95), (100, 0.99, 91), (1, 0.99, 1)]
)
def test_a_renewal_is_early_by_its_draw_of_a_tenth(most: int, draw: float, after: int) -> None:
    assert renewed_after_requests(most, draw) == after
    assert renewed_at_age_s(float(most), draw) == pytest.approx(most * (1 - draw / 10))


@pytest.mark.parametrize(
    ("waiting", "starting", "concurrency", "room", "more"),
    [
        (1, 0, 1, 9, 1),
        (4, 0, 4, 9, 1),
        (5, 0, 4, 9, 2),
        (5, 1, 4, 9, 1),
        (9, 0, 1, 3, 3),
        (0, 2, 1, 9, 0),
    ],
)
def test_one_process_more_is_started_for_each_full_share_of_what_waits(
    waiting: int, starting: int, concurrency: int, room: int, more: int
) -> None:
    assert more_needed(waiting, starting, concurrency, room) == more
