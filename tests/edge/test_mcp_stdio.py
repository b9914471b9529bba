"""`stdiod mcp` while its daemon goes, comes back, stops, or never answers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from supervisor.cli.client import DaemonClient
from supervisor.cli.lock_file import version_beside
from supervisor.edge.mcp_stdio import StdioBridge
from tests.bounds import WAIT_S, until
from tests.cli.fake_daemon import serving
from tests.faces.mcp.clients import modern
from tests.system.daemon import Daemon
from tests.system.descriptors import actor

STDIOD = [sys.executable, "-m", "supervisor.cli"]
CHECKOUT = Path(__file__).parents[2]
DICE = CHECKOUT / "modules" / "dice"
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}}


class McpClient:
    """A client of the older era, and the bridge that it has started."""

    def __init__(self, *words: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*STDIOD, "mcp", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self.told: list[str] = []
        """The methods of notifications that have come."""
        self._number = 0
        self._lines = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass

    def initialize(self) -> dict[str, Any]:
        answer = self.ask("initialize", **CLIENT)
        self.send({"method": "notifications/initialized"})
        return answer

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer_to(self.begin(method, **params))

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result

    def begin(self, method: str, **params: Any) -> int:
        self._number += 1
        self.send({"id": self._number, "method": method, "params": params})
        return self._number

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def answer_to(self, number: int) -> dict[str, Any]:
        """Wait for an answer, and note the notifications before it."""
        while True:
            message = self.next()
            if message.get("id") == number and "method" not in message:
                return message
            self.told.append(message["method"])

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
            assert ready, "the bridge has said nothing"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, "the bridge has ended"
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def end(self) -> tuple[int, str]:
        """Close its stdin as a client does at the end; returns its status, and what it said."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        words = self.process.stderr.read().decode()
        return self.process.wait(WAIT_S), words


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stdiod-", dir="/tmp") as name:
        yield Path(name)


def kill(pid: int) -> None:
    """Kill a process, and wait for its end."""
    ended = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(ended, signal.SIGKILL)
        assert select.select([ended], [], [], WAIT_S)[0]
    finally:
        os.close(ended)


MODULE = actor(inputs={"echo": {}, "hang": {}})


def ends(daemon: Daemon, number: signal.Signals) -> None:
    """End a daemon: in order, or at once."""
    if number == signal.SIGTERM:
        daemon.end()
        return
    daemon.process.kill()
    daemon.process.wait()
    daemon.client.close()
    assert not daemon.kill_left()


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_client_keeps_its_session_when_the_daemon_ends_and_comes_back(
    number: signal.Signals, folder: Path
) -> None:
    first = Daemon(folder, MODULE)
    with McpClient("--socket", str(folder / "socket")) as client:
        client.initialize()
        tools = client.ask("tools/list")["result"]["tools"]
        assert [one["name"] for one in tools] == ["m__echo", "m__hang"]
        hanging = client.begin("tools/call", name="m__hang", arguments={})
        while first.status("m")["in_flight"] != 1:
            pass
        ends(first, number)
        failed = client.answer_to(hanging)["result"]
        assert failed["isError"] is True
        assert client.ask("ping")["result"] == {}
        waiting = client.begin("tools/call", name="m__echo", arguments={"text": "again"})
        with Daemon(folder, MODULE):
            answered = client.answer_to(waiting)["result"]
            assert answered["structuredContent"] == {"text": "again"}
            assert client.ask("tools/list")["result"]["tools"] == tools
            assert client.told == []
            assert client.end() == (0, "")


def test_a_call_in_flight_when_the_daemon_is_killed_fails_once_in_words(folder: Path) -> None:
    first = Daemon(folder, MODULE)
    with McpClient("--socket", str(folder / "socket")) as client:
        client.initialize()
        hanging = client.begin("tools/call", name="m__hang", arguments={})
        while first.status("m")["in_flight"] != 1:
            pass
        ends(first, signal.SIGKILL)
        words = text(client.answer_to(hanging)["result"])
        assert (
            "the daemon ended, or closed the connection, while the request was in flight" in words
        )
        with Daemon(folder, MODULE) as daemon:
            assert "isError" not in client.call("m__echo")
            assert daemon.status("m")["counters"]["invocations"] == 1, "it is not asked twice"


