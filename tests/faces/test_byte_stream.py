from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.faces import byte_stream
from supervisor.faces.outbox import HIGH_BYTES
from supervisor.policy.lifecycle import State
from tests.faces.in_process import connected
from tests.faces.lines import request
from tests.factories import actor, children, open_files, opened_since, script
from tests.kernel.conftest import daemon_with

CALM = {"health": {"interval_s": 1000}, "timeouts": {"stop_s": 0.1}}


async def test_a_client_that_ended_its_side_still_gets_its_answer(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, connected(daemon) as client:
        line = b'{"requestId":"a","tool":"m","operation":"invoke","input":{"op":"echo"}}'
        await client.send(line)  # without its newline
        await client.stream.send_eof()
        (done,) = await client.rest()
        assert (done["requestId"], done["ok"]) == ("a", True)


@pytest.mark.parametrize("half_closed_first", [False, True])
async def test_a_client_that_vanished_has_its_requests_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_closed_first: bool
) -> None:
    monkeypatch.setattr(byte_stream, "LOOK_S", 0.01)
    async with daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon:
        m = daemon.fleet.modules["m"]
        async with connected(daemon) as client:
            await client.send(request("a", "m", op="hang"), request("b", "m", op="hang"))
            while (m.in_flight, m.queued) != (1, 1):
                await trio.testing.wait_all_tasks_blocked()
            if half_closed_first:
                await client.stream.send_eof()
                await trio.testing.wait_all_tasks_blocked()
            await client.stream.aclose()
            while m.tally.failures < 2:
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert (m.in_flight, m.queued) == (0, 0)
        assert m.state is State.READY


async def test_a_client_that_reads_nothing_costs_bounded_memory_and_nobody_else(
    tmp_path: Path,
) -> None:
    noisy = actor(tmp_path, name="noisy", supervision=CALM)
    quiet = actor(tmp_path, name="quiet", supervision=CALM)
    async with (
        daemon_with(tmp_path, noisy, quiet) as daemon,
        connected(daemon, buffer_bytes=4096) as slow,
        connected(daemon) as other,
    ):
        count = 40_000
        await slow.send(request("s", "noisy", op="events", args={"count": count, "pad": "x" * 100}))
        (call,) = await _calls(daemon)
        while not call.listener.congested():
            await trio.testing.wait_all_tasks_blocked(0.001)
        outbox = call.listener.client.outbox
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert outbox.waiting_bytes < HIGH_BYTES + 2 * 65536
        for number in range(20):
            await other.send(request(str(number), "quiet", op="echo"))
            assert (await other.done())["ok"] is True
        assert outbox.waiting_bytes < HIGH_BYTES + 2 * 65536
        events = 0
        while (line := await slow.line() or {})["type"] != "done":
            assert line["message"].startswith(f"{events} ")
            events += 1
        assert (events, line["ok"]) == (count, True)


async def _calls(daemon: object) -> list:  # type: ignore[type-arg]
    life = daemon.fleet.modules["noisy"].workers[0].life  # type: ignore[attr-defined]
    while not life._calls:
        await trio.testing.wait_all_tasks_blocked()
    return list(life._calls.values())


async def test_a_client_that_writes_and_never_reads_is_not_read_for_ever(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        connected(daemon, buffer_bytes=4096) as client,
        trio.open_nursery() as nursery,
    ):
        written = 0

        async def flood() -> None:
            nonlocal written
            while True:
                await client.send(b"not json\n" * 1000)
                written += 9000

        nursery.start_soon(flood)
        before = -1
        while written != before:
            before = written
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert written < 4 * HIGH_BYTES
        nursery.cancel_scope.cancel()


async def test_conversations_leave_no_process_and_no_descriptor(tmp_path: Path) -> None:
    before = open_files()
    made = script(tmp_path, "sleep 1000", supervision={"timeouts": {"stop_s": 0.05}})
    async with daemon_with(tmp_path, made, actor(tmp_path, name="n")) as daemon:
        for _ in range(20):
            async with connected(daemon) as client:
                await client.send(request("a", "m", op="x"), request("b", "n", op="echo"))
                assert (await client.done())["requestId"] == "b"
    assert children() == []
    assert not opened_since(before)


async def test_reading_from_a_closed_side_is_its_end() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.set_blocking(reading, False)
    assert await byte_stream.read_some(reading) == b""
    os.close(reading)
    assert await byte_stream.read_some(reading) == b""
