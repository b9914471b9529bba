"""Signals arrive in order, and what is not asked for does not."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from supervisor.daemon.daemon_signals import receiving

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*NUMBERS, signal.SIGALRM)}
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


async def test_more_signals_than_a_pipe_holds_are_no_error() -> None:
    with receiving(NUMBERS) as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGUSR1)
        assert await anext(signals) == signal.SIGUSR1