def test_tools_that_are_not_there_any_more_are_told_of(folder: Path) -> None:
    first = Daemon(folder, MODULE)
    with McpClient("--socket", str(folder / "socket")) as client:
        client.initialize()
        client.ask("tools/list")
        ends(first, signal.SIGTERM)
        with Daemon(folder, {**MODULE, "inputs": {"echo": {}}}):
            while "notifications/tools/list_changed" not in client.told:
                client.told.append(client.next()["method"])
            [tool] = client.ask("tools/list")["result"]["tools"]
            assert tool["name"] == "m__echo"


def installed(version: str, folder: Path) -> dict[str, str]:
    """Install a version in a folder; returns the environment of what is to run it."""
    for package in ("protocol", "schemas", "supervisor"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / package, folder / package, ignore=skipped)
    (folder / "protocol" / "version.py").write_text(f'VERSION = "{version}"\n')
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def test_a_session_goes_on_when_its_program_and_its_daemon_are_upgraded(folder: Path) -> None:
    older = installed("1.0.0", folder / "older")
    newer = installed("1.1.0", folder / "newer")
    first = Daemon(folder, MODULE, environment=older, anew=True)
    with McpClient("--socket", str(folder / "socket"), environment=older) as client:
        assert client.initialize()["result"]["serverInfo"]["version"] == "1.0.0"
        client.ask("tools/list")
        ends(first, signal.SIGTERM)
        shutil.rmtree(folder / "older")
        more = {**MODULE, "inputs": {"echo": {}, "more": {}}}
        with Daemon(folder, more, environment=newer, anew=True):
            assert version_beside(folder / "socket") == "1.1.0"
            while "notifications/tools/list_changed" not in client.told:
                client.told.append(client.next()["method"])
            tools = client.ask("tools/list")["result"]["tools"]
            assert [one["name"] for one in tools] == ["m__echo", "m__more"]
            assert "isError" not in client.call("m__echo")
            assert client.end() == (0, "")


def test_a_daemon_that_is_stopped_for_a_while_answers_afterwards(folder: Path) -> None:
    with (
        Daemon(folder, MODULE) as daemon,
        McpClient("--socket", str(folder / "socket")) as client,
    ):
        client.initialize()
        daemon.process.send_signal(signal.SIGSTOP)
        calling = client.begin("tools/call", name="m__echo", arguments={"text": "late"})
        assert client.ask("ping")["result"] == {}
        daemon.process.send_signal(signal.SIGCONT)
        assert client.answer_to(calling)["result"]["structuredContent"] == {"text": "late"}


def test_a_client_is_greeted_though_the_daemon_accepts_and_never_answers(folder: Path) -> None:
    with serving(folder / "s", lambda _: []), McpClient("--socket", str(folder / "s")) as client:
        assert client.initialize()["result"]["serverInfo"]["name"] == "stdiod"
        assert client.ask("ping")["result"] == {}


def test_a_daemon_that_this_started_is_started_again_by_the_next_request(folder: Path) -> None:
    modules = folder / "modules"
    modules.mkdir()
    (modules / "dice").symlink_to(DICE)
    named = {"STDIOD_SOCKET": str(folder / "s"), "STDIOD_DATA_DIR": str(folder / "data")}
    with McpClient(str(modules), environment=named) as client:
        try:
            client.initialize()
            pids = []
            for _ in range(2):
                rolled = client.call("dice__roll", dice="d1")
                assert rolled["structuredContent"] == {"rolls": [1], "total": 1}
                with DaemonClient(folder / "s") as direct:
                    pids.append(direct.daemon_pid())
                if len(pids) == 1:
                    kill(pids[0])
            assert pids[0] != pids[1]
            status, words = client.end()
            assert status == 0
            assert words.count("started a daemon") == 2
        finally:
            down = [*STDIOD, "down"]
            subprocess.run(down, env={**os.environ, **named}, capture_output=True, check=True)


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_it_ends_with_its_client(stream: str, folder: Path) -> None:
    with (
        Daemon(folder, MODULE),
        McpClient("--socket", str(folder / "socket")) as client,
    ):
        client.initialize()
        getattr(client.process, stream).close()
        assert client.process.wait(WAIT_S) == 0


