"""Read a daemon's lock file and find its holder, without locking it.

A lock that we held, however shortly, could turn a daemon away.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` and `pathlib` would be most of what `stdiod mcp` imports
if TYPE_CHECKING:
    from pathlib import Path


def socket_lock(socket: Path) -> Path:
    return socket.with_name(f"{socket.name}.lock")


def version_beside(socket: str | Path) -> str | None:
    """Return the version of the daemon of a socket, from its lock file.

    None if the file cannot be read: the socket is forwarded, or the file belongs to another user.
    """
    try:
        # Without waiting, if it is a pipe.
        lock = os.open(f"{socket}.lock", os.O_RDONLY | os.O_NONBLOCK)
        try:
            _, version, *_ = os.read(lock, 100).decode().split()
        finally:
            os.close(lock)
    except (OSError, ValueError):
        return None
    return version


def lock_holder(lock: Path) -> int | None:
    """Return the pid of the process that holds a flock(2) on a file; None if none is seen."""
    try:
        file = os.stat(lock)  # noqa: PTH116
        with open("/proc/locks", encoding="ascii") as locks:  # noqa: PTH123
            lines = locks.readlines()
    except OSError:
        return None
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{file.st_ino}"):
            pid = int(fields[4])
            if _has_open(pid, file):
                return pid
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    # The device in /proc/locks is not the one that stat(2) gives on every file system, and another
    # file system may have the same inode number; a user may be told to kill the pid returned here.
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(_is(entry.path, file) for entry in entries)
    except OSError:
        return False  # the process is gone, another user's, or in another PID namespace


def _is(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)  # noqa: PTH116
    except OSError:
        return False
