"""A client of the control socket that asks for MCP: how its process begins, serves and ends."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bounds import WAIT_S, until
from tests.faces.mcp.clients import fixtures_document
from tests.faces.running import ENDLESS, started
from tests.system.daemon import Daemon
from tests.system.descriptors import actor
from tests.system.test_exhaustion import few_files

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}}
OP = b'{"requestId":"mcp","tool":"supervisor","operation":"mcp","input":{}}\n'


class McpSocket:
    """A client of MCP on a connection of the control socket."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(daemon.socket))
        self._lines = self.socket.makefile("rb")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()

    def next(self) -> dict[str, Any] | None:
        """Return the next line; None at the end."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def answer(self, number: int) -> dict[str, Any]:
        while (line := self.next()) is not None:
            if line.get("id") == number and "method" not in line:
                return line
        raise AssertionError("the connection has ended")

    def begin(self) -> None:
        """Ask for MCP, and shake hands."""
        self.socket.sendall(OP)
        done = self.next()
        assert done is not None
        assert done["ok"], done
        self.socket.sendall(message(1, "initialize", **CLIENT))
        assert "result" in self.answer(1)


def message(number: int, method: str, **params: Any) -> bytes:
    said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(said).encode() + b"\n"


def call(number: int, tool: str, **arguments: Any) -> bytes:
    return message(number, "tools/call", name=tool, arguments=arguments)


def servers(daemon: Daemon) -> list[int]:
    """Return the pids of the processes that serve MCP clients."""
    found = []
    for child in psutil.Process(daemon.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "supervisor.edge.mcp_relay" in child.cmdline():
                found.append(child.pid)
    return found


def is_alone(daemon: Daemon) -> bool:
    """Whether the fixture's own client is the only one."""
    alone: bool = daemon.op("status")["daemon"]["connections"]["open"] == 1
    return alone


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A daemon that each test leaves as it was."""
    with started(fixtures_document(), actor(inputs={"hang": {}, "echo": {}, "late": {}})) as one:
        yield one.daemon


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        yield Path(name)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[McpSocket]:
    with contextlib.closing(McpSocket(daemon)) as one:
        yield one
    until(lambda: is_alone(daemon), "the end of the client")
    assert servers(daemon) == []


def test_what_comes_with_the_op_in_one_write_is_served_as_mcp(
    daemon: Daemon, client: McpSocket
) -> None:
    ping = message(2, "ping")
    client.socket.sendall(OP + message(1, "initialize", **CLIENT) + b"[]\n" + ping[:9])
    done = client.next()
    assert done is not None
    assert (done["requestId"], done["result"]["view"], done["result"]["pid"]) == (
        "mcp",
        "default",
        daemon.process.pid,
    )
    refused = client.next()
    assert refused is not None
    assert refused["error"]["code"] == -32600
    assert client.answer(1)["result"]["serverInfo"]["name"] == "stdiod"
    client.socket.sendall(ping[9:])
    assert client.answer(2)["result"] == {}


def test_a_request_before_the_op_is_answered_before_the_first_line_of_mcp(
    client: McpSocket,
) -> None:
    hang = b'{"requestId":"h","tool":"m","operation":"invoke","input":{"op":"hang"}}\n'
    client.socket.sendall(hang + OP + message(1, "initialize", **CLIENT))
    said = [client.next() or {} for _ in range(3)]
    assert {one["requestId"]: one["ok"] for one in said[:2]} == {"mcp": True, "h": False}
    assert said[2]["id"] == 1


def test_an_op_that_waits_until_the_client_reads_has_the_lines_behind_it_served_as_mcp() -> None:
    with (
        started(actor(name="noisy"), actor(inputs={"echo": {}})) as running,
        contextlib.closing(McpSocket(running.daemon)) as client,
    ):
        asked = {"requestId": "f", "tool": "noisy", "operation": "invoke"}
        flood = json.dumps({**asked, "input": {"op": "events", "args": ENDLESS}}).encode()
        client.socket.sendall(flood + b"\n")
        until(lambda: running.held_bytes >= 1 << 20, "a client that does not read")
        cancel = b'{"requestId":"f","operation":"cancel"}\n'
        long = b'{"pad":"' + b"x" * 100_000 + b'"}\n'
        client.socket.sendall(OP + cancel + long + message(1, "initialize", **CLIENT) + b'{"j')
        said = []
        while (line := client.next()) is not None and line.get("id") != 1:
            said += [line] if line.get("type") == "done" or "jsonrpc" in line else []
        assert [(one.get("requestId"), one.get("ok")) for one in said[:2]] == [
            ("f", False),
            ("mcp", True),
        ]
        assert [one["error"]["code"] for one in said[2:]] == [-32600]
        client.socket.sendall(message(2, "ping")[3:])
        assert client.answer(2)["result"] == {}


def test_a_client_that_was_narrowed_stays_so(daemon: Daemon, client: McpSocket) -> None:
    narrow = {"scopes": ["read", "invoke"], "modules": ["m.echo"]}
    asked = {"requestId": "n", "tool": "supervisor", "operation": "narrow", "input": narrow}
    client.socket.sendall(json.dumps(asked).encode() + b"\n")
    assert (client.next() or {})["ok"]
    client.begin()
    client.socket.sendall(message(2, "tools/list"))
    assert [one["name"] for one in client.answer(2)["result"]["tools"]] == ["m__echo"]
    client.socket.sendall(call(3, "m__hang"))
    assert client.answer(3)["error"]["code"] == -32602
    client.socket.sendall(call(4, "m__echo", a=1))
    assert client.answer(4)["result"]["structuredContent"] == {"a": 1}


def test_a_client_that_ends_its_side_has_its_answers(client: McpSocket) -> None:
    client.socket.sendall(OP + message(1, "initialize", **CLIENT) + call(2, "m__echo", a=1))
    client.socket.shutdown(socket.SHUT_WR)
    assert (client.next() or {})["ok"]
    assert "result" in client.answer(1)
    assert client.answer(2)["result"]["structuredContent"] == {"a": 1}
    assert client.next() is None


def test_a_client_that_is_gone_has_cancelled_and_leaves_nothing(daemon: Daemon) -> None:
    before = daemon.open_files()
    for _ in range(3):
        with contextlib.closing(McpSocket(daemon)) as client:
            client.begin()
            client.socket.sendall(call(2, "m__hang"))
            until(lambda: daemon.status("m")["in_flight"] == 1, "the call")
            (pid,) = servers(daemon)
        until(lambda: is_alone(daemon), "the end of the client")
        assert not psutil.pid_exists(pid)
        assert daemon.status("m")["in_flight"] == 0
    daemon.wait_open_files(before)


def test_a_process_that_dies_ends_the_connection_and_nothing_else(
    daemon: Daemon, client: McpSocket
) -> None:
    client.begin()
    (pid,) = servers(daemon)
    os.kill(pid, signal.SIGKILL)
    assert client.next() is None
    assert daemon.invoke("m", "echo", a=1).result == {"a": 1}


def test_it_is_no_stray_of_a_module(daemon: Daemon, client: McpSocket) -> None:
    client.begin()
    running = servers(daemon)
    daemon.op("restart", module="m")
    daemon.op("wait", modules=["m"])
    client.socket.sendall(call(2, "m__echo", a=1))
    assert client.answer(2)["result"]["structuredContent"] == {"a": 1}
    assert servers(daemon) == running
    assert daemon.status("m")["instances"][0]["pid"] not in running


def test_many_clients_are_served_at_once_as_far_as_there_are_places(daemon: Daemon) -> None:
    limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (100, limits[1]))
    with contextlib.ExitStack() as crowd:
        clients = [crowd.enter_context(contextlib.closing(McpSocket(daemon))) for _ in range(20)]
        for number, client in enumerate(clients):
            client.socket.sendall(OP + message(1, "initialize", **CLIENT))
            client.socket.sendall(call(2, "m__echo", a=number))
        for number, client in enumerate(clients):
            assert client.answer(2)["result"]["structuredContent"] == {"a": number}
        assert len(servers(daemon)) == 20
        until(lambda: _is_refused(daemon, crowd), "a client for which there is no place")
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, limits)
    until(lambda: is_alone(daemon), "the end of the clients")
    assert servers(daemon) == []


def _is_refused(daemon: Daemon, crowd: contextlib.ExitStack) -> bool:
    """Connect another client that stays; returns whether it is refused."""
    client = crowd.enter_context(contextlib.closing(McpSocket(daemon)))
    with contextlib.suppress(BrokenPipeError):  # it is refused without being read
        client.socket.sendall(OP + message(1, "initialize", **CLIENT))
    done = client.next()
    assert done is not None
    if done["ok"]:
        client.answer(1)
        return False
    assert done["error"]["details"]["reason"] == "queue_full"
    return True


def test_the_process_ends_with_a_daemon_that_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        daemon = Daemon(Path(name), actor(inputs={"hang": {}}))
        with contextlib.closing(McpSocket(daemon)) as client:
            client.begin()
            (pid,) = servers(daemon)
            ended = os.pidfd_open(pid)
            client.socket.sendall(call(2, "m__hang"))
            until(lambda: daemon.status("m")["in_flight"] == 1, "the call")
            daemon.process.kill()
            daemon.process.wait(WAIT_S)
            failed = client.answer(2)
            assert failed.get("error") or failed["result"]["isError"]
            assert client.next() is None
            assert select.select([ended], [], [], WAIT_S)[0]
            os.close(ended)
        daemon.client.close()
        assert daemon.kill_left() == {}


def test_a_daemon_that_stops_answers_what_is_open_and_ends_the_process(folder: Path) -> None:
    with (
        Daemon(folder, actor(inputs={"hang": {}})) as daemon,
        contextlib.closing(McpSocket(daemon)) as client,
    ):
        client.begin()
        client.socket.sendall(call(2, "m__hang"))
        until(lambda: daemon.status("m")["in_flight"] == 1, "the call")
        assert daemon.client.ask("supervisor", "shutdown").ok
        assert client.answer(2)["result"]["isError"] is True
        assert client.next() is None


def test_a_stopped_process_does_not_outlive_its_daemon(folder: Path) -> None:
    with (
        Daemon(folder) as daemon,
        contextlib.closing(McpSocket(daemon)) as client,
    ):
        client.begin()
        (pid,) = servers(daemon)
        os.kill(pid, signal.SIGSTOP)
        daemon.end()
        assert not psutil.pid_exists(pid)


def test_a_daemon_that_can_start_no_process_closes_the_connection(folder: Path) -> None:
    with (
        Daemon(folder) as daemon,
        contextlib.closing(McpSocket(daemon)) as client,
    ):
        client.socket.sendall(b'{"requestId":"h","tool":"supervisor","operation":"health"}\n')
        assert (client.next() or {})["ok"]
        with few_files(daemon, 2):
            client.socket.sendall(OP)
            assert (client.next() or {})["ok"]
            assert client.next() is None
        until(lambda: "an MCP client cannot be served" in daemon.log(), "its words")
        until(lambda: is_alone(daemon), "the end of the client")
