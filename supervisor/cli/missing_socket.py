"""Explain a missing socket: no daemon, another socket, or a deleted file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from supervisor.cli.exit_status import NoDaemonError
from supervisor.cli.locations import default_data_dir
from supervisor.cli.lock_file import lock_holder, socket_lock
from supervisor.cli.options import way_to_start


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
    path = _resolved(socket)
    for pid in (lock_holder(socket_lock(socket)), daemon_of(data_dir)):
        if pid is not None and path in map(_resolved, listens_on(pid)):
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


def _resolved(socket: Path) -> str:
    return os.path.realpath(socket)


def words(socket: Path) -> str:
    """Explain why no connection is possible, and what to do."""
    deaf = deaf_daemon(socket)
    if deaf is not None:
        return f"{deaf.what}: {deaf.way_out}"
    said = f"no daemon listens on {socket}"
    start = f"{way_to_start(socket)} starts one"
    pid, others = daemon_of(), control_sockets(default_data_dir())
    if not others:
        return f"{said}; {start}"
    return (
        f"{said}; the daemon with pid {pid} listens on {others[0]}: "
        f"`stdiod --socket {shlex.quote(str(others[0]))}` speaks with it"
    )
