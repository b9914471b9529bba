"""A daemon that serves HTTP, as a process."""

from __future__ import annotations

import http.client
import socket
import subprocess
from pathlib import Path

from tests.system import daemon as daemon_of_tests
from tests.system.conftest import StartDaemon


class UnixConnection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def health(connection: http.client.HTTPConnection, headers: dict[str, str]) -> int:
    try:
        connection.request("GET", "/api/v1/health", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_http_is_served_beside_the_socket_and_at_the_address(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(options=("--http", "127.0.0.1:0"))
    address = daemon.op("status")["daemon"]["http"]
    assert address.startswith("http://127.0.0.1:")
    assert health(UnixConnection(daemon.folder / "http.sock"), {}) == 200
    token = daemon.op("token.new", name="t")["token"]
    where = address.removeprefix("http://")
    assert health(http.client.HTTPConnection(where, timeout=60), {}) == 401
    said = {"Authorization": f"Bearer {token}"}
    assert health(http.client.HTTPConnection(where, timeout=60), said) == 200
    assert token not in daemon.log()
    idle = UnixConnection(daemon.folder / "http.sock")
    idle.connect()
    daemon.end()  # an idle connection does not hold it up
    idle.close()
    assert not (daemon.folder / "http.sock").exists()


def test_a_second_daemon_says_that_the_address_is_taken(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(options=("--http", "127.0.0.1:0"))
    where = daemon.op("status")["daemon"]["http"].removeprefix("http://")
    (folder / "b").mkdir()
    other = folder / "b"
    words = daemon_of_tests.command(other, other / "socket", other / "data", "--http", where)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    hint = "name another port, or end the program that has it"
    assert said == f"stdiod: cannot listen on {where}: Address already in use; {hint}"
