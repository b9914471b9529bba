"""How a pump shares its turns: an answer that comes at once is in the turn that asked for it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import trio

from protocol.transcript import EntrySource
from supervisor.runtime.process.pipes import FEW_BYTES, Pump
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import PIECES_A_TURN
from tests.bounds import WAIT_S

ROUNDS = 10 * PIECES_A_TURN


class Module:
    """Answers at once whatever is asked; its host asks again, so and so often."""

    def __init__(self, answer: bytes) -> None:
        self.reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._answer = answer
        self.heard = 0

    def speak(self) -> None:
        os.write(self._writing, self._answer)

    def take(self, data: bytes) -> bool:
        """Hear an answer; tell whether that led to asking."""
        assert data == self._answer
        self.heard += 1
        if self.heard == ROUNDS:
            self.end()
            return False
        self.speak()
        return True

    def end(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


class Passes(trio.abc.Instrument):
    """Counts how often the event loop comes round."""

    def __init__(self) -> None:
        self.counted = 0

    def after_io_wait(self, timeout: float) -> None:
        self.counted += 1


@pytest.fixture
async def passes() -> AsyncIterator[Passes]:
    instrument = Passes()
    trio.lowlevel.add_instrument(instrument)
    yield instrument
    trio.lowlevel.remove_instrument(instrument)


async def passes_for(answer: bytes, passes: Passes) -> int:
    module = Module(answer)

    async def ended() -> None:
        await trio.lowlevel.checkpoint()

    pump = Pump("m#1", module.reading, EntrySource.MODULE, Taps(), take=module.take)
    module.speak()
    before = passes.counted
    try:
        with trio.fail_after(WAIT_S):
            await pump.run(ended)
    finally:
        module.end()
        os.close(module.reading)
    assert module.heard == ROUNDS
    return passes.counted - before


async def test_short_answers_that_come_at_once_share_turns(passes: Passes) -> None:
    assert await passes_for(b"yes\n", passes) <= 2 * ROUNDS / PIECES_A_TURN


async def test_after_much_and_after_a_few_answers_it_is_the_neighbours_turn(passes: Passes) -> None:
    assert await passes_for(b"y" * FEW_BYTES + b"\n", passes) >= ROUNDS
    assert await passes_for(b"yes\n", passes) >= ROUNDS / PIECES_A_TURN


async def test_many_modules_get_their_turns_while_others_answer_at_once() -> None:
    order: Counter[str] = Counter()
    most_ahead = 0

    class Counted(Module):
        def __init__(self, name: str) -> None:
            super().__init__(b"yes\n")
            self.name = name

        def take(self, data: bytes) -> bool:
            nonlocal most_ahead
            order[self.name] += 1
            if len(order) == 2:
                most_ahead = max(most_ahead, abs(order["a"] - order["b"]))
            return super().take(data)

    modules = [Counted("a"), Counted("b")]

    async def ended() -> None:
        await trio.lowlevel.checkpoint()

    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            for one in modules:
                pump = Pump(one.name, one.reading, EntrySource.MODULE, Taps(), take=one.take)
                one.speak()
                nursery.start_soon(pump.run, ended)
    for one in modules:
        os.close(one.reading)
    assert most_ahead <= 2 * PIECES_A_TURN