def test_a_client_that_reads_late_gets_every_answer(folder: Path) -> None:
    text = {"text": "x" * (1 << 20)}
    with (
        Daemon(folder, MODULE) as daemon,
        McpClient("--socket", str(folder / "socket")) as client,
    ):
        client.initialize()
        begun: list[int] = []

        def ask() -> None:
            calls = (client.begin("tools/call", name="m__echo", arguments=text) for _ in range(8))
            begun.extend(calls)

        asking = threading.Thread(target=ask)
        asking.start()
        while not daemon.status("m")["counters"]["invocations"]:
            pass
        answers = [client.next()["id"] for _ in range(8)]
        asking.join(WAIT_S)
        assert sorted(answers) == begun


def line_of(rpc_id: object, method: str, **params: Any) -> bytes:
    """Return a request of the newer era."""
    message = {"jsonrpc": "2.0", "id": rpc_id, "method": method}
    return json.dumps({**message, "params": {**params, "_meta": modern()}}).encode() + b"\n"


@contextmanager
def bridge_in_thread(
    path: Path, starter: Sequence[str] = (), silent_s: float = WAIT_S
) -> Iterator[socket.socket]:
    """Serve a client on a socket until that is closed; yields the client's end."""
    client, its = socket.socketpair()
    bridge = StdioBridge(str(path), reading=its.fileno(), writing=its.fileno())
    bridge.starter, bridge.silent_s = starter, silent_s
    client.settimeout(WAIT_S)
    thread = threading.Thread(target=bridge.serve)
    with its, closing(bridge):
        try:
            with client:
                thread.start()
                yield client
        finally:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_it_ends_with_a_client_on_a_socket_though_a_call_is_open(folder: Path) -> None:
    client, its = socket.socketpair()  # as Node.js starts its children
    with Daemon(folder, {**MODULE, "supervision": {"timeouts": {"invoke_s": 600}}}) as daemon:
        words = [*STDIOD, "mcp", "--socket", str(folder / "socket")]
        with client, its:
            bridge = subprocess.Popen(words, stdin=its.fileno(), stdout=its.fileno())
            client.sendall(line_of(1, "tools/call", name="m__hang", arguments={}))
            while daemon.status("m")["in_flight"] != 1:
                pass
        assert bridge.wait(WAIT_S) == 0


def test_starts_that_fail_come_at_longer_and_longer_intervals(folder: Path) -> None:
    os.mkfifo(fifo := folder / "started")
    starter = ["/bin/sh", "-c", f"echo > {fifo}; exit 1"]
    with bridge_in_thread(folder / "s", starter) as client:
        client.sendall(line_of(1, "tools/list"))
        fifo.read_text()
        begun = time.monotonic()
        for _ in range(3):
            fifo.read_text()
        assert time.monotonic() - begun > 1  # at the least, whatever is drawn


def test_a_daemon_is_joined_though_what_was_to_start_one_never_ends(folder: Path) -> None:
    os.mkfifo(fifo := folder / "started")
    starter = ["/bin/sh", "-c", f"echo > {fifo}; exec cat {fifo}"]
    with bridge_in_thread(folder / "socket", starter) as client:
        client.sendall(line_of(1, "tools/list"))
        fifo.read_text()
        with Daemon(folder, MODULE):
            assert b'"m__echo"' in client.recv(1 << 16)


def answers_of(client: socket.socket, number: int) -> dict[int, dict[str, Any]]:
    """Read so many answers, each of which comes once; returns the results by id."""
    data = b""
    found: dict[int, dict[str, Any]] = {}
    while len(found) < number:
        more = client.recv(1 << 16)
        assert more, "the bridge has ended"
        *lines, data = (data + more).split(b"\n")
        for message in map(json.loads, lines):
            if "method" not in message:
                assert message["id"] not in found
                found[message["id"]] = message["result"]
    return found


