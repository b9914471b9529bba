"""A daemon that stays as long as it has clients, and a while longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from supervisor.daemon.serve import FIRST_CLIENT_S, end_unused
from supervisor.faces.admission import Admission
from supervisor.kernel.status import Connections
from tests.faces.test_admission import ADA, Limit


class Daemon:
    def __init__(self) -> None:
        self.facts = SimpleNamespace(connections=Connections())
        self.admission = Admission(Limit(), self.facts.connections)
        self.ended: list[tuple[float, str]] = []

    def shut_down(self, cause: str) -> None:
        self.ended.append((trio.current_time(), cause))

    async def end_unused(self, keep_s: float) -> None:
        this: Any = self
        await end_unused(this, self.admission, keep_s)


async def test_it_ends_some_time_after_its_last_client(autojump_clock: MockClock) -> None:
    del autojump_clock
    daemon = Daemon()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.end_unused, 10)
        await trio.sleep(30)
        first, second = (daemon.admission.admit(ADA, 20) for _ in range(2))
        assert first
        assert second
        await trio.sleep(100)
        daemon.admission.leave(first)
        await trio.sleep(100)
        daemon.admission.leave(second)
        await trio.sleep(6)
        third = daemon.admission.admit(ADA, 20)
        assert third
        await trio.sleep(6)
        daemon.admission.leave(third)
        assert daemon.ended == []
        left_at = trio.current_time()
    assert daemon.ended == [(left_at + 10, "no client has been connected for 10 s")]


async def test_nobody_has_to_be_quick_to_come(autojump_clock: MockClock) -> None:
    del autojump_clock
    daemon = Daemon()
    began_at = trio.current_time()
    await daemon.end_unused(1)
    assert daemon.ended[0][0] == began_at + FIRST_CLIENT_S


async def test_once_a_client_has_been_there_it_stays_no_longer_than_it_is_told(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    daemon = Daemon()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.end_unused, 5)
        client = daemon.admission.admit(ADA, 20)
        assert client
        await trio.sleep(10)
        daemon.admission.leave(client)
        left_at = trio.current_time()
    assert daemon.ended[0][0] == left_at + 5
