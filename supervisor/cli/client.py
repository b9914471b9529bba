"""Client of a daemon's control socket, without trio; and why nobody answers there.

A request is a line; the answers are Spec 001 events with its `requestId`, the last one `done`.
Closing the connection cancels what is still open, so Ctrl-C needs no more than leaving the block.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from protocol.frames import encode_line
from protocol.framing import UNCOUNTED, LineSplitter, Overlong
from protocol.version import VERSION
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.lock_file import lock_holder, socket_lock, version_beside
from supervisor.cli.project import default_data_dir, way_to_start
from supervisor.cli.terminal import one_line

SUPERVISOR = "supervisor"

CONNECT_S = 5.0
"""How long a busy daemon may take to accept a client."""

ANSWER_S = 30.0
"""How long the daemon may take to answer an op of its own."""

LINE_BYTES = 256 << 20
"""A longer line is no answer: modules may write 8 MiB, unless their descriptors allow more."""

READ_BYTES = 1 << 16

_TIMEVAL = struct.Struct("ll")
_CONNECT_TIME, _NO_BOUND = _TIMEVAL.pack(int(CONNECT_S), 0), _TIMEVAL.pack(0, 0)

_DECODE = msgspec.json.Decoder(dict[str, Any]).decode
_ENVELOPE = ("version", "type", "requestId")

OnEvent = Callable[[dict[str, Any], bytes], None]
"""Takes an event, and its line."""


class Answer(msgspec.Struct, frozen=True):
    """The `done` event of a request, without its envelope."""

    document: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.document.get("ok") is True

    @property
    def result(self) -> Any:
        return self.document.get("result")

    @property
    def error(self) -> dict[str, Any]:
        error = self.document.get("error")
        return error if isinstance(error, dict) else {}


def own_op(op: str, args: dict[str, Any] | None = None) -> tuple[str, str, dict[str, Any]]:
    """Return the request for an op of the daemon itself: a tool, an operation and its input."""
    return SUPERVISOR, "invoke", {"op": op, "args": args or {}}


def given_args(**args: Any) -> dict[str, Any]:
    """Return the args of an op that are not None."""
    return {name: value for name, value in args.items() if value is not None}


class NoAnswerError(Exception):
    """The caller's timeout has passed."""


