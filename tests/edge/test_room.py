"""What clients cause a gateway to hold: it is theirs, bounded, and never another's to pay for."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import WAIT_S, until
from tests.edge.gateway import Gateway, gateway
from tests.edge.test_gateway import HANDSHAKE
from tests.system.daemon import Daemon
from tests.system.descriptors import actor

MOST_BYTES = 200 << 20
BODY_BYTES = 12 << 20
ECHO = "/api/v1/modules/m/invoke"
OTHER = "/api/v1/modules/n/invoke"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-") as name,
        Daemon(Path(name), actor(), actor(name="n")) as started,
    ):
        yield started


@pytest.fixture
def server(daemon: Daemon) -> Iterator[Gateway]:
    with gateway(daemon.socket) as started:
        yield started


def token(daemon: Daemon, name: str) -> str:
    made: str = daemon.op("token.new", name=name, scopes=["read", "invoke"])["token"]
    return made


class Raw:
    """A connection over which a test writes what it likes."""

    def __init__(self, server: Gateway, head: str, *, token: str, size: int) -> None:
        self.client = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
        lines = [head, "Host: localhost", f"Authorization: Bearer {token}"]
        lines += ["Content-Type: application/json", f"Content-Length: {size}", "", ""]
        self.client.sendall("\r\n".join(lines).encode())

    def write(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it was refused, and closed
            self.client.sendall(data)

    def status(self) -> int | None:
        """Return the status that it is answered with; None if the connection was reset."""
        try:
            said = self.client.recv(1 << 16)
        except ConnectionError:
            return None
        return int(said.split()[1]) if said else None


def asked(size: int, op: str = "echo") -> bytes:
    body = json.dumps({"op": op, "args": {"x": ""}}).encode()
    return body[:-3] + b"y" * (size - len(body)) + body[-3:]


@contextlib.contextmanager
def many(clients: list[Raw]) -> Iterator[list[Raw]]:
    try:
        yield clients
    finally:
        for one in clients:
            one.client.close()


@pytest.mark.fault(38)
def test_bodies_that_do_not_end_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway
) -> None:
    greedy, other = token(daemon, "greedy"), token(daemon, "other")
    head = f"POST {ECHO} HTTP/1.1"
    body, short = asked(BODY_BYTES), asked(BODY_BYTES // 2)
    patient = Raw(server, head, token=other, size=len(short))
    patient.write(short[:-100_000])
    rude = [Raw(server, head, token=greedy, size=len(body)) for _ in range(30)]
    with many([patient, *rude]):
        for one in rude:
            one.write(body[:-1])
        statuses = [one.status() for one in rude[:20]]
        assert set(statuses) <= {503, None}
        assert 503 in statuses
        patient.write(short[-100_000:])
        assert patient.status() == 200
        with server.client() as client:
            assert client.ask("POST", OTHER, {"op": "echo"}, token=other).status == 200
    assert server.most_bytes < MOST_BYTES


@pytest.mark.fault(38)
def test_long_requests_that_wait_are_the_daemons_to_count(daemon: Daemon, server: Gateway) -> None:
    greedy, other = token(daemon, "greedy"), token(daemon, "other")
    body = asked(BODY_BYTES, "hang")
    waiting = [
        Raw(server, f"POST {ECHO} HTTP/1.1", token=greedy, size=len(body)) for _ in range(60)
    ]
    with many(waiting):
        for one in waiting:
            one.write(body)
        with server.client() as client:
            long = {"op": "echo", "args": {"x": "y" * (4 << 20)}}
            assert client.ask("POST", OTHER, long, token=other).status == 200
    assert server.most_bytes < MOST_BYTES
    assert daemon.peak_bytes() < MOST_BYTES


@pytest.mark.fault(38)
def test_long_requests_of_one_user_over_many_connections_are_refused(daemon: Daemon) -> None:
    with contextlib.ExitStack() as left:
        clients = [left.enter_context(daemon.connect()) for _ in range(60)]
        ids = [one.send_invoke("m", "hang", x="y" * BODY_BYTES) for one in clients]
        assert daemon.invoke("n", "echo", x="y" * (32 << 10)).ok
        for one, asked_id in list(zip(clients, ids, strict=True))[5:]:
            assert one.answer(asked_id).verdict == "unreachable/queue_full"
    assert daemon.peak_bytes() < MOST_BYTES


@pytest.mark.fault(38)
@pytest.mark.parametrize("clients", [8, 60])
def test_answers_that_nobody_reads_end_with_their_clients(
    daemon: Daemon, server: Gateway, clients: int
) -> None:
    greedy, other = token(daemon, "greedy"), token(daemon, "other")
    body = asked(4 << 20)
    head = f"POST {ECHO} HTTP/1.1"
    deaf = [Raw(server, head, token=greedy, size=len(body)) for _ in range(clients)]
    with many(deaf):
        for one in deaf:
            one.write(body)
        with server.client() as client:
            answer = client.ask(
                "POST", OTHER, {"op": "echo", "args": {"x": "y" * (4 << 20)}}, token=other
            )
            assert answer.status == 200
    assert server.most_bytes < MOST_BYTES


@pytest.mark.fault(38)
def test_messages_without_an_end_cost_their_own_principal_alone(
    daemon: Daemon, server: Gateway
) -> None:
    greedy, other = token(daemon, "greedy"), token(daemon, "other")
    fragment = bytes([0x01, 0xFE]) + (2).to_bytes(2, "big") + bytes(4) + b"yy"
    more = bytes([0x00, 0x82]) + bytes(4) + b"yy"
    with contextlib.ExitStack() as left, server.client() as quiet:
        quiet.send("GET", "/ws", token=other, **HANDSHAKE)
        assert left.enter_context(quiet.stream()).status == 101
        for number in range(20):
            client = left.enter_context(server.client())
            client.send("GET", "/ws", token=greedy, **HANDSHAKE)
            assert left.enter_context(client.stream()).status == 101
            with contextlib.suppress(ConnectionError):
                if number == 0:
                    client.write(fragment + more * (1 << 16))
                else:
                    frame = bytes([0x81, 0xFF]) + (15 << 20).to_bytes(8, "big") + bytes(4)
                    client.write(frame + b"y" * (14 << 20))
        ping = json.dumps({"type": "request", "id": "1", "payload": {"action": "ping"}}).encode()
        quiet.write(bytes([0x81, 0x80 | len(ping)]) + bytes(4) + ping)
        quiet.read_to(b"pong")
    assert server.most_bytes < MOST_BYTES


COLLECTED = """
import gc
gc.disable()
from supervisor.edge.http.program import main
main()
"""


@pytest.mark.fault(41)
def test_what_clients_leave_holds_no_cycle(daemon: Daemon) -> None:
    ada = token(daemon, "ada")
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}

    def leave(server: Gateway) -> None:
        with server.client() as client:
            begun = client.ask("POST", "/mcp", begin, token=ada)
            session = begun.headers["mcp-session-id"]
            assert client.ask("DELETE", "/mcp", token=ada, Mcp_Session_Id=session).status == 204
        with server.client() as client:
            client.send("GET", "/api/v1/events?since=0", token=ada, Accept="text/event-stream")
            assert client.stream().status == 200
        with server.client() as client:
            client.send("GET", "/ws", token=ada, **HANDSHAKE)
            assert client.stream().status == 101

    with gateway(daemon.socket, "-c", COLLECTED) as server:
        until(lambda: served(server, ada), "the daemon being found")
        for _ in range(100):
            leave(server)
        before = server.most_bytes
        for _ in range(300):
            leave(server)
        assert server.most_bytes - before < 2 << 20


def served(server: Gateway, token: str) -> bool:
    with server.client() as client:
        return client.ask("GET", "/api/v1/health", token=token).status == 200
