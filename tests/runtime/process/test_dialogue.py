"""Who drives a connection: events in their order, all bytes written, waits kept; no process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from protocol.connection import (
    NOTHING,
    Alive,
    Connection,
    Events,
    Flow,
    HostCalled,
    Received,
    Request,
    Stray,
    Wait,
)
from protocol.errors import Outcome
from protocol.framing import AT_ONCE_BYTES, Outgoing, Written
from protocol.host_call import Chunk, HostCall
from protocol.replies import Operation
from supervisor.runtime.process import dialogue as dialogue_module
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.supervision.deadlines import Deadlines
from supervisor.runtime.taps import Taps

Clock = trio.testing.MockClock
REQUEST = Request("r1", Operation.HEALTH)


class FakeConnection(Connection):
    """It writes what it is told down, and leads to the events that the test gives it."""

    waits: tuple[Wait, ...] = ()

    def __init__(self) -> None:
        self.outgoing = Outgoing()
        self.told: list[str] = []
        self.leads_to: dict[str, Events] = {}

    def _tell(self, verb: str) -> Events:
        self.told.append(verb)
        self.outgoing.add(f"{verb}\n".encode())
        return self.leads_to.pop(verb, NOTHING)

    def start(self) -> Events:
        return self._tell("start")

    def ask(self, request: Request) -> Events:
        return self._tell("ask")

    def cancel(self, request_id: str, written: Written) -> Events:
        return self._tell("cancel")

    def flow(self, request_id: str, operation: Flow) -> Events:
        return self._tell(operation)

    def answer(self, asked: HostCalled, outcome: Outcome, chunk: Chunk | None = None) -> Events:
        return self._tell("answer")

    def receive_data(self, data: bytes) -> Events:
        return self._tell("data")

    def receive_eof(self) -> Events:
        return self._tell("eof")

    def process_exited(self, code: int | None) -> Events:
        return self._tell(f"exited {code}")

    def time_passed(self, wait: Wait) -> Events:
        return self._tell(f"time {wait.for_what}")


class FakeProcess:
    opening = None

    def __init__(self, stdin: int) -> None:
        self.stdin: int | None = stdin

    def close_stdin(self) -> None:
        self.stdin = None


class Ear(Receiver):
    """Keeps what it receives, and does what the test wants while it does."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.depth = self.deepest = 0
        self.then: dict[str, Any] = {}

    def receive(self, events: Events) -> None:
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        for one in events:
            self.received.append(one)
            if isinstance(one, Stray) and one.excerpt in self.then:
                self.then.pop(one.excerpt)()
        self.depth -= 1


class Stage:
    def __init__(self, stdin: int) -> None:
        self.connection, self.ear, self.deadlines = FakeConnection(), Ear(), Deadlines()
        self.dialogue = Dialogue("m#1", self.connection, self.ear, self.deadlines, Taps())
        self.process: Any = FakeProcess(stdin)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def stage(pipe: tuple[int, int]) -> Stage:
    return Stage(pipe[1])


def read(pipe: tuple[int, int]) -> list[str]:
    try:
        return os.read(pipe[0], 1 << 16).decode().splitlines()
    except BlockingIOError:
        return []


async def test_each_verb_has_its_bytes_written_without_an_event_to_tell(
    stage: Stage, pipe: tuple[int, int]
) -> None:
    stage.dialogue.begin(stage.process)
    assert read(pipe) == ["start"]
    assert stage.dialogue.receive_data(b"x")
    assert read(pipe) == ["data"]
    stage.dialogue.ask(REQUEST)
    assert read(pipe) == ["ask"]
    assert stage.ear.received == []


async def test_what_many_events_lead_to_makes_one_write_and_is_received_after_them(
    stage: Stage, pipe: tuple[int, int]
) -> None:
    stage.dialogue.begin(stage.process)
    read(pipe)
    stage.connection.leads_to = {"data": [Stray("1"), Stray("2")], "ask": [Stray("3"), Stray("4")]}
    stage.ear.then = {
        "1": lambda: stage.dialogue.ask(REQUEST),
        "3": lambda: stage.dialogue.cancel("r1"),
    }
    stage.dialogue.receive_data(b"x")
    assert [one.excerpt for one in stage.ear.received if isinstance(one, Stray)] == list("1234")
    assert stage.ear.deepest == 1
    assert read(pipe) == ["data", "ask", "cancel"]


