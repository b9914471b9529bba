"""How stdout is read in turns: an answer that comes at once is in the turn that asked for it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import trio

from protocol.connection import NOTHING, Events
from supervisor.runtime.process.incarnation import FEW_BYTES
from supervisor.runtime.turns import PIECES_A_TURN
from tests.bounds import WAIT_S
from tests.runtime.process.stage import FakeConnection, Passes, Stage

ROUNDS = 10 * PIECES_A_TURN


class Module(FakeConnection):
    """Answers at once whatever is asked; its host asks again, so and so often."""

    def __init__(self, answer: bytes, name: str = "m#1") -> None:
        super().__init__()
        self.stage = Stage(self, name)
        self._answer = answer
        self.heard = 0
        self.ended = trio.Event()

    def start(self) -> Events:
        return NOTHING

    def speak(self) -> None:
        os.write(self.stage.process.says, self._answer)

    def receive_data(self, data: bytes) -> Events:
        assert data == self._answer
        self.heard += 1
        if self.heard == ROUNDS:
            self.ended.set()
        elif self.heard < ROUNDS:
            self.outgoing.add(b"again\n")
            self.speak()
        return NOTHING


@pytest.fixture
async def passes() -> AsyncIterator[Passes]:
    instrument = Passes()
    trio.lowlevel.add_instrument(instrument)
    yield instrument
    trio.lowlevel.remove_instrument(instrument)


async def passes_for(answer: bytes, passes: Passes) -> int:
    module = Module(answer)
    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            await module.stage.begin(nursery)
            before = passes.counted
            module.speak()
            await module.ended.wait()
            counted = passes.counted - before
            module.stage.process.end()
    assert module.heard == ROUNDS
    return counted


async def test_short_answers_that_come_at_once_share_turns(passes: Passes) -> None:
    assert await passes_for(b"yes\n", passes) <= 2 * ROUNDS / PIECES_A_TURN


async def test_after_much_and_after_a_few_answers_it_is_the_neighbours_turn(passes: Passes) -> None:
    assert await passes_for(b"y" * FEW_BYTES + b"\n", passes) >= ROUNDS
    assert await passes_for(b"yes\n", passes) >= ROUNDS / PIECES_A_TURN


async def test_many_modules_get_their_turns_while_others_answer_at_once() -> None:
    order: Counter[str] = Counter()
    most_ahead = 0

    class Counted(Module):
        def receive_data(self, data: bytes) -> Events:
            nonlocal most_ahead
            order[self.stage.incarnation.instance] += 1
            if len(order) == 2:
                most_ahead = max(most_ahead, abs(order["a"] - order["b"]))
            return super().receive_data(data)

    modules = [Counted(b"yes\n", name) for name in "ab"]
    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            for one in modules:
                await one.stage.begin(nursery)
            for one in modules:
                one.speak()
            for one in modules:
                await one.ended.wait()
                one.stage.process.end()
    assert most_ahead <= 2 * PIECES_A_TURN
