"""What a client may do before the application hears of it, asked of the server's own port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.edge.http.bounded_http import PIPELINED
from supervisor.edge.http.messages import (
    HEAD_BYTES,
)
from tests.bounds import WAIT_S
from tests.faces.http.test_security import certificate

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c3RkaW9kIGlzIGEgaG9zdA==\r\n\r\n"
)
SOON = 0.05


class Program:
    def __init__(self, address: Any, family: int, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.family = family
        self.process = process
        self._is_ending = False

    def terminate(self) -> None:
        """Have it end. A second signal would kill it once uvicorn handles none any more."""
        if not self._is_ending:
            self._is_ending = True
            self.process.terminate()

    def connect(self) -> socket.socket:
        client = socket.socket(self.family)
        client.settimeout(WAIT_S)
        client.connect(self.address)
        return client

    def said_to(self, *parts: bytes) -> bytes:
        """Write the parts, and read until the connection is closed."""
        with self.connect() as client:
            for part in parts:
                client.sendall(part)
            return rest(client)


def rest(client: socket.socket) -> bytes:
    found = b""
    while data := client.recv(1 << 16):
        found += data
    return found


@contextmanager
def served(path: Path | None = None, tls: Sequence[Path] = (), **bounds: Any) -> Iterator[Program]:
    """`tls` is a certificate and its key."""
    family = socket.AF_INET if path is None else socket.AF_UNIX
    with socket.socket(family) as listener, tempfile.TemporaryFile() as log:
        listener.bind(("127.0.0.1", 0) if path is None else str(path))
        listener.listen(1000)
        number = listener.fileno()
        words = [sys.executable, "-m", "tests.edge.bounded_program", str(number)]
        words += [json.dumps(bounds), *map(str, tls)]
        process = subprocess.Popen(words, pass_fds=[number], stderr=log)
        try:
            program = Program(listener.getsockname(), family, process)
            yield program
            program.terminate()
            assert process.wait(WAIT_S) == 0
            log.seek(0)
            assert log.read() == b""  # nothing of a client's doing is our fault
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def usual() -> Iterator[Program]:
    with served() as program:
        yield program


def refused(said: bytes) -> tuple[int, str]:
    """Return status and code of a response that is a refusal, whole, and the only one."""
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-length: %d" % len(body) in lines
    for line in (
        b"connection: close",
        b"cache-control: no-store",
        b"x-content-type-options: nosniff",
    ):
        assert line in lines
    assert any(line.startswith(b"date: ") for line in lines)
    return int(head.split()[1]), json.loads(body)["code"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"hello\r\n\r\n", 400),
        (GET + b"X: \x00\r\n\r\n", 400),
        (GET + b"X : y\r\n\r\n", 400),
        (GET + b"X: y\r\n z\r\n\r\n", 400),
        (b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://u:p@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Content-Length: 2, 3\r\n\r\n{}", 400),
        (POST + b"Content-Length: +2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}zz\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
    ],
)
def test_what_is_no_request_is_refused_once_and_the_connection_closed(
    usual: Program, raw: bytes, status: int
) -> None:
    assert refused(usual.said_to(raw)) == (status, "BAD_REQUEST")
    # However it is cut.
    assert refused(usual.said_to(*(raw[at : at + 1] for at in range(len(raw)))))[0] == status


def test_a_head_without_an_end_is_refused_when_it_is_too_long(usual: Program) -> None:
    with usual.connect() as client:
        client.sendall(GET + b"X: ")
        for _ in range(HEAD_BYTES // 256 + 2):
            client.sendall(b"y" * 256)
        assert refused(rest(client)) == (431, "BAD_REQUEST")


@pytest.mark.parametrize("begun", [b"0\r\nX: ", b"1\r\n{\r\n1;x="])
def test_a_chunked_body_has_no_more_trailers_or_extensions_than_a_head(
    usual: Program, begun: bytes
) -> None:
    with usual.connect() as client:
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + begun)
        client.settimeout(0.001)
        said = b""
        while not said:  # more than once the bound: what came with the body is not counted
            with contextlib.suppress(TimeoutError):
                client.sendall(b"y" * 1024)
                said = client.recv(1 << 16)
        client.settimeout(WAIT_S)
        assert refused(said + rest(client)) == (431, "BAD_REQUEST")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_trailer_is_no_header(usual: Program, parts: int) -> None:
    head, trailers = b"Transfer-Encoding: chunked\r\nX-One: 1\r\n\r\n", b"X-Two: 2\r\n\r\n"
    raw = b"POST /headers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head
    raw += b"1\r\n{\r\n0\r\n"
    said = usual.said_to(*([raw + trailers] if parts == 1 else [raw, trailers]))
    assert b"x-one" in said
    assert b"x-two" not in said


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
@pytest.mark.parametrize(
    ("framing", "body", "size"),
    [
        (b"", b"", 0),
        (b"Content-Length: 18\r\n", b"GET / HTTP/1.1\r\n\r\n", 18),
        (b"Transfer-Encoding: chunked\r\n", b"3\r\n{ }\r\n0\r\nX-Two: 2\r\n\r\n", 3),
    ],
)
def test_an_upgrade_to_anything_else_is_ignored_and_no_byte_behind_it_is_lost(
    usual: Program, framing: bytes, body: bytes, size: int, step: int
) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAA\r\n"
    raw = 3 * (POST + upgrade + framing + b"\r\n" + body) + GET + b"Connection: close\r\n\r\n"
    said = usual.said_to(*(raw[at : at + step] for at in range(0, len(raw), step)))
    assert re.findall(rb"\r\n(\d+)\r\n0\r\n\r\n", said) == 3 * [b"%d" % size] + [b"0"]


def test_a_target_as_for_a_proxy_is_its_path(usual: Program) -> None:
    said = usual.said_to(b"GET http://localhost HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")


def test_requests_sent_ahead_are_answered_in_order_and_no_more_than_so_many(usual: Program) -> None:
    bodies = [b"x" * number for number in range(PIPELINED + 20)]
    requests = [POST + b"Content-Length: %d\r\n\r\n%s" % (len(one), one) for one in bodies]
    said = usual.said_to(b"".join(requests))
    answered = re.findall(rb"\r\n(\d+)\r\n0\r\n\r\n", said)
    assert [int(one) for one in answered] == list(range(len(answered)))
    assert 1 <= len(answered) <= PIPELINED


def test_what_is_no_request_behind_others_takes_none_of_their_answers(usual: Program) -> None:
    said = usual.said_to(GET + b"\r\n" + GET + b"\r\nhello\r\n\r\n")
    assert said.count(b"HTTP/1.1 200 ") == 2
    assert said.count(b"HTTP/1.1") == 2


@pytest.mark.parametrize(
    ("bound", "begun", "status"),
    [
        ("idle_s", b"", None),
        ("idle_s", b"\r\n", None),
        ("idle_s", GET + b"\r\n", 200),
        ("head_s", GET, 408),
        ("head_s", GET + b"\r\n" + GET, 200),
        ("body_s", POST + b"Content-Length: 5\r\n\r\n{", 408),
        ("body_s", POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408),
    ],
)
def test_a_client_that_does_not_go_on_is_parted_from(
    bound: str, begun: bytes, status: int | None
) -> None:
    bounds: dict[str, Any] = {bound: SOON}
    with served(**bounds) as program:
        said = program.said_to(begun)
        statuses = [int(one) for one in re.findall(rb"HTTP/1.1 (\d+)", said)]
        assert statuses[:1] == ([] if status is None else [status])
        if status == 408:
            assert refused(said) == (408, "TIMEOUT")


def test_a_body_that_comes_slowly_byte_by_byte_has_a_bound_too() -> None:
    with served(body_s=SOON) as program, program.connect() as client:
        client.sendall(POST + b"Content-Length: 1000000\r\n\r\n")
        client.settimeout(0.001)
        said = b""
        while not said:
            client.sendall(b"x")
            try:
                said = client.recv(1 << 16)
            except TimeoutError:
                continue
        assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("ahead", [b"", GET + b"\r\n"])
def test_a_client_that_reads_nothing_is_parted_from(ahead: bytes) -> None:
    with served(write_s=SOON) as program:
        read_nothing(program, ahead)


def read_nothing(program: Program, ahead: bytes = b"") -> None:
    """Ask for what has no end, and read nothing until the connection is aborted."""
    with program.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n" + ahead)
        with program.connect() as other:  # a later one is served all the while
            other.sendall(GET + b"Connection: close\r\n\r\n")
            assert rest(other).startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionResetError):
            while True:
                client.send(b"\r\n")


def test_an_answer_that_is_unread_at_the_switch_to_websocket_ends_it_not() -> None:
    with served(write_s=SOON) as program, program.connect() as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not client.recv(1 << 16).endswith(b"x"):
            pass  # the answer has been written
        client.sendall(UPGRADE)
        for _ in range(3):
            read_nothing(program)  # by then, the bound has passed here, too
        said = b""
        while b"HTTP/1.1 101 " not in said:
            data = client.recv(1 << 16)
            assert data
            said = said[-20:] + data
        client.sendall(b"\x88\x80" + bytes(4))
        assert rest(client).endswith(b"\x88\x00")


def test_a_websocket_is_pinged_and_kept_without_an_answer() -> None:
    with served(ping_s=SOON) as program, program.connect() as client:
        client.sendall(UPGRADE)
        said = b""
        while said.count(b"\x89\x04") < 3:
            said += client.recv(1 << 16) or pytest.fail("it was closed")
        client.sendall(b"\x88\x80" + bytes(4))
        assert rest(client).endswith(b"\x88\x00")


def test_at_the_end_a_stream_is_cut_off_and_another_request_is_answered() -> None:
    with served() as program, program.connect() as stream, program.connect() as other:
        stream.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stream.recv(15) == b"HTTP/1.1 200 OK"
        other.sendall(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert other.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        program.terminate()
        assert not rest(stream).endswith(b"\r\n0\r\n\r\n")
        other.sendall(b"{}")
        assert rest(other).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("tcp", [True, False])
def test_one_source_has_its_share_of_connections_and_the_rest_are_told(
    tcp: bool, tmp_path: Path
) -> None:
    with served(None if tcp else tmp_path / "s", clients=8) as program:
        clients = [program.connect() for _ in range(6)]
        for one in clients:
            one.sendall(GET + b"\r\n")
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with program.connect() as client:
            said = rest(client)
        assert refused(said) == (503, "RATE_LIMITED")
        assert b"more clients are connected than there is room for" in said
        assert b"retry-after: 1" in said.lower()
        for one in clients:
            one.close()
        assert program.said_to(GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_refused_client_that_does_not_close_its_tls_is_closed_all_the_same(
    tmp_path: Path,
) -> None:
    with served(tls=certificate(tmp_path), clients=0, linger_s=SOON) as program:
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        with context.wrap_socket(program.connect(), server_hostname="localhost") as client:
            under = socket.socket(fileno=os.dup(client.fileno()))
            with under:
                under.settimeout(20)  # of itself, TLS would be closed after 30
                assert rest(under)


def test_a_low_limit_on_open_files_leaves_half_of_them_to_the_daemons_side() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served() as program:
        assert program.said_to(GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE, (64, hard))
        clients = [program.connect() for _ in range(40)]
        try:
            for one in clients:
                one.sendall(GET + b"\r\n")
            statuses = [one.recv(1 << 16).split()[1] for one in clients]
            assert statuses == [b"200"] * 24 + [b"503"] * 16  # three quarters of 32
        finally:
            for one in clients:
                one.close()
