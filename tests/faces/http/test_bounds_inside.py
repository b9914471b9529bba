"""Bounds of HTTP clients: how long they are waited for, how many streams, how much unread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from supervisor.faces.http import connection as bounds
from supervisor.faces.http import streams
from supervisor.kernel.store.settings import JournalOptions
from tests.faces.http.client import Client
from tests.faces.http.in_process import served
from tests.faces.http.test_bad_input import GET, POST
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.system.descriptors import CALM


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Client]:
    async with (
        daemon_with(folder, actor(folder, supervision=CALM)) as daemon,
        served(daemon, folder) as face,
        face.unix() as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("begun", "bound"), [(b"", None), (GET, 408), (POST + b"Content-Length: 5\r\n\r\n{", 408)]
)
async def test_who_does_not_go_on_is_parted_from(
    begun: bytes, bound: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for phase in bounds.Phase:
        if phase is not bounds.Phase.SERVED:
            monkeypatch.setitem(bounds._BOUND_S, phase, 0.01)
    async with asking(tmp_path) as client:
        if begun:
            await client.write(begun)
            client.expect_reply()
            assert (await client.reply()).status == bound
        assert await client.is_closed()


async def test_streams_beyond_the_cap_are_refused_and_all_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.Streams.__init__, "__defaults__", (3,))
    headers = [("Accept", "text/event-stream")]
    async with (
        daemon_with(tmp_path, memory=JournalOptions()) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as a,
        face.unix() as b,
        face.unix() as more,
    ):
        async with face.unix() as c:
            for one in (a, b, c):
                await one.send("GET", "/api/v1/events", headers=headers)
                assert (await one.head()).status == 200
            refused = await more.ask("GET", "/api/v1/events", headers=headers)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert (await more.ask("GET", "/api/v1/events")).status == 200
        while daemon.facts.connections.open > 3:
            await trio.lowlevel.checkpoint()
        await more.send("GET", "/api/v1/events", headers=headers)
        assert (await more.head()).status == 200


async def test_a_stream_that_is_silent_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BEAT_S", 0.01)
    async with asking(tmp_path) as client:
        headers = [("Accept", "text/event-stream")]
        await client.send("POST", "/api/v1/modules/m/invoke", {"op": "hang"}, headers=headers)
        assert (await client.head()).status == 200
        assert await client.more() == b": \n\n"
