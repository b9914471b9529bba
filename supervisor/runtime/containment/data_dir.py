"""The data directory: it has one daemon at a time, and nothing is left of a former one.

Two files in it:

- `instances.lock`: locked (flock(2)) by the daemon for as long as it lives. No module inherits it:
  the lock belongs to the open file, and any process that has it could release the lock.
- `instances`: the ledger (`containment.ledger`), which says what is to be killed should the daemon
  die: pids with start times, marks.

A lock is on a file, not on its name: once the file is deleted, another daemon could make a new one
and start beside this one. So every `LOOK_S` the file under that name is compared with the locked
one (`DataDirLock.keep`). If it is another one, or gone, directory, lock and ledger are made anew,
and `problem` says what is lost. If another daemon was faster, `problem` says that, and it is tried
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import structlog
import trio

from supervisor.runtime.containment import guardian, procfs
from supervisor.runtime.containment.ledger import Author, Ledger
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.lock_file import open_lock
from supervisor.runtime.files.whole_file import UnreadableError, read_whole
from supervisor.runtime.threads import Threads

KILLED_WITHIN_S = 10.0
"""How long a start waits for a former daemon's processes to be gone."""

LOCK_RETRY_S = 0.05
LEDGER_BYTES = 256 << 20
"""No daemon leaves a larger one: it is written anew when it has grown."""

LOCK_FILE = "instances.lock"
RECORD_FILE = "instances"

LOOK_S = 5.0
"""How often the lock file is compared with the locked one: a `stat` in a thread."""

SETTLE_S = 0.1
"""How long a deletion of the directory has to finish: `rm -r` fails on what comes back."""

log = structlog.get_logger()


class DataInUseError(Exception):
    """A running daemon, which the message names, has the data directory."""


