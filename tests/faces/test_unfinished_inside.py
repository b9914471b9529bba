"""Lines without an end, with the bounds of what they may take made small."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import Reason
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Capacity
from supervisor.kernel.parties import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account, HeldBounds, HeldBytes
from supervisor.runtime.turns import LoopTime, Turn
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.principals import ADA

GONE = Stopped(Reason.DISCONNECT, "it is gone")


class Writer:
    """A party that writes a line without an end."""

    def __init__(self, ledger: HeldBytes) -> None:
        self.account = Account(ledger, "a client")
        self.dropped = 0

    def has_written(self, size: int) -> None:
        self.account.hold_unfinished(size, self._drop)

    def _drop(self) -> None:
        self.dropped += 1


def test_the_longest_is_dropped_and_no_more_than_it_takes() -> None:
    ledger = HeldBytes(HeldBounds(unfinished=100))
    short, long, longest = Writer(ledger), Writer(ledger), Writer(ledger)
    longest.has_written(50)
    long.has_written(40)
    short.has_written(10)
    assert ledger.total == 100
    short.has_written(11)
    assert [one.dropped for one in (short, long, longest)] == [0, 0, 1]
    assert ledger.total == 51


def test_what_is_held_is_what_was_said_last() -> None:
    ledger = HeldBytes(HeldBounds(unfinished=100))
    one = Writer(ledger)
    for size in (10, 90, 20, 0, 100):
        one.has_written(size)
        assert ledger.total == size
    assert one.dropped == 0


async def test_clients_that_end_no_line_hold_no_more_than_the_bound(tmp_path: Path) -> None:
    bounds = Capacity(held=HeldBounds(unfinished=1 << 20))
    async with daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon:
        ledger = daemon.facts.ledger
        clients = [Conversation(daemon, Party(ADA)) for _ in range(8)]
        for _ in range(16):
            for client in clients:
                client.receive_data(b"[" * 65536)
                assert ledger.unfinished <= 1 << 20
        for client in clients:
            await client.close(GONE)
        assert ledger.total == 0


async def test_who_loses_a_line_is_told_and_is_served_after_it(tmp_path: Path) -> None:
    bounds = Capacity(held=HeldBounds(unfinished=1000))
    async with daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon:
        greedy, modest = (Conversation(daemon, Party(ADA)) for _ in range(2))
        greedy.turn = modest.turn = Turn(
            loop=LoopTime(lambda: 0.0)
        )  # nobody serves what a turn leaves
        greedy.receive_data(b'{"requestId":"' + b"x" * 900)
        modest.receive_data(b'{"requestId":"b","tool":"supervisor",' + b" " * 200)
        answer = await greedy.outbox.take()
        assert b"this was the longest; send it again" in answer
        assert b'{\\"requestId\\":\\"xxx' in answer
        assert daemon.facts.ledger.unfinished < 1000
        greedy.receive_data(
            b'still it"}\n{"requestId":"a","tool":"supervisor","operation":"health"}\n'
        )
        assert b'"requestId":"a"' in await greedy.outbox.take()
        modest.receive_data(b'"operation":"health"}\n')
        assert b'"requestId":"b"' in await modest.outbox.take()
