"""Followers of a log: each reads at its own pace, and what they leave unread is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from protocol.events import Log
from supervisor.kernel.kernel import Congestion, Handle, Kernel, Party
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import GONE, Asker, ask, begin, daemon_with, own, run_op
from tests.principals import ADA

SAYS = """
import json, sys
for line in sys.stdin:
    frame = json.loads(line)
    said = {"status": "ok"} if frame["operation"] == "health" else {"ok": True, "result": None}
    if frame["operation"] == "describe":
        said = {"name": "m", "kind": "tool"}
    if frame["operation"] == "invoke":
        args = frame["input"]["args"]
        for number in range(args["first"], args["last"] + 1):
            print(number, file=sys.stderr, flush=True)
    print(json.dumps({"requestId": frame["requestId"], **said}), flush=True)
"""

KEPT = 1000
"""Lines that wait for a follower; the oldest are left out beyond that."""


class Follower(Asker):
    handle: Handle

    @property
    def lines(self) -> list[str]:
        return [str(one.message) for one in self.events if isinstance(one, Log)]

    def resume(self) -> None:
        self.slow = Congestion.NONE
        self.handle.resume()

    async def leave(self) -> None:
        self.handle.cancel(GONE)
        await self.response()


async def follow(daemon: Kernel, lines: int = 1) -> Follower:
    """Follow the log of `m`; returns once that has begun, with so many lines."""
    follower = Follower()
    content = {"op": "logs", "args": {"module": "m", "follow": True, "lines": lines}}
    handle = daemon.begin(Party(ADA), "supervisor", "invoke", content, follower)
    assert handle is not None
    follower.handle = handle
    await follower.heard(lines)
    return follower


async def say(daemon: Kernel, first: int, last: int) -> None:
    """Have the module say these numbers; returns once they are in its log."""
    assert (await ask(daemon, "m", "say", args={"first": first, "last": last}).document())["ok"]
    seen: list[str] = []

    async def take(event: Any) -> None:
        seen.append(event.message)

    while str(last) not in seen[-1:]:
        await run_op(daemon, "logs", {"module": "m", "lines": 1}, take)


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[Kernel]:
    async with daemon_with(folder, descriptor(folder, [*PYTHON, "-c", SAYS])) as daemon:
        yield daemon


async def held(daemon: Kernel) -> dict[str, int]:
    """Return the bytes of logs that are held, by party."""
    shown = (await own(daemon, ADA, "status"))["daemon"]["held_bytes"]["parties"]
    return {one["party"]: one["logs"] for one in shown if one.get("logs")}


async def test_each_follower_gets_the_lines_from_when_it_came(tmp_path: Path) -> None:
    async with followed(tmp_path) as daemon:
        first = await follow(daemon)
        await say(daemon, 1, 3)
        second = await follow(daemon, lines=2)
        await say(daemon, 4, 5)
        await first.heard(6)
        await second.heard(4)
        assert first.lines[1:] == ["1", "2", "3", "4", "5"]
        assert second.lines == ["2", "3", "4", "5"]
        third = await follow(daemon, lines=0)
        await begin(daemon, "m", "health").response()
        await trio.testing.wait_all_tasks_blocked()
        await first.leave()
        await say(daemon, 6, 6)
        await third.heard(1)
        assert third.lines == ["6"]
        await second.heard(5)
        assert (first.lines[-1], second.lines[-1]) == ("5", "6")
        await second.leave()
        error = (await second.document())["error"]
        assert (error["code"], error["message"]) == ("cancelled", GONE.message)
        last = second.events[-1]
        assert isinstance(last, Log)
        assert isinstance(last.fields, dict)
        assert (last.level, last.fields["stream"]) == ("info", "stderr")


@pytest.mark.parametrize("more", [0, 1, 30])
async def test_a_follower_that_does_not_read_is_told_how_many_lines_were_left_out(
    more: int, tmp_path: Path
) -> None:
    async with followed(tmp_path) as daemon:
        quick, slow = await follow(daemon), await follow(daemon)
        slow.slow = Congestion.SLOW
        await say(daemon, 1, 1)
        await quick.heard(2)
        await trio.testing.wait_all_tasks_blocked()  # the line 1 waits for room
        for first, last in (2, KEPT // 2), (KEPT // 2 + 1, KEPT + 1 + more):
            await say(daemon, first, last)
            await quick.heard(last + 1)
        held_by = await held(daemon)
        kept = list(map(str, range(2 + more, KEPT + 2 + more)))
        assert held_by == {"the followed log of m": sum(128 + len(line) for line in kept)}
        slow.resume()
        await slow.heard(KEPT + 2 + bool(more))
        told = [f"{more} lines were left out: the reader was too slow"] if more else []
        assert slow.lines[1:] == ["1", *told, *kept]
        assert quick.lines[1:] == [*map(str, range(1, KEPT + 2 + more))]
        await slow.leave()
        await say(daemon, 0, 0)
        await quick.heard(KEPT + 3 + more)
        await quick.leave()
        while await held(daemon):
            await trio.lowlevel.checkpoint()
