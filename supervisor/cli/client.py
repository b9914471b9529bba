"""The command line's client of a daemon, and the words for why nobody answers.

Closing the connection cancels what is still open, so Ctrl-C needs no more than leaving the block.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from protocol.client import LINE_BYTES, Answer, ClientEvent, ConnectionEnd, EndCause
from protocol.version import VERSION
from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.lock_file import lock_holder, socket_lock, version_beside
from supervisor.cli.project import default_data_dir, way_to_start
from supervisor.cli.terminal import one_line
from supervisor.edge.bindings.blocking import (
    CONNECT_S,
    BlockingClient,
    OnEvent,
    RequestTimeoutError,
    connect,
)

SUPERVISOR = "supervisor"

ANSWER_S = 30.0
"""How long the daemon may take to answer an op of its own."""


def own_op(op: str, args: dict[str, Any] | None = None) -> tuple[str, str, dict[str, Any]]:
    """Return the request for an op of the daemon itself: a tool, an operation and its input."""
    return SUPERVISOR, "invoke", {"op": op, "args": args or {}}


def given_args(**args: Any) -> dict[str, Any]:
    """Return the args of an op that are not None."""
    return {name: value for name, value in args.items() if value is not None}


class DaemonClient(BlockingClient):
    def __init__(self, path: Path) -> None:
        """Connect; raises `NoDaemonError`."""
        try:
            connection = connect(path)
        except OSError as error:
            raise NoDaemonError(_why_not(path, error)) from None
        super().__init__(connection)
        self.path = path
        tell_other_version(path)
        self.before_waiting: Callable[[float | None], None] = lambda _: None
        """Called before each wait for the daemon, with the seconds left."""

    def failed(self, end: ConnectionEnd) -> NoDaemonError:
        words = {
            EndCause.CLOSED: "the daemon closed the connection before it answered",
            EndCause.NOT_A_DAEMON: f"what answers on {self.path} is not a stdiod daemon",
            EndCause.OVERLONG: f"the daemon answered with a line of more than {LINE_BYTES} bytes",
            EndCause.UNREAD: f"the daemon on {self.path} does not read",
        }
        return NoDaemonError(words[end.cause])

    def pump(self, timeout_s: float | None) -> list[ClientEvent]:
        self.before_waiting(timeout_s)
        return super().pump(timeout_s)

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
        except RequestTimeoutError:
            words = f"the daemon on {self.path} gave no answer in {ANSWER_S:g} s; it may be stopped"
            raise NoDaemonError(words) from None

    def chosen(self, modules: tuple[str, ...], *, wanted: bool = False) -> list[str]:
        """Return the typed names; without one, those of all enabled modules.

        With `wanted`, of those that are wanted up.
        """
        if modules:
            return list(dict.fromkeys(modules))
        entries: list[dict[str, Any]] = self.known("status").result["modules"]
        used = (one for one in entries if one["state"] != "disabled")
        return [one["name"] for one in used if one["wanted"] == "up" or not wanted]


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