class DataDirLock:
    """The lock of a data directory, and of the directory that is made in its place."""

    def __init__(self, lock_fd: int, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.record = data_dir / RECORD_FILE
        """Where the ledger goes."""
        self.daemon = str(uuid.uuid4())
        """Names this run of a daemon."""
        self.problem: str | None = None
        """The fault of the directory, in words for the user; None if there is none."""
        self._lock_fd = lock_fd
        self._folder = _identity(data_dir)
        self._is_lost = False
        """Whether what was in the directory when the daemon began is gone."""
        self._closing = threading.Lock()
        self._closed = False

    def author(self, brand: int) -> Author:
        """Return the first line of this run's ledger."""
        me = procfs.stat(os.getpid())
        assert me is not None  # noqa: S101 - this process is there
        return Author(self.daemon, me.pid, me.start, procfs.boot_id(), brand)

    def close(self) -> None:
        """Let the next daemon in; a `retake` at the same time releases the lock, too."""
        with self._closing:
            if not self._closed:
                os.close(self._lock_fd)
            self._closed = True

    async def keep(
        self,
        renew: Callable[[], Awaitable[None]],
        threads: Threads,
        *,
        look_s: float | None = None,
        settle_s: float = SETTLE_S,
    ) -> None:
        """Lock the directory again whenever the lock file was deleted; until cancelled.

        `renew` writes the ledger anew. On a disk that does not answer, `status` names the work.
        """
        while True:
            await trio.sleep(LOOK_S if look_s is None else look_s)
            with contextlib.suppress(OSError):  # without a thread it looks again
                if await threads.run("looking at the data directory", self.lost):
                    await trio.sleep(settle_s)
                    await self._keep_again(renew, threads)

    async def _keep_again(self, renew: Callable[[], Awaitable[None]], threads: Threads) -> None:
        try:
            is_lost = await threads.run("taking the data directory again", self.retake)
            await renew()
        except (DataInUseError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._say(
                f"{self.data_dir} was deleted while the daemon ran, and cannot be locked again:"
                f" {why}; stop one of the daemons, or make the directory usable"
            )
            return
        if is_lost:
            self._say(
                f"{self.data_dir} was deleted while the daemon ran, with what was in it; it is made"
                " anew and locked"
            )
        else:
            log.warning("the lock of the data directory was deleted, and made again")
            self.problem = None

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            log.error("data directory lost", problem=problem)
        self.problem = problem

    # For threads.

    def lost(self) -> bool:
        """Whether the lock file is not the one that is locked, so that another daemon may start."""
        with self._closing:
            if self._closed:
                return False
            held = os.fstat(self._lock_fd)
        try:
            found = (self.data_dir / LOCK_FILE).stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino)

    def retake(self) -> bool:
        """Make and lock directory and file anew; returns whether what was in it is lost.

        Blocks like `lock_data_dir`. Raises `DataInUseError` or `OSError`, and the lock is as it was
        then.
        """
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = open_lock(self.data_dir / LOCK_FILE)
        try:
            if not _try_lock(lock_fd):
                _refuse_locked(self.data_dir)
            folder, is_there = _identity(self.data_dir), self.record.exists()
            self._clear_up_others()
        except BaseException:  # Ctrl-C too: an open descriptor would keep the lock
            os.close(lock_fd)
            raise
        with self._closing:
            os.close(lock_fd if self._closed else self._lock_fd)
            if not self._closed:
                self._lock_fd = lock_fd
        self._is_lost = self._is_lost or folder != self._folder or not is_there
        self._folder = folder
        return self._is_lost

    def _clear_up_others(self) -> None:
        # The ledger may be this daemon's own, if only the lock file was deleted.
        former = _read(self.record)
        if former.author is not None and former.author.daemon != self.daemon:
            if not former.closed:
                _refuse_if_alive(former, self.data_dir)
            _clear_up(former)


def lock_data_dir(data_dir: Path) -> DataDirLock:
    """Take the data directory, after killing what a former daemon left; raises `DataInUseError`.

    Blocks for as long as that takes, at most twice `KILLED_WITHIN_S`.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock_fd = open_lock(data_dir / LOCK_FILE)
    try:
        _clear_up(_former(lock_fd, data_dir))
    # Ctrl-C too: a descriptor that stays open keeps the lock, and this process may go on.
    except BaseException:
        os.close(lock_fd)
        raise
    return DataDirLock(lock_fd, data_dir)


def _former(lock_fd: int, data_dir: Path) -> Ledger:
    """Lock the file, and return the ledger of the daemon before this one, which is dead."""
    # A daemon that was killed while it forked leaves its lock to the child until that has become
    # its module: so a lock that no living process is known to hold is waited for.
    until = time.monotonic() + KILLED_WITHIN_S
    while not _try_lock(lock_fd):
        if time.monotonic() > until:
            _refuse_locked(data_dir)
        _refuse_if_alive(_read(data_dir / RECORD_FILE), data_dir)
        time.sleep(LOCK_RETRY_S)
    former = _read(data_dir / RECORD_FILE)
    # Free though its daemon lives: the lock file was replaced. Unless that daemon was run by
    # this very process, and cut off before it could say goodbye.
    if not former.closed and not (former.author and former.author.pid == os.getpid()):
        _refuse_if_alive(former, data_dir)
    return former


def _refuse_locked(data_dir: Path) -> NoReturn:
    _refuse_if_alive(_read(data_dir / RECORD_FILE), data_dir)
    raise DataInUseError(f"{data_dir} is locked by a process that left no record of itself")


def _refuse_if_alive(ledger: Ledger, data_dir: Path) -> None:
    author = ledger.author
    if author is None or author.boot != procfs.boot_id():
        return
    now = procfs.stat(author.pid)
    if now is not None and now.start == author.start and now.lives:
        raise DataInUseError(
            f"{data_dir} is in use by the daemon with pid {author.pid}; "
            "another one needs a --data-dir of its own"
        )


def _clear_up(former: Ledger) -> None:
    author = former.author
    if author is None or former.closed or author.boot != procfs.boot_id():
        return
    killed, left = guardian.kill_all(former, KILLED_WITHIN_S)
    if killed:
        log.warning("killed what a former daemon left", processes=killed, daemon_pid=author.pid)
    if left:
        words = ", ".join(str(pid) + _traced(pid) for pid in left)
        raise DataInUseError(f"a former daemon left processes that cannot be killed: pids {words}")


def _traced(pid: int) -> str:
    tracer = tracer_of(pid)
    return "" if tracer is None else f" (traced by {tracer.words})"


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _try_lock(lock_fd: int) -> bool:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(record: Path) -> Ledger:
    ledger = Ledger()
    with contextlib.suppress(UnreadableError):
        for line in read_whole(record, LEDGER_BYTES, "record").splitlines(keepends=True):
            ledger.read(line)
    return ledger