async def test_before_and_after_its_process_nothing_is_written(
    stage: Stage, pipe: tuple[int, int]
) -> None:
    stage.dialogue.ask(REQUEST)
    assert read(pipe) == []
    stage.dialogue.begin(stage.process)
    assert read(pipe) == ["ask", "start"]
    stage.connection.leads_to = {"exited 3": [Alive()]}
    stage.dialogue.exited(3)
    assert stage.ear.received == [Alive()]
    asked = HostCalled(None, HostCall("c1", "log", {}), 1)
    stage.dialogue.answer(asked, stage.connection.leads_to)  # type: ignore[arg-type]
    assert stage.connection.told[-1] == "exited 3"
    assert read(pipe) == []


async def test_the_end_of_the_output_is_told_once(stage: Stage) -> None:
    stage.dialogue.begin(stage.process)
    stage.dialogue.receive_eof()
    stage.dialogue.receive_eof()
    assert stage.connection.told == ["start", "eof"]


@pytest.fixture
async def running(stage: Stage, nursery: trio.Nursery, mock_clock: Clock) -> Stage:
    nursery.start_soon(stage.deadlines.run)
    stage.dialogue.begin(stage.process)
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
    running.dialogue.receive_data(b"x")
    await pass_time(mock_clock, 6)
    running.connection.waits = (whole, pause)
    running.dialogue.receive_data(b"x")
    assert running.dialogue.waits_for == "whole and pause"
    await pass_time(mock_clock, 1)
    assert waits(running) == ["pause"]
    running.connection.waits = (whole,)
    running.dialogue.receive_data(b"x")
    await pass_time(mock_clock, 3)
    assert waits(running) == ["pause", "whole"]


async def test_an_equal_wait_that_is_another_object_begins_anew(
    running: Stage, mock_clock: Clock
) -> None:
    running.connection.waits = (Wait(10, "it"),)
    running.dialogue.receive_data(b"x")
    await pass_time(mock_clock, 9)
    running.connection.waits = (Wait(10, "it"),)
    running.dialogue.receive_data(b"x")
    await pass_time(mock_clock, 9)
    assert waits(running) == []
    await pass_time(mock_clock, 1)
    assert waits(running) == ["it"]
    await pass_time(mock_clock, 100)  # over is over, though it still stands there
    assert waits(running) == ["it"]


@pytest.mark.parametrize("end", ["exited", "end", "no wait"])
async def test_nobody_waits_for_what_is_over(running: Stage, mock_clock: Clock, end: str) -> None:
    running.connection.waits = (Wait(10, "it"),)
    running.dialogue.receive_data(b"x")
    if end == "exited":
        running.dialogue.exited(0)
    elif end == "end":
        running.dialogue.end()
    else:
        running.connection.waits = ()
        running.dialogue.receive_data(b"x")
    await pass_time(mock_clock, 100)
    assert waits(running) == []
    assert not [timer for _, _, timer in running.deadlines._heap if timer.action is not None]


async def test_it_is_congested_when_much_waits_that_no_request_is_made_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue_module, "HIGH_BYTES", 100)
    stage.dialogue.begin(stage.process)
    os.set_blocking(stage.process.stdin, False)
    while not stage.dialogue.half_written:
        stage.connection.outgoing.add(b"x" * 10_000)
        stage.dialogue.write_now()
    assert not stage.dialogue.congested
    stage.connection.outgoing.add(b"y" * 101, "r1")
    assert not stage.dialogue.congested
    stage.connection.outgoing.add(b"y" * 101)
    assert stage.dialogue.congested


async def test_who_waits_for_room_is_told_whoever_wrote_the_last_piece(
    stage: Stage, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request that came between two pieces wrote the rest itself, and the reader of the module's
    # output, which had paused, was never told to go on.
    drained: list[str] = []
    monkeypatch.setattr(stage.ear, "drained", lambda: drained.append("drained"))
    dialogue, outgoing = stage.dialogue, stage.connection.outgoing
    dialogue.begin(stage.process)
    read(pipe)
    for _ in range(6):
        outgoing.add(b"x" * (AT_ONCE_BYTES - 1) + b"\n")
    outgoing.add(b"the last\n")
    dialogue.write_now()
    assert dialogue.congested
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialogue.write_rest)
        while dialogue.half_written or not outgoing.empty:
            await trio.lowlevel.checkpoint()
            while read(pipe):
                pass
            if not dialogue.half_written and 0 < outgoing.unasked_bytes < AT_ONCE_BYTES:
                dialogue.ask(REQUEST)
                assert outgoing.empty
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert drained == ["drained"]
