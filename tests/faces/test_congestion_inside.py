"""What waits for and of clients within bounds that are made small."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Success
from supervisor.faces.outbox import HIGH_BYTES
from supervisor.kernel import status
from supervisor.kernel.kernel import Capacity
from supervisor.runtime.held_bytes import HeldBounds
from tests.faces.in_process import connected
from tests.faces.lines import request
from tests.factories import actor
from tests.kernel.conftest import daemon_with


def cancel(request_id: str) -> dict[str, Any]:
    return {"requestId": request_id, "operation": "cancel"}


async def test_answers_that_are_not_read_are_not_made_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, made = 100, 0

    def big(*_: object, **__: object) -> dict[str, Any]:
        nonlocal made
        made += 1
        return {"status": "x" * (HIGH_BYTES // 4), "waits_for": [], "missing": []}

    monkeypatch.setattr(status, "module_status", big)
    async with (
        daemon_with(tmp_path, actor(tmp_path)) as daemon,
        connected(daemon) as client,
    ):
        # All in one chunk, and no task between a request and its answer.
        asked = [request(str(n), "supervisor", "status", module="m") for n in range(count)]
        await client.send(*asked)
        await client.stream.send_eof()
        while not made:
            await trio.testing.wait_all_tasks_blocked()
        assert made < 10
        lines = await client.rest()
        assert [int(line["requestId"]) for line in lines] == list(range(count))
        assert all(line["ok"] for line in lines)


async def test_a_client_that_asks_too_much_at_a_time_waits_and_another_one_does_not(
    tmp_path: Path,
) -> None:
    bounds = Capacity(held=HeldBounds(party=8000))
    async with (
        daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon,
        connected(daemon) as greedy,
        connected(daemon) as modest,
    ):
        hang = request("a", "m", op="hang", args={"pad": "x" * 8000})
        await greedy.send(hang, request("b", "supervisor", "health"))
        await modest.send(request("c", "supervisor", "health"))
        assert (await modest.done())["ok"]
        (shown,) = daemon.facts.ledger.status()["parties"]
        assert (shown["args"] > 8000, shown["lines"] > 0) == (True, True)
        await greedy.send(cancel("a"))
        assert [(await greedy.done())["requestId"] for _ in range(2)] == ["a", "b"]
        assert daemon.facts.ledger.total == 0


@pytest.mark.fault(30)
async def test_no_more_large_args_wait_for_a_module_than_one_client_may_have(
    tmp_path: Path,
) -> None:
    bounds = Capacity(held=HeldBounds(party=20_000))
    count, size, taken = 9, 9_000, 3  # with the last of these it is too much
    async with (
        daemon_with(
            tmp_path, actor(tmp_path, supervision={"concurrency": 1}), bounds=bounds
        ) as daemon,
        connected(daemon) as client,
    ):
        args = {"pad": "x" * size}
        asked = [request(str(n), "m", op="hang", args=args) for n in range(count)]
        await client.send(*asked)
        ledger, module = daemon.facts.ledger, daemon.fleet.modules["m"]

        def arrived() -> int:
            lines = sum(one["lines"] for one in ledger.status()["parties"])
            return module.in_flight + module.queued + int(lines // size)

        while arrived() < count:
            await trio.testing.wait_all_tasks_blocked()
        assert module.in_flight + module.queued == taken
        [shown] = ledger.status()["parties"]
        assert taken * size < shown["args"] < (taken + 1) * size
        for number in range(count):  # each makes room for another one
            assert module.in_flight + module.queued <= taken
            await client.send(cancel(str(number)))
            assert (await client.done())["requestId"] == str(number)
        assert ledger.total == 0


async def test_a_request_that_finds_no_room_is_refused_and_a_small_one_is_not(
    tmp_path: Path,
) -> None:
    bounds = Capacity(held=HeldBounds(least_free=10_000, all=60_000))
    async with (
        daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon,
        AsyncExitStack() as clients,
    ):
        hoarders = [await clients.enter_async_context(connected(daemon)) for _ in range(2)]
        for one in hoarders:
            await one.send(request("a", "m", op="hang", args={"pad": "x" * 18_000}))
        late = await clients.enter_async_context(connected(daemon))
        large = request("large", "supervisor", "health", pad="x" * 30_000)
        await late.send(large, request("small", "supervisor", "health"))
        refused, served = await late.done(), await late.done()
        assert refused["error"]["details"]["reason"] == "queue_full"
        assert (served["requestId"], served["ok"]) == ("small", True)
        for one in hoarders:
            await one.send(cancel("a"))
            await one.done()
        await late.send(large)
        assert "queue_full" not in str(await late.done())


async def test_an_answer_that_finds_no_room_is_told_as_one(
    tmp_path: Path,
) -> None:
    bounds = Capacity(held=HeldBounds(party=HIGH_BYTES * 2))
    async with (
        daemon_with(
            tmp_path, actor(tmp_path, supervision={"concurrency": 4}), bounds=bounds
        ) as daemon,
        connected(daemon, buffer_bytes=4096) as client,
    ):
        module = daemon.fleet.modules["m"]
        await client.send(*(request(name, "m", op="hang") for name in "ab"))
        while module.in_flight < 2:
            await trio.testing.wait_all_tasks_blocked()
        life: Any = module.workers[0].life
        for call in list(life._calls.values()):
            life._calls.pop(call.request.request_id)
            call.settle(Success("x" * HIGH_BYTES * 2))
        first, second = await client.done(), await client.done()
        assert (first["ok"], second["ok"]) == (True, False)
        assert second["error"]["details"] == {
            "origin": "host",
            "reason": "slow_reader",
            "succeeded": True,
        }
        assert second["module"] == "m"
