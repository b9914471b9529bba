"""The gateway's process, under a daemon and alone: how it begins, dies and ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.faces.http.test_security import certificate
from tests.faces.test_mcp_clients import McpSocket, call
from tests.system import daemon as daemon_of_tests
from tests.system.client import Client
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import actor
from tests.system.liveness import BOUND_S
from tests.system.test_http import UnixConnection

WITHOUT_SERVERS = """
import sys
for name in (
    "h11", "httpcore", "httptools", "prometheus_client", "protocol.mcp_server.server", "starlette",
    "supervisor.edge", "uvicorn", "uvloop", "websockets", "wsproto",
):
    sys.modules[name] = None
from supervisor.cli.main import main
main()
"""
"""Be `stdiod`, where to import a server of HTTP or MCP is an error."""

GATEWAY_BYTES = 35 << 20
CROWD = 10_000
OF_ONE_ADDRESS = 3072
STREAMS = 1024
"""As docs/limits.md has them."""
NO_STREAM = "as many streams are open as there may be, and nobody has more than this client"
NO_PLACE = (
    "more clients are connected than there is room for; nothing was begun, so try again when some"
    " have parted"
)
SWITCHING = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: c3RkaW9kIGlzIGEgaG9zdA==\r\n"
)


def http_of(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.op("status")["http"]
    return found


def gateway_pid(daemon: Daemon) -> int:
    (instance,) = http_of(daemon)["instances"]
    pid: int = instance["pid"]
    return pid


def asked(
    folder: Path, method: str, path: str, body: Any = None, accept: str = "*/*"
) -> tuple[int, bytes]:
    """Ask over `http.sock`, on a connection of its own."""
    with contextlib.closing(UnixConnection(folder / "http.sock")) as connection:
        said = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": accept}
        connection.request(method, path, said, headers)
        response = connection.getresponse()
        return response.status, response.read()


def begun(folder: Path, op: str) -> UnixConnection:
    """Begin a call of the module `m` over `http.sock`."""
    connection = UnixConnection(folder / "http.sock")
    body = json.dumps({"op": op}).encode()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/api/v1/modules/m/invoke", body, headers)
    return connection


def parted(connection: UnixConnection) -> bool:
    """Whether a connection ends without an answer."""
    try:
        connection.getresponse()
    except (ConnectionError, http.client.HTTPException):
        return True
    finally:
        connection.close()
    return False


def has_in_flight(daemon: Daemon, number: int) -> None:
    until(lambda: daemon.status("m")["in_flight"] == number, f"{number} calls")


def restarted(daemon: Daemon, former: int) -> dict[str, Any]:
    """Wait for another process of the gateway, and return what status shows of it."""

    def found() -> dict[str, Any] | None:
        shown = http_of(daemon)
        ready = shown["state"] == "ready" and shown["instances"][0]["pid"] != former
        return shown if ready else None

    return until(found, "another gateway")


def test_the_gateway_serves_and_is_shown_apart_from_the_modules(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(actor(), options=("--http", "127.0.0.1:0"))
    status = daemon.op("status")
    assert status["daemon"]["http"].startswith("http://127.0.0.1:")
    assert [one["name"] for one in status["modules"]] == ["m"]
    assert status["http"]["state"] == "ready"
    assert status["http"]["restarts"] == 0
    assert gateway_pid(daemon) != daemon.process.pid
    assert asked(daemon.folder, "GET", "/api/v1/health")[0] == 200
    assert daemon.op("status")["daemon"]["connections"]["open"] == 1  # of the test
    address = status["daemon"]["http"].removeprefix("http://")
    token = daemon.op("token.new", name="t")["token"]
    with contextlib.closing(http.client.HTTPConnection(address, timeout=BOUND_S)) as connection:
        connection.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
    idle = UnixConnection(daemon.folder / "http.sock")
    idle.connect()
    daemon.end()
    idle.close()
    assert not (daemon.folder / "http.sock").exists()


def test_who_may_not_see_all_modules_sees_nothing_of_the_gateway(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(actor(), options=("--http", "sock"))
    with daemon.connect() as client:
        client.op("narrow", modules=["m"])
        assert client.op("status").result["http"] is None


@pytest.fixture
def without_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = daemon_of_tests.command

    def command(*where: Any) -> list[str]:
        python, _, _, *arguments = usual(*where)
        return [python, "-c", WITHOUT_SERVERS, *arguments]

    monkeypatch.setattr(daemon_of_tests, "command", command)


@pytest.mark.usefixtures("without_servers")
def test_a_daemon_that_serves_http_and_mcp_imports_no_server(start_daemon: StartDaemon) -> None:
    module = actor(inputs={"echo": {}})
    daemon = start_daemon(module, options=("--http", "127.0.0.1:0"))
    body = {"op": "echo", "args": {"x": 1}}
    status, said = asked(daemon.folder, "POST", "/api/v1/modules/m/invoke", body)
    assert (status, json.loads(said)["result"]) == (200, {"x": 1})
    with contextlib.closing(McpSocket(daemon)) as client:
        client.begin()
        client.socket.sendall(call(2, "m__echo", x=1))
        assert client.answer(2)["result"]["structuredContent"] == {"x": 1}


@pytest.mark.usefixtures("without_servers")
def test_without_http_no_gateway_runs(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(actor())
    status = daemon.op("status")
    assert status["daemon"]["http"] is None
    assert "http" not in status
    assert not (daemon.folder / "http.sock").exists()


def test_the_gateway_takes_no_more_memory_than_it_may(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(actor(), options=("--http", "127.0.0.1:0"))
    for _ in range(100):
        assert asked(daemon.folder, "POST", "/api/v1/modules/m/invoke", {"op": "echo"})[0] == 200
    shares = Path(f"/proc/{gateway_pid(daemon)}/smaps_rollup").read_text()
    (kilobytes,) = re.findall(r"^Pss: +(\d+) kB", shares, re.MULTILINE)
    assert int(kilobytes) * 1024 <= GATEWAY_BYTES


def test_a_killed_gateway_is_noticed_by_its_clients_alone(start_daemon: StartDaemon) -> None:
    calls = {"concurrency": 4, "timeouts": {"invoke_s": BOUND_S}}
    daemon = start_daemon(actor(supervision=calls), options=("--http", "sock"))
    session = daemon.op("session.new")["session_id"]
    before = gateway_pid(daemon)
    open_calls = [begun(daemon.folder, "hang") for _ in range(2)]
    stream = UnixConnection(daemon.folder / "http.sock")
    stream.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
    response = stream.getresponse()
    assert response.status == 200
    has_in_flight(daemon, 2)
    number = daemon.client.send("m", "invoke", {"op": "late"})
    has_in_flight(daemon, 3)
    module = daemon.pid("m")

    os.kill(before, signal.SIGKILL)

    assert all(parted(one) for one in open_calls)
    with contextlib.suppress(http.client.IncompleteRead):
        assert b"event: error" not in response.read()
    stream.close()
    # Who comes meanwhile waits in the listening socket, which the daemon has.
    assert asked(daemon.folder, "GET", "/api/v1/health")[0] == 200
    shown = restarted(daemon, before)
    assert shown["restarts"] == 1
    assert (shown["last_exit"]["reason"], shown["last_exit"]["signal"]) == ("signaled", 9)
    has_in_flight(daemon, 1)  # those of its clients are cancelled, this test's is not
    assert daemon.client.ask("m", "health").ok
    assert daemon.client.answer(number).ok
    assert daemon.pid("m") == module
    assert daemon.status("m")["restarts"] == 0
    assert daemon.op("session.show", session_id=session)["session_id"] == session


def test_a_call_that_is_open_at_the_daemons_end_is_answered(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(actor(), options=("--http", "sock"))
    connection = begun(daemon.folder, "hang")
    has_in_flight(daemon, 1)
    daemon.end()
    response = connection.getresponse()
    assert response.status == 499
    assert b"the daemon is stopping, and m#1 with it" in response.read()
    connection.close()


@contextlib.contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon that the test kills."""
    (folder / "modules").mkdir(exist_ok=True)
    words = daemon_of_tests.command(folder / "modules", folder / "s", folder / "data", *options)
    with (folder / "log").open("ab") as log:
        process, ready = daemon_of_tests.start(words, os.environ, log.fileno())
    try:
        assert ready, (folder / "log").read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_next_daemon_has_the_port_of_one_that_was_killed(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for killed in (0, 1, 2):
        connection = http.client.HTTPConnection(address, timeout=BOUND_S)
        with contextlib.closing(connection), started(folder, "--http", address):
            connection.request("GET", "/api/v1/health")
            assert connection.getresponse().status == 401
            # The daemon is killed while that client is connected, and another has a stream open.
            stream = UnixConnection(folder / "http.sock")
            stream.request("GET", "/api/v1/events?since=0", headers={"Accept": "text/event-stream"})
            assert stream.getresponse().status == 200
            if killed:
                with Client(folder / "s") as client:
                    gateway = client.op("status").result["http"]["instances"][0]["pid"]
                    os.kill(gateway, signal.SIGSTOP)  # so it can't end by itself
        stream.close()


@pytest.mark.parametrize("which", ["--http-cert", "--http-key"])
def test_a_certificate_without_its_key_keeps_the_daemon_from_starting(
    folder: Path, which: str
) -> None:
    cert, key = certificate(folder)
    (folder / "other").mkdir()
    other = dict(zip(("--http-cert", "--http-key"), certificate(folder / "other"), strict=True))
    files = {"--http-cert": cert, "--http-key": key, which: other[which]}
    tls = [word for option, file in files.items() for word in (option, str(file))]
    words = daemon_of_tests.command(folder, folder / "s", folder / "data", "--http")
    ended = subprocess.run(
        [*words, "127.0.0.1:0", *tls], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert f"--http-cert {files['--http-cert']} and --http-key" in ended.stderr
    assert "mismatch" in ended.stderr


def test_the_address_has_tls_and_the_unix_socket_has_none(
    start_daemon: StartDaemon, folder: Path
) -> None:
    cert, key = certificate(folder)
    tls = ("--http-cert", str(cert), "--http-key", str(key))
    daemon = start_daemon(options=("--http", "127.0.0.1:0", *tls))
    address = daemon.op("status")["daemon"]["http"]
    assert address.startswith("https://")
    port = int(address.rpartition(":")[2])
    context = ssl.create_default_context(cafile=cert)
    with contextlib.closing(
        http.client.HTTPSConnection("localhost", port, timeout=BOUND_S, context=context)
    ) as connection:
        connection.request("GET", "/api/v1/health")
        assert connection.getresponse().status == 401
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP/1.1 200" not in plain.recv(1 << 16)
    assert asked(daemon.folder, "GET", "/api/v1/health")[0] == 200


@pytest.mark.fault(40)
def test_of_ten_thousand_who_ask_for_a_stream_as_many_as_documented_have_one(
    start_daemon: StartDaemon,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.skip(f"this user may open {hard} files, and {CROWD} clients take more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    daemon = start_daemon(actor(), options=("--http", "127.0.0.1:0"))
    port = int(daemon.op("status")["daemon"]["http"].rpartition(":")[2])
    token = daemon.op("token.new", name="t")["token"]
    known = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
    requests = [
        f"GET /api/v1/events?since=0 HTTP/1.1\r\n{known}Accept: text/event-stream\r\n\r\n",
        f"GET /ws HTTP/1.1\r\n{known}{SWITCHING}\r\n",
    ]
    before = gateway_pid(daemon)
    clients: list[socket.socket] = []
    answers: Counter[str] = Counter()

    def goes_on() -> None:
        assert daemon.invoke("m", "echo").ok
        assert daemon.op("status")["http"]["state"] == "ready"

    try:
        for number in range(CROWD):
            client = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
            clients.append(client)
            with contextlib.suppress(ConnectionError):  # it was refused, and closed
                client.sendall(requests[number % 2].encode())
            if number % 1000 == 0:
                goes_on()
        for first in range(0, CROWD, 1000):
            for one in clients[first : first + 1000]:
                with contextlib.suppress(ConnectionError):
                    answers[kind_of(one)] += 1
            goes_on()
        assert answers["a stream"] == STREAMS
        # On a machine so slow that some have been idle for too long, others have their places.
        assert answers[NO_STREAM] >= OF_ONE_ADDRESS - STREAMS
        assert answers[NO_PLACE]  # and resets: they could not all be waited for
        # The Unix socket is another source, and has room; its user has no stream yet.
        with contextlib.closing(UnixConnection(daemon.folder / "http.sock")) as other:
            other.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {token}"})
            with other.getresponse() as response:
                assert (response.status, bool(response.read())) == (200, True)
            other.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
            assert other.getresponse().status == 200
    finally:
        for one in clients:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert gateway_pid(daemon) == before
    assert asked(daemon.folder, "GET", "/api/v1/health")[0] == 200


def kind_of(client: socket.socket) -> str:
    """Read what a client was given."""
    said = b""
    while data := client.recv(1 << 16):
        said += data
        if said.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 101 ")):
            return "a stream"
        if said.startswith(b"HTTP/1.1 503 ") and b"}" in said:
            return str(json.loads(said.partition(b"\r\n\r\n")[2])["error"])
    return said.decode()


# Alone.


@contextlib.contextmanager
def alone(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `stdiod gateway`, which has said where it listens."""
    command = [
        sys.executable,
        "-m",
        "supervisor.cli",
        "gateway",
        "--socket",
        str(folder / "socket"),
    ]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert "HTTP is at" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_gateway_of_its_own_serves_whatever_daemon_there_is(
    start_daemon: StartDaemon, folder: Path
) -> None:
    with alone(folder) as process:
        with contextlib.closing(UnixConnection(folder / "http.sock")) as connection:
            connection.request("GET", "/api/v1/status")
            response = connection.getresponse()
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert b"daemon is away" in response.read()
        daemon = start_daemon(actor())
        until(lambda: asked(folder, "GET", "/api/v1/status")[0] == 200, "the daemon")
        assert "http" not in daemon.op("status")
        daemon.end()
        until(lambda: asked(folder, "GET", "/api/v1/status")[0] == 503, "the daemon's end")
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_S) == 0
    assert not (folder / "http.sock").exists()


def test_two_gateways_do_not_share_a_socket(folder: Path) -> None:
    with alone(folder) as process:
        words = ["gateway", "--socket", str(folder / "socket")]
        ended = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 1
        assert f"(pid {process.pid}) serves {folder / 'http.sock'}" in ended.stderr
        assert asked(folder, "GET", "/api/v1/status")[0] == 503


def test_a_gateway_that_serves_nothing_is_refused(folder: Path) -> None:
    words = ["gateway", "--socket", str(folder / "socket"), "--http", "off"]
    ended = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "off serves nothing: say sock or HOST:PORT" in ended.stderr
