"""Bad days of the gateway, under load: it is killed, it is stopped, it runs out of memory.

On each of them its clients (`CLIENTS`) ask again and again, each with words of its own, and look
whether an answer is theirs. A client whose answer is cut off, or that is told 502 or 503, asks
anew; any other answer is a fault. Who asks over the control socket notices nothing at all.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, TextMessage

from tests.bounds import until
from tests.system.daemon import Daemon
from tests.system.descriptors import actor
from tests.system.liveness import BOUND_S
from tests.system.test_gateway import gateway_pid, http_of, restarted
from tests.system.test_http import UnixConnection

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c3RkaW9kIGlzIGEgaG9zdA==\r\n\r\n"
)
INVOKE = "/api/v1/modules/m/invoke"
ASSET = bytes(range(256)) * (4 << 10)
EVENTS = 50
"""Of a streamed invocation."""
PAUSE_S = 0.002
"""Between two requests of a client: what is tested is no rate."""

GROWS = """
import sys, threading
if "supervisor.edge.http" in sys.orig_argv:
    held = []
    def grow():
        with open({fifo!r}) as told:
            told.read()
        held.append(b"x" * (600 << 20))
    threading.Thread(target=grow, daemon=True).start()
"""
"""The gateway's interpreter begins with this: it takes more than the gateway may when it is told to
(it does nothing else that a test could make as large)."""


class CutOffError(Exception):
    """There was no answer, or not all of it."""


class Client:
    """A client of the gateway, in a thread of its own."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.answered = self.cut_off = 0
        self.wrong: list[str] = []
        self._daemon = daemon
        self._name = name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._connection = UnixConnection(daemon.folder / "http.sock")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self.close()

    def ask_once(self, nonce: str) -> None:
        """Ask, and look at the answer; raises `CutOffError`, and anything of a wrong answer."""
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S):
            number += 1
            try:
                self.ask_once(f"{self._name}-{number}")
            except CutOffError:
                self.cut_off += 1
                self.close()
            except Exception as error:  # noqa: BLE001 - the test tells it
                self.wrong.append(f"{self._name}: {error!r}")
                return
            else:
                self.answered += 1

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        said = {"Content-Type": "application/json"}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, said)
            response = self._connection.getresponse()
        except (ConnectionError, http.client.HTTPException) as error:
            raise CutOffError from error
        if response.status in (502, 503):
            words = json.loads(read(response))["error"]
            assert words
            raise CutOffError(words)
        return response


def read(response: http.client.HTTPResponse, looks_at: Callable[[bytes], object] = len) -> bytes:
    """Read a body; what there is of one that is cut off has to be right, too."""
    try:
        return response.read()
    except http.client.IncompleteRead as error:
        looks_at(error.partial)
        raise CutOffError from error
    except ConnectionError as error:
        raise CutOffError from error


class Invoking(Client):
    def ask_once(self, nonce: str) -> None:
        response = self.request("POST", INVOKE, {"op": "echo", "args": {"nonce": nonce}})
        answer = json.loads(read(response))
        assert (response.status, answer["result"]) == (200, {"nonce": nonce})


class Streaming(Client):
    """Reads the events of an invocation as NDJSON."""

    def ask_once(self, nonce: str) -> None:
        body = {"op": "events", "args": {"count": EVENTS, "pad": nonce}}
        response = self.request("POST", INVOKE, body, Accept="application/x-ndjson")

        def look(data: bytes) -> None:
            messages = [one.get("message") for one in lines_of(data)][:EVENTS]
            assert messages == [f"{number} {nonce}" for number in range(len(messages))]

        data = read(response, look)
        look(data)
        *events, done = lines_of(data)
        assert (response.status, len(events), done["ok"]) == (200, EVENTS, True)
        assert done["result"] == {"count": EVENTS, "pad": nonce}


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """Return the whole lines; a blank one is a sign of life."""
    return [json.loads(line) for line in data.rpartition(b"\n")[0].splitlines() if line]


class Downloading(Client):
    """Reads the bytes of an asset."""

    def ask_once(self, nonce: str) -> None:
        del nonce
        response = self.request("GET", "/api/v1/assets/one/content")

        def look(data: bytes) -> None:
            assert ASSET.startswith(data)

        data = read(response, look)
        assert (response.status, data == ASSET) == (200, True)


