"""Which signal does what, without a daemon: the reload is a fake."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from supervisor.daemon import daemon_signals
from supervisor.daemon.daemon_signals import Reloading, obey
from supervisor.daemon.sd_notify import Notifier


class Told(Notifier):
    """A service manager that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def _say(self, about: str, message: str) -> None:
        del about
        self.said.append(message.partition("\n")[0])


async def sent(*signals: signal.Signals) -> AsyncIterator[int]:
    for number in signals:
        yield number
        await trio.testing.wait_all_tasks_blocked()


async def test_each_ending_signal_asks_for_the_end() -> None:
    asked: list[str] = []
    await obey(sent(signal.SIGTERM, signal.SIGINT), asked.append, Reloading(pytest.fail, Told()))
    assert asked == ["SIGTERM", "SIGINT"]


async def test_sighup_reloads_where_that_can_be_done_and_the_manager_hears_of_it() -> None:
    asked: list[str] = []
    causes: list[str] = []
    manager = Told()

    async def reload(cause: str) -> None:
        assert manager.said == ["RELOADING=1"]
        causes.append(cause)

    reloading = Reloading(reload, manager)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloading.run)
        await obey(sent(signal.SIGHUP), asked.append, reloading)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (asked, causes) == ([], ["SIGHUP"])
    assert manager.said == ["RELOADING=1", "READY=1"]


async def test_wishes_that_come_during_a_reload_make_one_more_and_no_two_overlap() -> None:
    under_way = 0
    reloads = 0
    gate = trio.Event()

    async def reload(cause: str) -> None:
        nonlocal under_way, reloads
        reloads += 1
        under_way += 1
        assert under_way == 1
        await gate.wait()
        under_way -= 1

    reloading = Reloading(reload, Told())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloading.run)
        await obey(sent(*[signal.SIGHUP] * 10), pytest.fail, reloading)
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert reloads == 2


async def test_a_reload_that_fails_ends_nothing_and_is_over() -> None:
    manager = Told()

    async def reload(cause: str) -> None:
        raise ValueError(cause)

    reloading = Reloading(reload, manager)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloading.run)
        await obey(sent(signal.SIGHUP, signal.SIGHUP), pytest.fail, reloading)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert manager.said == ["RELOADING=1", "READY=1"] * 2


async def test_sighup_of_a_closed_terminal_ends_a_daemon_that_could_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = iter([True, False])
    monkeypatch.setattr(daemon_signals, "has_terminal", lambda: next(there))
    asked: list[str] = []
    reloading = Reloading(pytest.fail, Told())
    await obey(sent(signal.SIGHUP), asked.append, reloading)
    assert asked == ["the terminal was closed"]
