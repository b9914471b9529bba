"""Signals arrive in order, and what is not asked for does not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import BuiltinFunctionType

import pytest

from supervisor.daemon.daemon_signals import Continued, receiving

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {
        number: signal.getsignal(number) for number in (*NUMBERS, signal.SIGALRM, signal.SIGCONT)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_signals_come_in_the_order_in_which_they_were_sent() -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    with receiving(NUMBERS) as signals:
        sent = (signal.SIGUSR2, signal.SIGALRM, signal.SIGUSR1)
        for number in sent:
            signal.raise_signal(number)
        assert [await anext(signals), await anext(signals)] == [signal.SIGUSR2, signal.SIGUSR1]
        signal.raise_signal(signal.SIGUSR2)
        assert await anext(signals) == signal.SIGUSR2


async def test_what_was_kept_comes_first() -> None:
    kept = {int(signal.SIGUSR2): None, int(signal.SIGUSR1): None}
    with receiving(NUMBERS, kept) as signals:
        assert [await anext(signals), await anext(signals)] == [signal.SIGUSR2, signal.SIGUSR1]
        signal.raise_signal(signal.SIGUSR2)
        assert await anext(signals) == signal.SIGUSR2


async def test_more_signals_than_a_pipe_holds_are_no_error() -> None:
    with receiving(NUMBERS) as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGUSR1)
        assert await anext(signals) == signal.SIGUSR1


async def test_no_handler_runs_code_that_could_raise_into_the_event_loop() -> None:
    continued = Continued()
    with receiving(NUMBERS):
        handlers = [signal.getsignal(number) for number in (*NUMBERS, signal.SIGCONT)]
        assert all(isinstance(one, BuiltinFunctionType) for one in handlers)
        for _ in range(2):
            signal.raise_signal(signal.SIGCONT)
        assert [continued(), continued()] == [True, False]
