"""The ledger of bytes: what a party may have, what all may, and who finds room."""

from __future__ import annotations

from functools import partial

import msgspec

from supervisor.runtime.held_bytes import (
    ALL_BYTES,
    ANSWERS,
    ARGS,
    ASSETS,
    FREE_BYTES,
    LEAST_FREE_BYTES,
    PARTY_BYTES,
    PRINCIPAL_ARGS_BYTES,
    UNFINISHED_BYTES,
    Account,
    HeldBytes,
)


def full(ledger: HeldBytes, count: int) -> list[Account]:
    """Have some hold as much as they may each."""
    accounts = [Account(ledger, f"client {number}") for number in range(count)]
    for one in accounts:
        while one.fits(LEAST_FREE_BYTES) and not one.is_full:
            one.add(ARGS, LEAST_FREE_BYTES)
    return accounts


def test_a_party_with_too_many_open_requests_and_unread_answers_is_full() -> None:
    one = Account(HeldBytes(), "client 1")
    found = []
    for what, more in ((ARGS, PARTY_BYTES), (ANSWERS, 1), (ARGS, -PARTY_BYTES)):
        one.add(what, more)
        found.append(one.is_full)
    assert found == [False, True, False]


def test_all_parties_together_have_no_more_than_the_bound_beside_what_is_free() -> None:
    ledger = HeldBytes()
    accounts = full(ledger, 1000)
    assert ALL_BYTES < ledger.total <= ALL_BYTES + len(accounts) * LEAST_FREE_BYTES
    assert accounts[0].total > PARTY_BYTES >= accounts[1].total - FREE_BYTES
    assert accounts[-1].total == LEAST_FREE_BYTES
    before = ledger.total
    for one in accounts:
        one.close()
    assert (ledger.total, ledger.most) == (0, before)


def test_what_is_written_comes_on_top_of_the_bound_of_all_and_has_one_of_its_own() -> None:
    ledger = HeldBytes()
    accounts = full(ledger, 64)
    beside = ALL_BYTES + len(accounts) * LEAST_FREE_BYTES
    dropped: list[Account] = []
    for one in accounts:
        one.hold_unfinished(PARTY_BYTES // 2, partial(dropped.append, one))
        assert ledger.total <= beside + UNFINISHED_BYTES
    assert ledger.total > beside
    assert len(dropped) == len(accounts) - UNFINISHED_BYTES // (PARTY_BYTES // 2)


def test_beside_some_that_are_full_there_is_room_for_others() -> None:
    ledger = HeldBytes()
    full(ledger, 4)
    late = Account(ledger, "late")
    assert late.fits(PARTY_BYTES)
    assert late.free_bytes == FREE_BYTES
    full(ledger, 64)
    assert late.fits(LEAST_FREE_BYTES)
    assert not late.fits(FREE_BYTES)


def test_the_args_of_all_parties_of_one_principal_have_a_bound_and_others_find_room() -> None:
    ledger = HeldBytes()
    ada, bob = msgspec.Raw(b'{"name":"ada"}'), msgspec.Raw(b'{"name":"bob"}')
    first, second, last = (Account(ledger, f"client {number}", ada) for number in range(3))
    for one in (first, second):
        assert one.takes_args(PRINCIPAL_ARGS_BYTES // 2)
        one.add(ARGS, PRINCIPAL_ARGS_BYTES // 2)
    assert last.takes_args(LEAST_FREE_BYTES)
    assert not last.takes_args(LEAST_FREE_BYTES + 1)
    assert Account(ledger, "login h1", bob).takes_args(PARTY_BYTES)
    first.close()
    assert last.takes_args(PARTY_BYTES)


def test_an_answer_of_any_length_is_taken_by_who_has_read_all_before() -> None:
    one = Account(HeldBytes(), "client 1")
    assert one.takes_answer(2 * PARTY_BYTES)
    assert not one.takes_answer(ALL_BYTES + 1)
    one.hold(ANSWERS, 1)
    assert one.takes_answer(PARTY_BYTES - 1)
    assert not one.takes_answer(PARTY_BYTES)


def test_who_has_gone_holds_nothing_whatever_is_let_go_of_later() -> None:
    ledger = HeldBytes()
    one = Account(ledger, "client 1")
    one.add(ARGS, 7)
    one.add(ASSETS, 5)
    one.close()
    one.add(ARGS, -7)
    assert ledger.total == 0
    assert ledger.status()["parties"] == []


def test_status_shows_who_holds_most_and_of_what() -> None:
    ledger = HeldBytes()
    for size in range(1, 20):
        Account(ledger, f"client {size}", msgspec.Raw(b'{"name":"ada"}')).add(ASSETS, size)
    shown = ledger.status()
    assert (shown["total"], len(shown["parties"]), shown["more_parties"]) == (190, 16, 3)
    most = shown["parties"][0]
    assert (most["party"], most["total"], most["assets"], most["args"]) == ("client 19", 19, 19, 0)
