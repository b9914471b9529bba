"""Who gets which place; the daemon under a crowd is in tests/system/test_many_clients.py."""

from __future__ import annotations

import pytest

from supervisor.faces import admission
from supervisor.faces.admission import GATEWAY, RESERVED, Admission, Place
from supervisor.kernel.status import Connections
from supervisor.runtime.containment.file_limit import FileLimit

ADA, BOB = 1, 2


class Limit(FileLimit):
    number = 1024


@pytest.fixture
def facts() -> Connections:
    return Connections()


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, facts: Connections) -> Admission:
    monkeypatch.setattr(admission, "CLIENTS", 8)
    return Admission(Limit(), facts)


def admit(places: Admission, uid: int, *, idle: bool = True, number: int = 20) -> Place:
    place = places.admit(uid, number)
    assert place is not None
    place.idle = lambda: idle
    return place


def test_one_user_cannot_have_all_places(places: Admission) -> None:
    assert [admit(places, ADA).reserved for _ in range(7)] == [False] * 6 + [True]
    assert [admit(places, BOB).reserved for _ in range(3)] == [False, False, True]


def test_a_place_that_is_left_is_free_for_the_next(places: Admission, facts: Connections) -> None:
    crowd = [admit(places, ADA) for _ in range(6)]
    places.leave(crowd[0])
    assert not admit(places, ADA).reserved
    reserved = admit(places, ADA)
    assert (reserved.reserved, facts.open) == (True, 7)
    places.leave(reserved)
    assert facts.open == 6


def test_of_the_reserved_places_the_first_idle_one_is_given_to_who_comes(
    places: Admission, facts: Connections
) -> None:
    for _ in range(6):
        admit(places, ADA)
    busy = admit(places, ADA, idle=False)
    first, second, *_ = [admit(places, ADA) for _ in range(RESERVED - 1)]
    admit(places, ADA)
    assert (busy.displaced, first.displaced, second.displaced) == (False, True, False)
    assert first.scope.cancel_called
    assert facts.refused == 1
    places.leave(first)  # its place is somebody else's
    admit(places, ADA)
    assert second.displaced


def test_whoever_waits_for_an_answer_is_not_parted_from(
    places: Admission, facts: Connections
) -> None:
    for _ in range(6 + RESERVED):
        admit(places, ADA, idle=False)
    assert places.admit(ADA, 20) is None
    assert facts.refused == 1


def test_the_gateway_has_no_reserved_place(places: Admission, facts: Connections) -> None:
    for _ in range(6):
        assert not admit(places, GATEWAY, idle=False).reserved
    assert [places.admit(GATEWAY, 20) for _ in range(RESERVED)] == [None] * RESERVED
    assert (facts.open, facts.refused) == (0, RESERVED)
    for _ in range(2 + RESERVED):
        admit(places, ADA, idle=False)


def test_the_last_numbers_are_for_spawns_and_for_an_operator(places: Admission) -> None:
    limit = Limit()
    assert limit.for_clients < limit.for_spawns < limit.number
    assert not admit(places, ADA, number=limit.for_clients - 1).reserved
    assert admit(places, ADA, number=limit.for_clients).reserved


def test_when_the_limit_was_lowered_the_last_numbers_are_taken_back_from_idle_clients(
    places: Admission, facts: Connections
) -> None:
    limit = Limit()
    low = admit(places, ADA, number=limit.for_clients - 1)
    busy = admit(places, ADA, idle=False, number=limit.for_clients)
    first = admit(places, ADA, number=limit.number - 1)
    second = admit(places, ADA, number=limit.for_clients + 1)
    beyond = admit(places, ADA, number=limit.number)
    assert places.make_room()
    everybody = (low, busy, first, second, beyond)
    assert [one.displaced for one in everybody] == [False, False, True, False, False]
    assert places.make_room()
    assert not places.make_room()
    assert [one.displaced for one in everybody] == [False, False, True, True, False]
    for one in everybody:
        places.leave(one)
    assert (facts.open, facts.refused) == (0, 2)
