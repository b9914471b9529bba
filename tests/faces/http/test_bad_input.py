"""Requests that are none, come slowly or not to their end, and clients that vanish."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
import trio

from tests.faces.running import SOCK, Running, running
from tests.system.descriptors import actor

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
    raw: bytes, status: int, shared: Running
) -> None:
    async with shared.unix() as client:
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
    shared: Running, path: str
) -> None:
    async with shared.unix() as client:
        reply = await client.ask("POST", path, b"{}")
        assert reply.status == 404
        assert reply.json["error"].endswith("called by POST /api/v1/modules/MODULE/invoke")


@pytest.mark.fault(39)
@pytest.mark.parametrize("slow", [b"1," * 200_000 + b"1", b",".join([b"7" * 4300] * 400)])
async def test_what_is_slow_to_build_is_refused_unread(shared: Running, slow: bytes) -> None:
    async with shared.unix() as client:
        body = b'{"state":{"a":[' + slow + b"]}}"
        with contextlib.suppress(trio.BrokenResourceError):  # it is refused while it is sent
            await client.send("POST", "/api/v1/sessions", body)
        reply = await client.reply()
        assert reply.status == 413
        assert reply.json["error"].startswith("the body holds more than 131072 values")


async def test_requests_that_come_at_once_are_answered_in_order(shared: Running) -> None:
    async with shared.unix() as client:
        number = 50
        await client.write((GET + b"\r\n") * number)
        data = b""
        while data.count(b'{"status":"ok"}') < number:
            data += await client.stream.receive_some(65536)
        assert data.count(b"HTTP/1.1 200") == number


async def test_a_body_of_tiny_chunks_leaves_the_neighbours_their_turn(shared: Running) -> None:
    async with shared.unix() as slow, shared.unix() as client:
        chunk = b"1\r\n \r\n" * 20_000
        await slow.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow.write, chunk)
            for _ in range(20):
                assert (await client.ask("GET", "/api/v1/health")).status == 200
        await slow.write(b"2\r\n{}\r\n0\r\n\r\n")
        slow.expect_reply()
        assert (await slow.reply()).status == 201


async def test_what_a_client_that_vanishes_had_open_is_cancelled() -> None:
    async with running(actor(), http=SOCK) as face:
        async with face.unix() as client:
            assert (await client.ask("GET", "/api/v1/health")).status == 200
            files = face.gateway_files
        before = face.daemon.open_files()
        for op, accept in (("hang", "*/*"), ("hang", "text/event-stream")):
            async with face.unix() as client:
                headers = [("Accept", accept)]
                path = "/api/v1/modules/m/invoke"
                await client.send("POST", path, {"op": op}, headers=headers)
                await face.has_in_flight(1)
            await face.has_in_flight(0)
        await face.gateway_parts(files - 1)  # that client's was one
        face.daemon.wait_open_files(before)


async def test_many_who_connect_and_vanish_leave_nothing_behind() -> None:
    async with running(http=SOCK) as face:
        async with face.unix() as other:
            assert (await other.ask("GET", "/api/v1/health")).status == 200
            files = face.gateway_files
        before = face.daemon.open_files()
        path = str(face.daemon.folder / "http.sock")
        for number in range(300):
            with socket.socket(socket.AF_UNIX) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.connect(path)
                client.send([b"", b"GET", GET + b"\r\n"][number % 3] or b"\r")
        await face.gateway_parts(files - 1)  # that client's was one
        face.daemon.wait_open_files(before)
        async with face.unix() as other:
            assert (await other.ask("GET", "/api/v1/health")).status == 200


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
async def test_no_path_leads_out_of_the_routes(path: str, shared: Running) -> None:
    async with shared.unix() as client:
        reply = await client.ask("GET", path)
        assert reply.status == 404
        assert reply.json["code"] in ("NOT_FOUND", "SESSION_NOT_FOUND")
