"""The op `record`: a module's conversation, streamed to a client that may be slow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.events import Log, Progress
from protocol.transcript import Happened, Transcript, read_transcript
from supervisor.kernel.kernel import Kernel, RefusedError
from supervisor.policy.reload_plan import ReloadPlan
from tests.factories import actor, script
from tests.kernel.conftest import ask, daemon_with, refused, run_op


class Client:
    """Takes the events of a recording; reads only while it may."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.messages: list[str] = []
        self.reading = trio.Event()
        self.reading.set()
        self._some = trio.lowlevel.ParkingLot()

    async def __call__(self, event: Progress | None) -> None:
        assert isinstance(event, Log)
        assert isinstance(event.fields, dict)
        await self.reading.wait()
        self.records.append(event.fields)
        self.messages.append(event.message)
        self._some.unpark_all()

    async def until(self, event: str) -> None:
        await self.has(lambda one: one.get("event") == event)

    async def has(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        while not any(map(wanted, self.records)):
            await self._some.park()

    def transcript(self) -> Transcript:
        return read_transcript([msgspec.json.encode(one) + b"\n" for one in self.records], "t")


async def record(daemon: Kernel, client: Client, results: list[Any], **args: Any) -> None:
    args = {"module": "m", **args}
    results.append(await run_op(daemon, "record", args, client))


async def test_a_conversation_is_streamed_until_it_is_cancelled(tmp_path: Path) -> None:
    client = Client()
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(record, daemon, client, [])
        await client.until("attached")
        await ask(daemon, "m", "echo", args={"text": "hi"}).response()
        await client.has(lambda one: "outcome" in one)
        nursery.cancel_scope.cancel()
        taps = daemon.fleet.modules["m"].taps
    assert not taps.listeners
    assert client.transcript().header.module == "m"
    assert client.messages[0] == "transcript of m"
    assert client.messages[-1] == "m#1 host: outcome"
    assert client.messages[2] == "m#1 host: request"
    assert client.messages[3].startswith('m#1 host: {"requestId":')


async def test_it_ends_after_so_many_seconds(tmp_path: Path) -> None:
    client, results = Client(), list[Any]()
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await record(daemon, client, results, seconds=0.01)
    last = client.transcript().entries[-1]
    assert (last.event, last.why) == (Happened.ENDED, "the time is over")
    assert results == [{"module": "m", "entries": len(client.records) - 1, "missing_bytes": 0}]


async def test_with_restart_it_begins_with_the_spawn_of_a_new_process(tmp_path: Path) -> None:
    client, results = Client(), list[Any]()
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: record(daemon, client, results, restart=True, until_exit=True))
        await client.until("spawned")
        m = daemon.fleet.modules["m"]
        await daemon.fleet.wait_until(lambda: m.is_ready() or None)
        await ask(daemon, "m", "exit", args={"code": 3}).response()
    transcript = client.transcript()
    assert transcript.flaws == ()
    entries = transcript.instances()["m#2"]
    assert "m#1" not in transcript.instances()
    assert entries[0].event is Happened.SPAWNED
    # The end of the process, and what became of the request that it left.
    assert [one.exit_code for one in entries if one.event is Happened.EXITED] == [3]
    assert entries[-1].outcome is not None
    assert entries[-1].op == "exit"
    assert transcript.entries[-1].why == "a process ended"


async def test_a_tool_is_recorded_until_its_process_has_ended(tmp_path: Path) -> None:
    client, results = Client(), list[Any]()
    body = 'read line; echo \'{"version":"0","type":"done","ok":true}\''
    tool = script(tmp_path, body)
    async with daemon_with(tmp_path, tool) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: record(daemon, client, results, until_exit=True))
        await client.has(lambda one: "transcript" in one)
        assert (await ask(daemon, "m", "light").response()).ok
    assert client.transcript().flaws == ()
    assert [one.op for one in client.transcript().entries if one.outcome is not None] == ["light"]


async def test_it_ends_with_its_module(tmp_path: Path) -> None:
    client, results = Client(), list[Any]()
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(record, daemon, client, results)
        await client.until("attached")
        await daemon.fleet.apply(ReloadPlan(removed=(daemon.fleet.modules["m"].descriptor,)))
    assert [one.event for one in client.transcript().entries][-2:] == [
        Happened.EXITED,
        Happened.ENDED,
    ]
    assert client.transcript().entries[-1].why == "the module was removed"
    assert results[0]["module"] == "m"


async def test_an_unknown_module_is_refused(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        with pytest.raises(RefusedError, match="there is no module 'n'"):
            await record(daemon, Client(), [], module="n")
        refusal = await refused(daemon, "record", {"module": "m", "seconds": 0})
        assert "seconds" in refusal.message
