"""WebSocket: what only the inside shows, and bounds that are made small."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Ping, TextMessage

from supervisor.faces.http import streams, websocket
from supervisor.faces.http.connection import BODY_S, IDLE_S
from supervisor.faces.http.websocket import WebSocket
from supervisor.runtime.supervision.deadlines import Bounded, Deadlines, Queue
from supervisor.runtime.turns import Turn
from tests.faces.http.in_process import served
from tests.faces.http.test_websocket import HANDSHAKE, Socket, upgraded
from tests.faces.running import ENDLESS
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.system.descriptors import CALM


@asynccontextmanager
async def speaking(folder: Path) -> AsyncIterator[tuple[Any, Socket]]:
    async with (
        daemon_with(folder) as daemon,
        served(daemon, folder) as face,
        face.unix() as client,
    ):
        yield daemon, await upgraded(client)


async def test_messages_that_come_together_are_served_in_order_over_as_many_turns_as_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with speaking(tmp_path) as (_, socket):
        monkeypatch.setattr(Turn, "over", property(lambda _: True))
        wire, numbers = Connection(ConnectionType.CLIENT), [str(n) for n in range(20)]
        messages = [{"id": number, "payload": {"action": "ping"}} for number in numbers]
        together = b"".join(wire.send(TextMessage(json.dumps(one))) for one in messages)
        await socket.stream.send_all(together)
        assert [(await socket.frame())["id"] for _ in numbers] == numbers


async def test_a_message_waits_where_a_turn_of_the_loop_has_no_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with speaking(tmp_path) as (_, socket):
        begin, take_text = Turn.begin, WebSocket._take_text
        told: list[str] = []

        def begun(turn: Turn) -> bool:
            told.append("begin")
            return len(told) > 3 and begin(turn)

        def taken(one: WebSocket, event: TextMessage) -> None:
            told.append("message")
            take_text(one, event)

        monkeypatch.setattr(Turn, "begin", begun)
        monkeypatch.setattr(WebSocket, "_take_text", taken)
        await socket.write(TextMessage(json.dumps({"id": "1", "payload": {"action": "ping"}})))
        assert (await socket.frame())["id"] == "1"
    assert told.index("message") > 3


async def test_a_request_is_counted_and_bounded_only_while_more_of_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded, bound = Counter[float](), Deadlines.bound

    def seen(self: Deadlines, one: Bounded, length_s: float, now: float) -> Queue:
        bounded[length_s] += 1
        return bound(self, one, length_s, now)

    monkeypatch.setattr(Deadlines, "bound", seen)
    async with (
        daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as client,
        face.unix() as other,
    ):
        path, echo = "/api/v1/modules/m/invoke", {"op": "echo", "args": {}}
        for _ in range(3):
            assert (await other.ask("POST", path, echo)).status == 200
        socket = await upgraded(client)
        await socket.ask("1", "invoke", module="m", **echo)
        await socket.frames("1", until="invoked")
        ledger = daemon.facts.ledger
        assert ledger.most == 0
        assert not bounded[BODY_S]
        assert bounded[IDLE_S] == 2 + 3  # two clients that come, and each answer

        await socket.write(TextMessage('{"type":', message_finished=False))
        while ledger.unfinished != 8:
            await trio.lowlevel.checkpoint()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        await other.write(f"{head}Content-Length: 13\r\n\r\n{{".encode())
        while ledger.unfinished != 8 + 1:
            await trio.lowlevel.checkpoint()
        assert bounded[BODY_S] == 1
        await other.write(b'"op":"echo"}')
        await socket.write(TextMessage('"request","payload":{"action":"ping"}}'))
        assert (await socket.frame())["payload"] == {"action": "pong"}
        other.expect_reply()
        assert (await other.reply()).status == 200
        assert ledger.total == 0


async def test_who_does_not_read_is_closed_with_1013_and_nobody_else_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "SLOW_S", 0.01)
    noisy = actor(tmp_path, name="noisy", supervision=CALM)
    quiet = actor(tmp_path, name="quiet", supervision=CALM)
    async with (
        daemon_with(tmp_path, noisy, quiet) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as client,
        face.unix() as other,
    ):
        socket = await upgraded(client)
        await socket.ask("1", "invoke", module="noisy", op="events", args=ENDLESS)
        while not daemon.fleet.modules["noisy"].in_flight:
            await trio.lowlevel.checkpoint()
        path = "/api/v1/modules/quiet/invoke"
        while daemon.fleet.modules["noisy"].in_flight:
            assert (await other.ask("POST", path, {"op": "echo"})).status == 200
        assert daemon.facts.ledger.total < 8 << 20
        assert (await socket.closed())[0] == websocket.TOO_SLOW


async def test_each_stands_among_the_streams_and_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BEAT_S", 0.01)
    monkeypatch.setattr(streams.Streams.__init__, "__defaults__", (1,))
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as client,
        face.unix() as other,
    ):
        socket = await upgraded(client)
        assert isinstance(await socket.event(), Ping)
        assert (await other.ask("GET", "/ws", headers=HANDSHAKE)).status == 503
