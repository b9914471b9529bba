"""The queue of an observer: bounded in both ways, nothing lost uncounted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.descriptor.model import Drop
from supervisor.kernel.hooks.registry import EventQueue, Waiting
from supervisor.runtime.held_bytes import (
    ALL_BYTES,
    ANSWERS,
    ARGS,
    LEAST_FREE_BYTES,
    Account,
    HeldBytes,
)

LIMIT_BYTES = 10
STEPS = st.lists(st.integers(0, LIMIT_BYTES + 2) | st.none())


def account(ledger: HeldBytes | None = None) -> Account:
    return Account(ledger or HeldBytes(), "hook h")


def one(number: int, size: int) -> Waiting:
    return Waiting(str(number), b"x" * size, frozenset())


@given(st.integers(1, 4), st.sampled_from(Drop), STEPS)
def test_it_is_bounded_keeps_the_order_and_counts_what_it_loses(
    limit: int, drop: Drop, steps: list[int | None]
) -> None:
    queue = EventQueue(limit, drop, account(), LIMIT_BYTES)
    put = 0
    taken: list[int] = []
    for size in steps:
        if size is not None:
            queue.put(one(put, size))
            put += 1
        elif queue:
            taken.append(int(queue.take().event))
        assert len(queue) <= limit
        assert 0 <= queue.held_bytes <= LIMIT_BYTES
        assert len(taken) + len(queue) + queue.dropped == put
    while queue:
        taken.append(int(queue.take().event))
    assert taken == sorted(taken)
    assert queue.held_bytes == 0


@given(st.integers(1, 5), st.integers(0, 9))
def test_which_end_loses_is_as_declared(limit: int, count: int) -> None:
    kept = {}
    for drop in Drop:
        queue = EventQueue(limit, drop, account())
        for number in range(count):
            queue.put(one(number, 1))
        kept[drop] = [int(queue.take().event) for _ in range(len(queue))]
    everything = list(range(count))
    assert kept[Drop.NEWEST] == everything[:limit]
    assert kept[Drop.OLDEST] == everything[-limit:]


def test_a_smaller_bound_holds_at_once() -> None:
    queue = EventQueue(5, Drop.NEWEST, account())
    for number in range(5):
        queue.put(one(number, 1))
    queue.bound(2, Drop.NEWEST)
    assert (len(queue), queue.dropped, queue.take().event) == (2, 3, "3")


@pytest.mark.fault(30)
@pytest.mark.parametrize("drop", Drop)
def test_what_waits_is_in_the_ledger_and_drops_where_that_has_no_room(drop: Drop) -> None:
    ledger = HeldBytes()
    Account(ledger, "others").add(ARGS, ALL_BYTES)
    queue = EventQueue(1000, drop, account(ledger))
    size = LEAST_FREE_BYTES // 4
    for number in range(10):
        queue.put(one(number, size))
        assert ledger.total <= ALL_BYTES + LEAST_FREE_BYTES
    [_, shown] = ledger.status()["parties"]
    assert (shown["party"], shown[ANSWERS]) == ("hook h", LEAST_FREE_BYTES)
    assert (len(queue), queue.dropped) == (4, 6)
    queue.bound(0, drop)
    assert ledger.total == ALL_BYTES


@pytest.mark.fault(30)
@pytest.mark.parametrize("drop", Drop)
def test_what_others_hold_takes_nothing_from_what_waits_already(drop: Drop) -> None:
    ledger = HeldBytes()
    queue = EventQueue(1000, drop, account(ledger))
    for number in range(8):
        queue.put(one(number, LEAST_FREE_BYTES // 4))
    Account(ledger, "others").add(ARGS, ALL_BYTES)
    queue.put(one(8, 1))
    queue.bound(999, drop)
    assert (len(queue), queue.dropped, queue.take().event) == (8, 1, "0")