class McpSession(Client):
    """Calls a tool in a session of `/mcp`, which it begins anew when that is gone (404)."""

    _session: str | None = None

    def ask_once(self, nonce: str) -> None:
        if self._session is None:
            response = self._ask(
                "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}
            )
            read(response)
            assert response.status == 200
            self._session = response.headers["Mcp-Session-Id"]
        given = {"name": "m__echo", "arguments": {"nonce": nonce}}
        named = {"Mcp_Session_Id": self._session}
        response = self._ask("tools/call", given, **named)
        answer = json.loads(read(response))
        if response.status == 404:
            self._session = None
            raise CutOffError(answer["error"])
        assert (response.status, answer["id"]) == (200, nonce)
        assert answer["result"]["structuredContent"] == {"nonce": nonce}

    def _ask(self, method: str, params: dict[str, Any], **headers: str) -> http.client.HTTPResponse:
        named = params.get("arguments", {}).get("nonce", "begin")
        body = {"jsonrpc": "2.0", "id": named, "method": method, "params": params}
        return self.request("POST", "/mcp", body, Accept="application/json", **headers)


class OverWebSocket(Client):
    _socket: socket.socket | None = None
    _wire: Connection

    def ask_once(self, nonce: str) -> None:
        payload = {"action": "invoke", "module": "m", "op": "echo", "args": {"nonce": nonce}}
        try:
            if self._socket is None:
                self._begin()
                assert self._frame()["payload"]["kind"] == "connected"
            self._say(TextMessage(json.dumps({"type": "request", "id": nonce, "payload": payload})))
            answer = self._frame()
        except ConnectionError as error:
            raise CutOffError from error
        assert (answer["type"], answer["id"]) == ("response", nonce)
        assert answer["payload"]["result"] == {"nonce": nonce}

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _begin(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(BOUND_S)
        self._socket.connect(str(self._daemon.folder / "http.sock"))
        self._socket.sendall(HANDSHAKE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._read()
        assert head.startswith(b"HTTP/1.1 101 "), head
        self._wire = Connection(ConnectionType.CLIENT, trailing_data=head.partition(b"\r\n\r\n")[2])

    def _frame(self) -> Any:
        text = ""
        while True:
            for event in self._wire.events():
                if isinstance(event, CloseConnection):
                    raise ConnectionResetError(event.code)
                if isinstance(event, Ping):
                    self._say(event.response())
                if isinstance(event, TextMessage):
                    text += event.data
                    if event.message_finished:
                        return json.loads(text)
            self._wire.receive_data(self._read())

    def _say(self, event: Event) -> None:
        assert self._socket is not None
        self._socket.sendall(self._wire.send(event))

    def _read(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError
        return data


class Following(Client):
    """Follows the journal over SSE, and goes on behind the last entry that it has seen."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        super().__init__(daemon, name)
        self.last: int = daemon.op("events", last=1)["last_seq"]

    def ask_once(self, nonce: str) -> None:
        del nonce
        seen = str(self.last)
        path = "/api/v1/events"
        response = self.request("GET", path, Accept="text/event-stream", Last_Event_ID=seen)
        assert response.status == 200
        with contextlib.suppress(ConnectionError):
            for line in response:
                if line.startswith(b"id: ") and line.endswith(b"\n"):
                    assert int(line[4:]) == self.last + 1
                    self.last += 1
                    self.answered += 1
                if self._is_over.is_set():
                    return
        raise CutOffError


class OverSocket(Client):
    """Asks over the control socket, on one connection; a call is open there all the time."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        super().__init__(daemon, name)
        self._client = daemon.connect()
        self._open = self._client.send("m", "invoke", {"op": "hang", "timeout_s": BOUND_S})

    def ask_once(self, nonce: str) -> None:
        assert self._client.invoke("m", "echo", nonce=nonce).result == {"nonce": nonce}

    def close(self) -> None:
        self._connection.close()
        self._client.cancel(self._open)
        self.ended = self._client.answer(self._open).verdict
        self._client.close()


CLIENTS = (Invoking, Streaming, Downloading, McpSession, OverWebSocket, Following)
WITHOUT_END = (McpSession, OverWebSocket, Following)
"""Have something open at any moment."""


class Load:
    """All clients at once, and how the daemon's modules and sessions were before."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.socket_client = OverSocket(daemon, "socket")
        kinds = [*CLIENTS, Invoking, Streaming]
        self.clients = [kind(daemon, f"{kind.__name__}{n}") for n, kind in enumerate(kinds)]
        self.gateway = gateway_pid(daemon)
        self._before = self._state()

    def _state(self) -> list[Any]:
        module = self.daemon.status("m")
        sessions = self.daemon.op("session.list")["sessions"]
        known = [{key: one[key] for key in ("session_id", "status")} for one in sessions]
        (instance,) = module["instances"]
        return [instance["pid"], module["restarts"], known]

    def goes_on(self, clients: list[Client] | None = None, more: int = 1) -> None:
        """Wait until each client has had so many more answers."""
        clients = [*self.clients, self.socket_client] if clients is None else clients
        before = [one.answered for one in clients]

        def have_more() -> bool:
            both = zip(clients, before, strict=True)
            return bool(self.wrong) or all(one.answered >= count + more for one, count in both)

        until(have_more, "more answers")
        assert not self.wrong

    @property
    def wrong(self) -> list[str]:
        return [words for one in (*self.clients, self.socket_client) for words in one.wrong]

    def changed_nothing(self) -> None:
        """Look at who was not concerned, and that of the journal nothing was missed."""
        last = self.daemon.op("events", last=1)["last_seq"]
        (follower,) = (one for one in self.clients if isinstance(one, Following))
        until(lambda: self.wrong or follower.last >= last, "the journal")
        assert self._state() == self._before


@pytest.fixture(scope="module")
def fifo() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stdiod-") as name:
        path = Path(name, "grow")
        os.mkfifo(path)
        yield path


@pytest.fixture(scope="module")
def daemon(fifo: Path) -> Iterator[Daemon]:
    (fifo.parent / "sitecustomize.py").write_text(GROWS.format(fifo=str(fifo)))
    found = [str(fifo.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ops: dict[str, Any] = {"echo": {}, "events": {}, "hang": {}}
    calls = {"concurrency": 16, "timeouts": {"stop_s": 1, "invoke_s": BOUND_S}}
    module = actor(inputs=ops, supervision=calls)
    folder = fifo.parent / "d"
    folder.mkdir()
    options = ("--http", "sock")
    told = {"PYTHONPATH": os.pathsep.join(found)}
    modules = module, actor(name="files")
    with Daemon(folder, *modules, options=options, environment=told) as daemon:
        (folder / "asset").write_bytes(ASSET)
        known = {"assetId": "one", "kind": "image", "mediaType": "image/png"}
        asset = {"version": "0", "type": "asset", **known, "path": str(folder / "asset")}
        lines = [json.dumps(asset), json.dumps({"version": "0", "type": "done", "ok": True})]
        assert daemon.invoke("files", "say", lines=lines).ok
        daemon.op("session.new", session_id="s")
        yield daemon


@pytest.fixture
def load(daemon: Daemon) -> Iterator[Load]:
    load = Load(daemon)
    with contextlib.ExitStack() as running:
        for one in (*load.clients, load.socket_client):
            running.enter_context(one)
        load.goes_on()
        yield load
    assert not load.wrong
    assert load.socket_client.ended == "cancelled/client"


@pytest.mark.parametrize("how", ["killed", "stopped", "out of memory"])
def test_a_gateway_that_is_gone_costs_its_clients_an_answer_and_nobody_anything_else(
    how: str, load: Load, fifo: Path
) -> None:
    match how:
        case "killed":
            os.kill(load.gateway, signal.SIGKILL)
        case "stopped":
            os.kill(load.gateway, signal.SIGSTOP)
            load.goes_on([load.socket_client], 100)
        case _:
            fifo.write_text("grow")
    shown = restarted(load.daemon, load.gateway)
    load.goes_on()
    assert all(one.cut_off for one in load.clients if isinstance(one, WITHOUT_END))
    load.changed_nothing()
    end = shown["last_exit"]
    match how:
        case "killed":
            assert (end["reason"], end["signal"]) == ("signaled", signal.SIGKILL)
        case "stopped":
            assert "health probes" in end["message"]
        case _:
            assert end["reason"] in ("memory_limit", "cgroup_oom")


def test_a_gateway_that_is_stopped_for_a_moment_costs_nobody_an_answer(load: Load) -> None:
    os.kill(load.gateway, signal.SIGSTOP)
    try:
        load.goes_on([load.socket_client], 100)
        assert load.daemon.op("status")["http"]["state"] == "ready"
    finally:
        os.kill(load.gateway, signal.SIGCONT)
    load.goes_on()
    assert http_of(load.daemon)["instances"][0]["pid"] == load.gateway
    assert [one.cut_off for one in load.clients] == [0] * len(load.clients)
    load.changed_nothing()
