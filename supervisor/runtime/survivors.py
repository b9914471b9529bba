"""Make sure that this daemon starts alone: no other on its data, nothing left of a former one.

Two files in the data directory:

- `instances.lock`: locked (flock(2)) for as long as the daemon *or any process of its modules*
  lives, since each inherits the descriptor. A lock that cannot be had means that somebody is there.
- `instances`: the ledger (`containment.ledger`), which says who: pids with start times, marks.

The descriptor has a high number, `LOCK_FD`, out of the way of what programs expect to be theirs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import time
from pathlib import Path

import structlog

from supervisor.runtime.containment import guardian, procfs
from supervisor.runtime.containment.ledger import Author, Ledger

LOCK_FD = 1000
"""The number of the lock file's descriptor in each module's process; the next free one if taken."""

KILLED_WITHIN_S = 10.0
"""How long a start waits for a former daemon's processes to be gone."""

RETRY_S = 0.05
LOCK_FILE = "instances.lock"
RECORD_FILE = "instances"

log = structlog.get_logger()


class DataInUseError(Exception):
    """The data directory belongs to somebody who lives; the message says who."""


class Claim:
    """The data directory, held alone."""

    def __init__(self, lock_fd: int, record: Path) -> None:
        """Own the descriptor of the lock file; `record` is where the ledger goes."""
        self.lock_fd = lock_fd
        self.record = record

    def author(self, daemon: str) -> Author:
        """Return the first line of this daemon's ledger."""
        me = procfs.stat(os.getpid())
        assert me is not None  # noqa: S101 - this process is there
        status = os.fstat(self.lock_fd)
        return Author(
            daemon,
            me.pid,
            me.start,
            procfs.boot_id(),
            self.lock_fd,
            status.st_dev,
            status.st_ino,
        )

    def close(self) -> None:
        """Let the next daemon in."""
        os.close(self.lock_fd)


def claim(data_dir: Path) -> Claim:
    """Take the data directory, after killing what a former daemon left; raises `DataInUseError`.

    Blocks for as long as that takes, at most `KILLED_WITHIN_S`.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = data_dir / RECORD_FILE
    lock_fd = _open_high(data_dir / LOCK_FILE)
    try:
        _take(lock_fd, record, data_dir)
    except BaseException:
        os.close(lock_fd)
        raise
    return Claim(lock_fd, record)


def _take(lock_fd: int, record: Path, data_dir: Path) -> None:
    free = _try_lock(lock_fd)
    former = _read(record)
    author = former.author
    if author is None or author.boot != procfs.boot_id():
        if free:
            return
        raise DataInUseError(f"{data_dir} is locked by a process that left no record of itself")
    if not free and _is_alive(author):
        raise DataInUseError(
            f"{data_dir} is in use by the daemon with pid {author.pid}; "
            "another one needs a --data-dir of its own"
        )
    if free and former.closed:
        return
    killed, left = guardian.kill_all(former, KILLED_WITHIN_S)
    if killed:
        log.warning("killed what a former daemon left", processes=killed, daemon_pid=author.pid)
    if left:
        raise DataInUseError(f"a former daemon left processes that cannot be killed: pids {left}")
    if not free:
        _insist(lock_fd, data_dir)


def _insist(lock_fd: int, data_dir: Path) -> None:
    # The kernel closes a killed process's files a moment after it stops being seen as living.
    until = time.monotonic() + KILLED_WITHIN_S
    while not _try_lock(lock_fd):
        if time.monotonic() > until:
            raise DataInUseError(f"{data_dir} is locked by a process that cannot be found")
        time.sleep(RETRY_S)


def _is_alive(author: Author) -> bool:
    now = procfs.stat(author.pid)
    return now is not None and now.start == author.start and now.lives


def _open_high(path: Path) -> int:
    low = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = LOCK_FD if soft == resource.RLIM_INFINITY else min(LOCK_FD, soft - 1)
        return int(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, number))
    finally:
        os.close(low)


def _try_lock(lock_fd: int) -> bool:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(record: Path) -> Ledger:
    ledger = Ledger()
    with contextlib.suppress(OSError), record.open("rb") as file:
        for line in file:
            ledger.read(line)
    return ledger
