"""Requests that are none, come slowly or not to their end, and clients that vanish."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.faces.http import connection as bounds
from supervisor.faces.http import streams
from supervisor.kernel.store.settings import JournalOptions
from tests.faces.conftest import ENDLESS, noisy_calls
from tests.faces.http.client import served
from tests.faces.http.test_routes import CALM, asking
from tests.factories import actor, open_files, opened_since
from tests.kernel.conftest import daemon_with

GET = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b'{"requestId":"a","tool":"supervisor","operation":"health"}\r\n\r\n', 400),
        (b"GET /api/v1/health HTTP/1.1\r\n\r\n", 400),
        (GET + b"Host: localhost\r\n\r\n", 400),
        (GET + b"X: \x00\r\n\r\n", 400),
        (b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://u:p@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://localhost/api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /api/v1/health HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
        (GET + b"Accept: a/b\r\nAccept: c/d\r\n\r\n", 400),
        (GET + b"X: y\r\n" * 200 + b"\r\n", 431),
        (GET + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Content-Length: -2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}", 400),
        (POST + b"Content-Length: 16777217\r\n\r\n", 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 201),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", 201),
    ],
)
async def test_what_is_no_good_request_is_refused_by_name(
    raw: bytes, status: int, tmp_path: Path
) -> None:
    async with asking(tmp_path) as client:
        await client.write(raw)
        client.expect_reply()
        reply = await client.reply()
        assert reply.status == status
        if status >= 400:
            assert reply.json["code"] == "BAD_REQUEST"
            assert reply.headers["connection"] == "close"
            assert await client.is_closed()


@pytest.mark.parametrize("path", ["/api/v1/modules/m/echo", "/modules/m/echo"])
async def test_an_op_in_the_path_is_told_with_the_path_that_calls_it(
    path: str, tmp_path: Path
) -> None:
    async with asking(tmp_path) as client:
        reply = await client.ask("POST", path, b"{}")
        assert reply.status == 404
        assert reply.json["error"].endswith("called by POST /api/v1/modules/MODULE/invoke")


async def test_many_values_are_refused_before_they_are_built(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        body = b'{"state":{"a":[' + b"1," * 200_000 + b"1]}}"
        reply = await client.ask("POST", "/api/v1/sessions", body)
        assert reply.status == 413


async def test_requests_that_come_at_once_are_answered_in_order(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        number = 50
        await client.write((GET + b"\r\n") * number)
        data = b""
        while data.count(b'{"status":"ok"}') < number:
            data += await client.stream.receive_some(65536)
        assert data.count(b"HTTP/1.1 200") == number


async def test_a_body_of_tiny_chunks_leaves_the_neighbours_their_turn(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as slow,
        face.unix() as client,
    ):
        chunk = b"1\r\n \r\n" * 20_000
        await slow.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow.write, chunk)
            for _ in range(20):
                assert (await client.ask("GET", "/api/v1/health")).status == 200
        await slow.write(b"2\r\n{}\r\n0\r\n\r\n")
        slow.expect_reply()
        assert (await slow.reply()).status == 201


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


async def test_what_a_client_that_vanishes_had_open_is_cancelled(tmp_path: Path) -> None:
    before = open_files()
    async with daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon:
        async with served(daemon, tmp_path) as face:
            module = daemon.fleet.modules["m"]
            for op, accept in (("hang", "*/*"), ("hang", "text/event-stream")):
                async with face.unix() as client:
                    headers = [("Accept", accept)]
                    path = "/api/v1/modules/m/invoke"
                    await client.send("POST", path, {"op": op}, headers=headers)
                    while not module.in_flight:
                        await trio.lowlevel.checkpoint()
                while module.in_flight:
                    await trio.lowlevel.checkpoint()
            while daemon.facts.connections.open:
                await trio.lowlevel.checkpoint()
        assert daemon.facts.ledger.total == 0
    assert not opened_since(before)


async def test_many_who_connect_and_vanish_leave_nothing_behind(tmp_path: Path) -> None:
    before = open_files()
    async with daemon_with(tmp_path) as daemon, served(daemon, tmp_path) as face:
        path = str(tmp_path / "http.sock")
        for number in range(300):
            with socket.socket(socket.AF_UNIX) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.connect(path)
                client.send([b"", b"GET", GET + b"\r\n"][number % 3] or b"\r")
            await trio.lowlevel.checkpoint()
        while daemon.facts.connections.open:
            await trio.lowlevel.checkpoint()
        async with face.unix() as client:
            assert (await client.ask("GET", "/api/v1/health")).status == 200
    assert not opened_since(before)


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


async def test_a_client_that_does_not_read_holds_up_its_module_and_nobody_else(
    tmp_path: Path,
) -> None:
    noisy = actor(tmp_path, name="noisy", supervision=CALM)
    quiet = actor(tmp_path, name="quiet", supervision=CALM)
    async with (
        daemon_with(tmp_path, noisy, quiet) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as slow,
        face.unix() as client,
    ):
        body = {"op": "events", "args": ENDLESS}
        headers = [("Accept", "application/x-ndjson")]
        await slow.send("POST", "/api/v1/modules/noisy/invoke", body, headers=headers)
        while not any(call.listener.congested() for call in noisy_calls(daemon)):
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert daemon.facts.ledger.total < 8 << 20
        path = "/api/v1/modules/quiet/invoke"
        assert (await client.ask("POST", path, {"op": "echo"})).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/assets/..%2f..%2f..%2fetc%2fpasswd/content",
        "/api/v1/assets/%2e%2e/content",
        "/api/v1/assets/../../../../etc/passwd",
        "/../../etc/passwd",
        "/api/v1/sessions/..%2f..%2fstatus",
    ],
)
async def test_no_path_leads_out_of_the_routes(path: str, tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        reply = await client.ask("GET", path)
        assert reply.status == 404
        assert reply.json["code"] in ("NOT_FOUND", "SESSION_NOT_FOUND")