class DaemonClient:
    def __init__(self, path: Path) -> None:
        """Connect; raises `NoDaemonError`."""
        self.path = path
        self._socket = _connect(path)
        tell_other_version(path)
        self._splitter = LineSplitter(LINE_BYTES, UNCOUNTED)
        self._lines: deque[bytes] = deque()
        self._number = 0
        self.before_waiting: Callable[[float | None], None] = lambda _: None
        """Called before each wait for the daemon, with the seconds left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def detach(self) -> socket.socket:
        """Return the socket, without a timeout; the client cannot be used afterwards."""
        self._socket.settimeout(None)
        return socket.socket(fileno=self._socket.detach())

    def daemon_pid(self) -> int:
        """Return the listener's pid as the kernel knows it; 0 if it is in another PID namespace."""
        credentials = struct.Struct("3i")
        data = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        return int(credentials.unpack(data)[0])

    def own(
        self,
        op: str,
        args: dict[str, Any] | None = None,
        on_event: OnEvent | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Call an op of the daemon itself; see `request`."""
        return self.request(*own_op(op, args), on_event, timeout_s)

    def known(self, op: str, args: dict[str, Any] | None = None) -> Answer:
        """Call an op that the daemon answers at once; raises `NoDaemonError` without an answer."""
        try:
            return self.own(op, args, timeout_s=ANSWER_S)
        except NoAnswerError:
            words = f"the daemon on {self.path} gave no answer in {ANSWER_S:g} s; it may be stopped"
            raise NoDaemonError(words) from None

    def chosen(self, modules: tuple[str, ...], *, every: bool, wanted: bool = False) -> list[str]:
        """Return the typed names, or with `every` those of all enabled modules.

        With `wanted`, of those that are wanted up.
        """
        if not every:
            return list(dict.fromkeys(modules))
        entries: list[dict[str, Any]] = self.known("status").result["modules"]
        used = (one for one in entries if one["state"] != "disabled")
        return [one["name"] for one in used if one["wanted"] == "up" or not wanted]

    def request(
        self,
        tool: str,
        operation: str,
        given: dict[str, Any],
        on_event: OnEvent | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request and wait for its end, without a timeout if `timeout_s` is None.

        Raises `NoAnswerError`, and `NoDaemonError` if the daemon goes away.
        """
        open_requests = {self.send(tool, operation, given): 0}
        told = None if on_event is None else lambda _, event, line: on_event(event, line)
        _, answer = next(self._answers(open_requests, told, timeout_s))
        return answer

    def together(
        self,
        requests: Sequence[tuple[str, str, dict[str, Any]]],
        on_event: Callable[[int, dict[str, Any], bytes], None] | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """Send requests at once; yields each answer as it comes, with its number.

        Raises `NoDaemonError` if the daemon goes away.
        """
        sent = [self.send(*one) for one in requests]
        return self._answers({one: number for number, one in enumerate(sent)}, on_event, None)

    def _answers(
        self,
        open_requests: dict[str, int],
        on_event: Callable[[int, dict[str, Any], bytes], None] | None,
        timeout_s: float | None,
    ) -> Iterator[tuple[int, Answer]]:
        for document, line in self.events(timeout_s) if open_requests else ():
            # A line the daemon could not read is answered without an id.
            request_id = document.get("requestId", next(iter(open_requests)))
            number = open_requests.get(request_id)
            if number is None:
                continue
            if document.get("type") == "done":
                del open_requests[request_id]
                yield number, Answer({k: v for k, v in document.items() if k not in _ENVELOPE})
                if not open_requests:
                    return
            elif on_event is not None:
                on_event(number, document, line)
        if open_requests:
            raise NoDaemonError("the daemon closed the connection before it answered")

    def send(self, tool: str, operation: str, given: dict[str, Any]) -> str:
        """Send a request; returns its id."""
        self._number += 1
        request_id = f"c{self._number}"
        frame = {"requestId": request_id, "tool": tool, "operation": operation, "input": given}
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.sendall(encode_line(frame))
        except TimeoutError:
            raise NoDaemonError(f"the daemon on {self.path} does not read") from None
        except OSError:
            # The daemon has closed the connection; its last lines may still be read.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        return request_id

    def events(self, timeout_s: float | None = None) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the events of all requests, each with its line, until the daemon goes away.

        Raises `NoAnswerError` after the timeout.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while (line := self._next_line(ends_at)) is not None:
            try:
                document = _DECODE(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                words = f"what answers on {self.path} is not a stdiod daemon"
                raise NoDaemonError(words) from None
            yield document, line

    def _next_line(self, ends_at: float | None) -> bytes | None:
        while not self._lines:
            data = self._receive(ends_at)
            if not data:
                return None
            for line in self._splitter.feed(data):
                if isinstance(line, Overlong):
                    words = f"the daemon answered with a line of more than {LINE_BYTES} bytes"
                    raise NoDaemonError(words)
                self._lines.append(line)
        return self._lines.popleft()

    def _receive(self, ends_at: float | None) -> bytes:
        left_s = None if ends_at is None else ends_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise NoAnswerError
        self.before_waiting(left_s)
        self._socket.settimeout(left_s)
        try:
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise NoAnswerError from None
        except ConnectionError:
            return b""


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not by `settimeout`: then connect(2) would not wait at all for a daemon that is busy.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _CONNECT_TIME)
        connection.connect(str(path))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _NO_BOUND)
    except OSError as error:
        connection.close()
        raise NoDaemonError(_why_not(path, error)) from None
    return connection


@functools.cache  # once, however often it connects
def tell_other_version(path: Path) -> None:
    """Warn that the daemon has another version."""
    version = version_beside(path)
    if version is not None and version != VERSION:
        sys.stderr.write(
            f"stdiod: this is {VERSION}, the daemon is {one_line(version)}; a feature that only one"
            " of them has will not work: `stdiod down` and `stdiod up` start this version\n"
        )


def _why_not(path: Path, error: OSError) -> str:
    start = f"{way_to_start(path)} starts one"
    if isinstance(error, FileNotFoundError):
        return why_missing(path)
    if isinstance(error, ConnectionRefusedError):
        if path.is_socket():
            return f"no daemon listens on {path}: the one that did is gone; {start}"
        return f"no daemon listens on {path}, which is not a socket"
    if isinstance(error, PermissionError):
        return f"{path} may not be used: its daemon runs for another user"
    if isinstance(error, TimeoutError | BlockingIOError):
        return f"the daemon on {path} accepted no client in {CONNECT_S:g} s; it may be stopped"
    return f"{path} cannot be connected to: {error.strerror}"


class Deaf(NamedTuple):
    """A running daemon whose socket file was deleted: nobody can connect."""

    pid: int
    socket: Path

    @property
    def what(self) -> str:
        return f"the socket {self.socket} is missing, but its daemon (pid {self.pid}) lives"

    @property
    def way_out(self) -> str:
        return (
            f"`kill {self.pid}` ends it and its modules in order, "
            f"then {way_to_start(self.socket)} starts another one"
        )


def deaf_daemon(socket: Path, data_dir: Path | None = None) -> Deaf | None:
    """Find the daemon of a socket file that is not there.

    It holds the lock beside the socket, which may be deleted too, and that of its data directory,
    the default one if None. A daemon that is starting or ending has no socket.
    """
    path = os.path.realpath(socket)
    for pid in (lock_holder(socket_lock(socket)), daemon_of(data_dir)):
        if pid is not None and path in map(os.path.realpath, listens_on(pid)):
            return Deaf(pid, socket)
    return None


def daemon_of(data_dir: Path | None = None) -> int | None:
    """Return the pid of the daemon that holds a data directory, the default one if None."""
    return lock_holder((data_dir or default_data_dir()) / "instances.lock")


def control_sockets(data_dir: Path) -> list[Path]:
    """Return the sockets of a data directory's daemon; `NoDaemonError` if another user's."""
    lock = data_dir / "instances.lock"
    if os.access(data_dir, os.X_OK) and lock.exists() and lock.stat().st_uid != os.geteuid():
        words = f"{data_dir} is in use by user {lock.stat().st_uid}"
        raise NoDaemonError(f"{words}; STDIOD_DATA_DIR can name another directory")
    pid = daemon_of(data_dir)
    return [] if pid is None else [one for one in listens_on(pid) if one.name != "http.sock"]


def listens_on(pid: int) -> list[Path]:
    """Return the paths of a process's Unix sockets, also of deleted files."""
    import psutil

    try:
        # Accepted connections have the path of the listening socket, clients have none.
        found = {str(one.laddr) for one in psutil.Process(pid).net_connections("unix")}
    except psutil.Error:
        return []
    return sorted(Path(path) for path in found if path)


def why_missing(socket: Path) -> str:
    """Explain why no connection is possible, and what to do."""
    deaf = deaf_daemon(socket)
    if deaf is not None:
        return f"{deaf.what}: {deaf.way_out}"
    import shlex

    said = f"no daemon listens on {socket}"
    start = f"{way_to_start(socket)} starts one"
    pid, others = daemon_of(), control_sockets(default_data_dir())
    if not others:
        return f"{said}; {start}"
    return (
        f"{said}; the daemon with pid {pid} listens on {others[0]}: "
        f"`stdiod --socket {shlex.quote(str(others[0]))}` speaks with it"
    )
