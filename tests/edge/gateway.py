"""A gateway by itself, and a daemon that does as a test says."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from supervisor.kernel.operations import inputs
from tests.bounds import WAIT_S, until
from tests.cli.fake_daemon import log, ok

Frame = dict[str, Any]


class Asked(NamedTuple):
    """A line of the gateway, and the number of the connection that it came over."""

    connection: int
    frame: Frame


class ScriptedDaemon:
    """Each connection has a thread; what the gateway asks for itself is answered as usual."""

    def __init__(
        self,
        path: Path,
        first_handle: int = 1,
        answers: Callable[[Frame], Frame | None] = lambda _: ok({"status": "ok"}),
    ) -> None:
        self.asked: list[Asked] = []
        self.answers = answers
        """Of requests of others; None ends all connections."""
        self.opens: Callable[[Frame], Frame | None] = lambda _: None
        """Of `login.open`, instead of a new handle."""
        self._handle = first_handle
        self._connections: list[socket.socket] = []
        self._has_left = False
        self._follower: tuple[socket.socket, str] | None = None
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._path = path
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def frames(self, operation: str) -> list[Asked]:
        return [one for one in tuple(self.asked) if one.frame["operation"] == operation]

    def end_login(self, handle: str, why: str) -> None:
        """Tell that a login is over."""
        self.tell_follower(handle=handle, why=why)

    def tell_follower(self, **fields: str) -> None:
        """Say a line of `login.follow`."""
        assert self._follower is not None
        client, request_id = self._follower
        self._say(client, request_id, log("a login is over", **fields))

    def leave(self) -> None:
        """End, as a daemon that is killed."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        with self._lock:
            self._has_left = True
            for one in self._connections:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self.leave()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._has_left:  # accepted at the very moment
                    client.close()
                    return
                self._connections.append(client)
                number = len(self._connections)
            thread = threading.Thread(target=self._serve, args=(client, number))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, number: int) -> None:
        with client, contextlib.suppress(OSError), client.makefile("rb") as lines:
            for line in lines:
                frame = json.loads(line)
                self.asked.append(Asked(number, frame))
                answer = self._answer(client, frame)
                if answer is None:
                    self.leave()
                    return
                if answer:
                    self._say(client, frame["requestId"], answer)

    def _answer(self, client: socket.socket, frame: Frame) -> Frame | None:
        match frame["operation"]:
            case "cancel":
                return {}
            case "login.follow":
                self._follower = client, frame["requestId"]
                return log("from here on")
            case "login.open":
                with self._lock:
                    self._handle += 1
                    handle = f"h{self._handle}"
                said = frame["input"]
                name = "ada" if "uid" in said else f"token:{said.get('token')}"
                who = {"name": name, "face": "http", "scopes": ["read"], "modules": ["*"]}
                return self.opens(frame) or ok({"handle": handle, **who})
            case "describe" if "as" not in frame:
                return ok({"inputs": inputs()})
            case _ if "as" not in frame:
                return ok({"handle": frame["input"].get("handle"), "forgotten": False})
        return self.answers(frame)

    def _say(self, client: socket.socket, request_id: str, answer: Frame) -> None:
        line = {"version": "0", "requestId": request_id, **answer}
        client.sendall(json.dumps(line).encode() + b"\n")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """One connection, over TCP or to a Unix socket."""

    def __init__(self, address: int | Path) -> None:
        """`address` is a port, or a path."""
        port = address if isinstance(address, int) else None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        if isinstance(address, Path):
            self._connection.sock = socket.socket(socket.AF_UNIX)
            self._connection.sock.settimeout(WAIT_S)
            self._connection.sock.connect(str(address))

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = "t",
        **more: str,
    ) -> None:
        """`more` are headers, with `_` for `-`."""
        headers = {"Content-Type": "application/json"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, headers)

    def reply(self) -> Reply:
        with self._connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, headers, response.read())

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        self.send(method, path, body, **more)
        return self.reply()

    def stream(self) -> http.client.HTTPResponse:
        """Return a response with its body unread."""
        return self._connection.getresponse()

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        assert self._connection.sock is not None
        self._connection.sock.sendall(data)

    def read_to(self, end: bytes) -> None:
        """Read bytes up to those, after a switch of protocols."""
        assert self._connection.sock is not None
        found = b""
        while end not in found:
            data = self._connection.sock.recv(1 << 16)
            assert data, found
            found += data

    def close(self) -> None:
        self._connection.close()

    def is_closed(self) -> bool:
        """Wait until the other side closes."""
        assert self._connection.sock is not None
        return self._connection.sock.recv(1) == b""


class Gateway:
    """A gateway beside a socket at which there is a daemon or none."""

    def __init__(
        self, control: Path, unix: Path, port: int, process: subprocess.Popen[bytes]
    ) -> None:
        self.control = control
        self.unix = unix
        """Its `http.sock`."""
        self.port = port
        self.process = process
        self.exit_code = 0
        """How it is expected to end."""

    @property
    def most_bytes(self) -> int:
        """The most memory that it ever took."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (one for one in status.splitlines() if one.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    @contextlib.contextmanager
    def client(self, address: Path | None = None) -> Iterator[HttpClient]:
        client = HttpClient(address or self.port)
        try:
            yield client
        finally:
            client.close()

    @contextlib.contextmanager
    def daemon(self, first_handle: int = 1, **more: Any) -> Iterator[ScriptedDaemon]:
        """Have a daemon at its socket, and wait until the gateway knows."""
        daemon = ScriptedDaemon(self.control, first_handle, **more)
        try:
            until(lambda: self._status() == 200, "the daemon being found")
            daemon.asked.clear()
            yield daemon
        finally:
            daemon.join()

    def _status(self) -> int:
        with self.client() as client:
            return client.ask("GET", "/api/v1/health", token="probe").status


@contextlib.contextmanager
def gateway(control: Path | None = None, *python: str) -> Iterator[Gateway]:
    """Run a gateway; `control` is the socket of a daemon that a test has.

    `python` are words for the interpreter instead of those that run the program.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-") as name,
        socket.socket() as listener,
        socket.socket(socket.AF_UNIX) as unix_listener,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        unix = Path(name, "http.sock")
        unix_listener.bind(str(unix))
        unix_listener.listen()
        listeners = (listener.fileno(), unix_listener.fileno())
        control = control or Path(name, "s")
        where = ["--socket", str(control), "--http", f"127.0.0.1:{port}"]
        program = python or ("-m", "supervisor.edge.http")
        words = [sys.executable, *program, "--supervised", *where]
        for number in listeners:
            words += ["--listener", str(number)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=listeners)
        started = Gateway(control, unix, port, process)
        try:
            yield started
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT_S) == started.exit_code
