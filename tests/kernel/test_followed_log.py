"""A log that many follow is kept once, within bounds, and each reads at its own pace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.kernel.kernel import HeldBounds
from supervisor.kernel.operations import modules as followed_log
from supervisor.kernel.operations.modules import FollowedLogs, Follower
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.held_bytes import HeldBytes


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ModuleLog]:
    files = LogFiles(tmp_path)
    yield ModuleLog("m", files, lambda: 1.0)
    files.close()


def say(log: ModuleLog, *numbers: int) -> None:
    log.stderr_lines("m#1", [str(number) for number in numbers])


async def test_each_gets_all_lines_from_when_it_came_at_its_own_pace(log: ModuleLog) -> None:
    logs = FollowedLogs(HeldBytes())
    with logs.following(log) as first:
        say(log, 1, 2)
        with logs.following(log) as second:
            say(log, 3)
            assert [(await first.next())[1].text for _ in range(3)] == ["1", "2", "3"]
            assert (await second.next())[1].text == "3"
            async with trio.open_nursery() as nursery:
                heard: list[str] = []

                async def wait(one: Follower) -> None:
                    heard.append((await one.next())[1].text)

                nursery.start_soon(wait, first)
                nursery.start_soon(wait, second)
                await trio.testing.wait_all_tasks_blocked()
                say(log, 4)
            assert heard == ["4", "4"]


@pytest.mark.fault(30)
@pytest.mark.parametrize("bound", ["lines", "bytes", "ledger"])
async def test_who_is_slow_is_told_how_much_was_left_out_and_nothing_grows(
    log: ModuleLog, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    cost = followed_log.LINE_COST_BYTES + 2
    if bound == "lines":
        monkeypatch.setattr(followed_log, "FOLLOWED_LINES", 3)
    elif bound == "bytes":
        monkeypatch.setattr(followed_log, "FOLLOWED_BYTES", 3 * cost)
    held = HeldBounds(all=0, least_free=3 * cost) if bound == "ledger" else HeldBounds()
    ledger = HeldBytes(held)
    logs = FollowedLogs(ledger)
    with ExitStack() as followers:
        slow = [followers.enter_context(logs.following(log)) for _ in range(100)]
        say(log, *range(10, 60))
        assert ledger.total == 3 * cost  # however many follow
        for one in slow:
            left_out, line = await one.next()
            assert (left_out, line.text) == (47, "57")
            assert (await one.next())[0] == 0
    assert ledger.total == 0
    assert not log._followers
