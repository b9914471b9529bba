"""What one client writes is served a turn at a time, and the others have theirs in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.errors import Reason
from supervisor.faces.conversation import Conversation
from supervisor.kernel.parties import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.turns import TURN_S, LoopTime, Turn
from tests.faces.lines import request
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.principals import ADA

MANY = 200
LOOKS_A_TURN = 5


class Ticking:
    """A clock that goes on by a part of a turn with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TURN_S / LOOKS_A_TURN
        return self.now


def lines(*numbers: int, tool: str = "nobody") -> bytes:
    frames = [request(str(number), tool, op="go") for number in numbers]
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


async def answered(conversation: Conversation) -> list[str]:
    """Return the ids of what was answered, in order."""
    return [
        json.loads(line)["requestId"]
        for line in (await conversation.outbox.take()).splitlines()
        if b'"done"' in line
    ]


@pytest.mark.fault(29)
async def test_of_many_misspelt_names_a_few_are_answered_in_a_turn_and_all_in_order(
    tmp_path: Path,
) -> None:
    modules = [actor(tmp_path, name=f"m{n}", supervision={"start": "lazy"}) for n in range(100)]
    async with daemon_with(tmp_path, *modules) as daemon, trio.open_nursery() as nursery:
        greedy, modest = Conversation(daemon, Party(ADA)), Conversation(daemon, Party(ADA))
        greedy.turn = Turn(loop=LoopTime(Ticking()))
        modest.turn = Turn(
            loop=LoopTime(lambda: 0.0)
        )  # one request is within its turn, however long that takes
        greedy.receive_data(lines(*range(MANY)))
        told = await answered(greedy)
        assert 0 < len(told) <= LOOKS_A_TURN
        turns = 1
        nursery.start_soon(greedy.serve_held)
        while len(told) < MANY:
            modest.receive_data(lines(turns))  # served at once, whatever waits of the other one
            assert await answered(modest) == [str(turns)]
            more = await answered(greedy)
            assert len(more) <= 2 * LOOKS_A_TURN
            told += more
            turns += 1
        assert told == [str(number) for number in range(MANY)]
        assert turns >= MANY / LOOKS_A_TURN / 2
        nursery.cancel_scope.cancel()


@pytest.mark.fault(29)
async def test_a_cancel_does_not_wait_for_the_clients_next_turn(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        client = Conversation(daemon, Party(ADA))
        client.receive_data(json.dumps(request("a", "m", op="hang")).encode() + b"\n")
        client.turn = Turn(loop=LoopTime(Ticking()))
        cancel = b'{"requestId":"a","operation":"cancel"}\n'
        client.receive_data(lines(*range(MANY)) + cancel)
        assert "a" in await answered(client)
        nursery.cancel_scope.cancel()


@pytest.mark.fault(29)
async def test_what_a_client_leaves_open_is_given_up_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    async def neighbour() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        client = Conversation(daemon, Party(ADA))
        client.turn = Turn(loop=LoopTime(lambda: 0.0))
        frames = [request(str(number), "m", op="hang") for number in range(MANY)]
        client.receive_data(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each is a turn of its own
        nursery.start_soon(neighbour)
        await client.close(Stopped(Reason.DISCONNECT, "the client hung up"))
        nursery.cancel_scope.cancel()
        assert client.is_idle()
    assert rounds >= MANY // 2