def test_a_daemon_that_never_answers_is_given_up_for_one_that_does(folder: Path) -> None:
    path = folder / "socket"
    with (
        socket.socket(socket.AF_UNIX) as silent,
        bridge_in_thread(path, silent_s=0.05) as client,
        contextlib.ExitStack() as accepted,
    ):
        silent.settimeout(WAIT_S)
        silent.bind(str(path))
        silent.listen()
        client.sendall(line_of(1, "tools/call", name="m__echo", arguments={"n": 1}))
        for _ in range(3):
            accepted.enter_context(silent.accept()[0])
        path.unlink()
        with Daemon(folder, MODULE):
            assert answers_of(client, 1)[1]["structuredContent"] == {"n": 1}
            client.sendall(line_of(2, "tools/call", name="m__echo", arguments={"n": 2}))
            assert answers_of(client, 1)[2]["structuredContent"] == {"n": 2}


def dials(path: Path) -> int:
    """Return how many connections a listening socket has that were not accepted."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") for line in lines) - 1


def test_a_daemon_that_is_stopped_for_longer_than_it_may_be_silent_answers_afterwards(
    folder: Path,
) -> None:
    with Daemon(folder, MODULE) as daemon:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            with bridge_in_thread(daemon.socket, silent_s=0.05) as client:
                client.sendall(line_of(1, "tools/call", name="m__echo", arguments={"n": 1}))
                client.sendall(line_of(2, "tools/list"))
                until(lambda: dials(daemon.socket) >= 3, "the bridge dialling again")
                daemon.process.send_signal(signal.SIGCONT)
                answers = answers_of(client, 2)
                assert answers[1]["structuredContent"] == {"n": 1}
                assert [one["name"] for one in answers[2]["tools"]] == ["m__echo", "m__hang"]
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert daemon.status("m")["counters"]["invocations"] == 1, "it is not asked twice"


def test_a_client_that_goes_while_the_daemon_is_stopped_is_parted_from(folder: Path) -> None:
    words = ["--socket", str(folder / "socket")]
    patient = {**MODULE, "supervision": {"timeouts": {"invoke_s": 600}}}
    with Daemon(folder, patient) as daemon, McpClient(*words) as other:
        other.initialize()
        with McpClient(*words) as client:
            client.initialize()
            client.begin("tools/call", name="m__hang", arguments={})
            until(lambda: daemon.status("m")["in_flight"] == 1, "the call")
            daemon.process.send_signal(signal.SIGSTOP)
            try:
                client.begin("tools/call", name="m__hang", arguments={})
                for stream in (client.process.stdin, client.process.stdout):
                    assert stream is not None
                    stream.close()
                assert client.process.wait(WAIT_S) == 0
                waiting = other.begin("tools/call", name="m__echo", arguments={"n": 1})
            finally:
                daemon.process.send_signal(signal.SIGCONT)
        assert other.answer_to(waiting)["result"]["structuredContent"] == {"n": 1}
        until(lambda: daemon.status("m")["in_flight"] == 0, "the calls being given up")


def test_two_that_start_a_daemon_at_once_share_one_and_do_so_again(folder: Path) -> None:
    modules = folder / "modules"
    modules.mkdir()
    (modules / "dice").symlink_to(DICE)
    path = folder / "s"
    named = [f"STDIOD_SOCKET={path}", f"STDIOD_DATA_DIR={folder / 'data'}"]
    words = ["env", *named, *STDIOD]
    starter = [*words, "mcp", str(modules)]
    try:
        with bridge_in_thread(path, starter) as one, bridge_in_thread(path, starter) as other:
            for number in range(2):
                rolling = line_of(number, "tools/call", name="dice__roll", arguments={"dice": "d1"})
                for client in (one, other):
                    client.sendall(rolling)
                for client in (one, other):
                    rolled = answers_of(client, 1)[number]
                    assert rolled["structuredContent"] == {"rolls": [1], "total": 1}
                if number == 0:
                    with DaemonClient(path) as direct:
                        kill(direct.daemon_pid())
    finally:
        subprocess.run([*words, "down"], capture_output=True, check=True)
