"""What a process is told: events in their order, all bytes written, waits kept."""

from __future__ import annotations

import os

import pytest
import trio
import trio.testing

from protocol.connection import Alive, HostCalled, Request, Stray, Wait
from protocol.errors import Success
from protocol.framing import AT_ONCE_BYTES
from protocol.host_call import HostCall
from protocol.replies import Operation
from supervisor.runtime.process import incarnation as incarnation_module
from tests.runtime.process.stage import Stage

Clock = trio.testing.MockClock
REQUEST = Request("r1", Operation.HEALTH)


@pytest.fixture
async def stage(nursery: trio.Nursery) -> Stage:
    stage = Stage()
    await stage.begin(nursery)
    return stage


async def test_each_verb_has_its_bytes_written_without_an_event_to_tell(stage: Stage) -> None:
    assert stage.process.read() == ["start"]
    assert stage.incarnation.receive_data(b"x")
    assert stage.process.read() == ["data"]
    stage.incarnation.ask(REQUEST)
    assert stage.process.read() == ["ask"]
    assert stage.ear.received == []


async def test_what_many_events_lead_to_makes_one_write_and_is_received_after_them(
    stage: Stage,
) -> None:
    stage.process.read()
    stage.connection.leads_to = {"data": [Stray("1"), Stray("2")], "ask": [Stray("3"), Stray("4")]}
    stage.ear.then = {
        "1": lambda: stage.incarnation.ask(REQUEST),
        "3": lambda: stage.incarnation.cancel("r1"),
    }
    stage.incarnation.receive_data(b"x")
    assert [one.excerpt for one in stage.ear.received if isinstance(one, Stray)] == list("1234")
    assert stage.ear.deepest == 1
    assert stage.process.read() == ["data", "ask", "cancel"]


async def test_before_and_after_its_process_nothing_is_written(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.incarnation.ask(REQUEST)
    assert stage.process.read() == []
    await stage.begin(nursery)
    assert stage.process.read() == ["ask", "start"]
    stage.connection.leads_to = {"exited 3": [Alive()]}
    stage.process.end(3)
    await trio.testing.wait_all_tasks_blocked()
    assert stage.ear.received == [Alive()]
    stage.incarnation.answer(HostCalled(None, HostCall("c1", "log", {}), 1), Success({}))
    assert stage.connection.told[-2:] == ["eof", "exited 3"]


async def test_the_end_of_the_output_is_told_once(stage: Stage) -> None:
    stage.process.close(stage.process.says)
    await trio.testing.wait_all_tasks_blocked()
    stage.process.end()
    await trio.testing.wait_all_tasks_blocked()
    assert stage.connection.told == ["start", "eof", "exited 0"]


@pytest.fixture
async def running(stage: Stage, nursery: trio.Nursery, mock_clock: Clock) -> Stage:
    nursery.start_soon(stage.deadlines.run)
    await trio.testing.wait_all_tasks_blocked()
    return stage


async def pass_time(clock: Clock, seconds: float) -> None:
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


def waits(stage: Stage) -> list[str]:
    return [one.removeprefix("time ") for one in stage.connection.told if one.startswith("time")]


async def test_a_wait_goes_on_as_long_as_it_is_the_same_object(
    running: Stage, mock_clock: Clock
) -> None:
    whole, pause = Wait(10, "whole"), Wait(1, "pause")
    running.connection.waits = (whole,)
    running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 6)
    running.connection.waits = (whole, pause)
    running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 1)
    assert waits(running) == ["pause"]
    running.connection.waits = (whole,)
    running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 3)
    assert waits(running) == ["pause", "whole"]


async def test_an_equal_wait_that_is_another_object_begins_anew(
    running: Stage, mock_clock: Clock
) -> None:
    running.connection.waits = (Wait(10, "it"),)
    running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 9)
    running.connection.waits = (Wait(10, "it"),)
    running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 9)
    assert waits(running) == []
    await pass_time(mock_clock, 1)
    assert waits(running) == ["it"]
    await pass_time(mock_clock, 100)  # over is over, though it still stands there
    assert waits(running) == ["it"]


@pytest.mark.parametrize("end", ["exited", "close", "no wait"])
async def test_nobody_waits_for_what_is_over(running: Stage, mock_clock: Clock, end: str) -> None:
    running.connection.waits = (Wait(10, "it"),)
    running.incarnation.receive_data(b"x")
    if end == "exited":
        running.process.end()
        await trio.testing.wait_all_tasks_blocked()
    elif end == "close":
        running.incarnation.close()
    else:
        running.connection.waits = ()
        running.incarnation.receive_data(b"x")
    await pass_time(mock_clock, 100)
    assert waits(running) == []
    assert not [timer for _, _, timer in running.deadlines._heap if timer.action is not None]


async def test_it_is_congested_when_much_waits_that_no_request_is_made_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incarnation_module, "HIGH_BYTES", 100)
    stage.connection.outgoing.add(b"x" * 1_000_000, "r0")
    assert stage.incarnation.write_now()
    assert not stage.incarnation.congested
    stage.connection.outgoing.add(b"y" * 101, "r1")
    assert not stage.incarnation.congested
    stage.connection.outgoing.add(b"y" * 101)
    assert stage.incarnation.congested


async def test_one_that_is_told_much_and_does_not_read_is_not_read_from_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incarnation_module, "HIGH_BYTES", 100)
    for _ in range(3):
        stage.connection.outgoing.add(b"x" * AT_ONCE_BYTES)
    for _ in range(3):
        os.write(stage.process.says, b"x")
        await trio.testing.wait_all_tasks_blocked()
    assert stage.incarnation.times_heard == 1
    while stage.process.read():
        await trio.testing.wait_all_tasks_blocked()
    assert stage.incarnation.times_heard == 2  # both at once


async def test_a_stream_goes_on_whoever_wrote_the_last_piece(stage: Stage) -> None:
    # A request that came between two pieces wrote the rest itself, and what waited for room was
    # never told to go on.
    drained: list[str] = []
    incarnation, outgoing = stage.incarnation, stage.connection.outgoing
    incarnation.on_room.add(lambda: drained.append("drained"))
    stage.process.read()
    for _ in range(6):
        outgoing.add(b"x" * (AT_ONCE_BYTES - 1) + b"\n")
    outgoing.add(b"the last\n")
    incarnation.write_now()
    assert incarnation.congested
    while not outgoing.empty:
        await trio.lowlevel.checkpoint()
        while stage.process.read():
            pass
        if 0 < outgoing.unasked_bytes < AT_ONCE_BYTES:
            incarnation.ask(REQUEST)
    await trio.testing.wait_all_tasks_blocked()
    while stage.process.read():
        await trio.testing.wait_all_tasks_blocked()
    assert drained == ["drained"]
