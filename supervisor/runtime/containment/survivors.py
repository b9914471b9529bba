"""Make sure that this daemon starts alone: no other on its data, nothing left of a former one.

Two files in the data directory:

- `instances.lock`: locked (flock(2)) by the daemon for as long as it lives. No module inherits it:
  the lock belongs to the open file, and any process that has it could release the lock.
- `instances`: the ledger (`containment.ledger`), which says what is to be killed should the daemon
  die: pids with start times, marks.

A lock is on a file, not on its name: once the file is deleted, another daemon could make a new one
and start beside this one. So the directory is watched (`ClaimKeeper`). When the lock file under its
name is another one, or gone, the daemon waits for a moment, until the deletion is over, makes
directory, lock and ledger anew, and says what is lost. If another daemon was faster, it says that,
and tries again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import guardian, procfs
from supervisor.runtime.containment.ledger import Author, Ledger
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.inotify import Inotify, Mask
from supervisor.runtime.files.lock_file import open_lock
from supervisor.runtime.files.looks import NEEDED_PATIENCE_S, NoAnswerError
from supervisor.runtime.files.whole_file import UnreadableError, read_whole

KILLED_WITHIN_S = 10.0
"""How long a start waits for a former daemon's processes to be gone."""

LOCK_RETRY_S = 0.05
LEDGER_BYTES = 256 << 20
"""No daemon leaves a larger one: it is written anew when it has grown."""

LOCK_FILE = "instances.lock"
RECORD_FILE = "instances"

SETTLE_S = 0.1
"""How long a deletion of the directory has to finish: `rm -r` fails on what comes back."""

RETRY_S = 5.0
"""How often a directory that could not be taken, or cannot be watched, is looked at."""

LATE_S = 2 * KILLED_WITHIN_S + NEEDED_PATIENCE_S
"""How long it may take to take it again (`Claim.retake` may kill) before the status says so."""

_CHANGES = Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.MOVE_SELF

_LOOKING = "looking at the data directory"

log = structlog.get_logger()


class DataInUseError(Exception):
    """The data directory belongs to somebody who lives; the message says who."""


class Claim:
    def __init__(self, lock_fd: int, data_dir: Path) -> None:
        self.record = data_dir / RECORD_FILE
        """Where the ledger goes."""
        self.data_dir = data_dir
        self._lock_fd = lock_fd
        self._daemon: str | None = None
        self._closing = threading.Lock()
        self._closed = False
        self._owned = contextlib.ExitStack()
        self._owned.callback(lambda: os.close(self._lock_fd))

    def author(self, daemon: str, brand: int) -> Author:
        """Return the first line of this run's ledger."""
        me = procfs.stat(os.getpid())
        assert me is not None  # noqa: S101 - this process is there
        self._daemon = daemon
        return Author(daemon, me.pid, me.start, procfs.boot_id(), brand)

    def lost(self) -> bool:
        """Whether the lock file is not the one that is locked, so that another daemon may start."""
        with self._closing:
            if self._closed:
                return False
            held = os.fstat(self._lock_fd)
        return _identity(self.data_dir / LOCK_FILE) != (held.st_dev, held.st_ino)

    def retake(self) -> bool:
        """Make and lock directory and file anew; tell whether what was in it is lost.

        Blocks like `claim`. Raises `DataInUseError` or `OSError`; the claim is as it was then.
        """
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = open_lock(self.data_dir / LOCK_FILE)
        try:
            if not _try_lock(lock_fd):
                _refuse_locked(self.data_dir)
            is_emptied = not self.record.exists()
            self._clear_up_others()
        except BaseException:  # see `claim`
            os.close(lock_fd)
            raise
        with self._closing:
            os.close(lock_fd if self._closed else self._lock_fd)
            if not self._closed:
                self._lock_fd = lock_fd
        return is_emptied

    def _clear_up_others(self) -> None:
        # The ledger may be this daemon's own, if only the lock file was deleted.
        former = _read(self.record)
        if former.author is not None and former.author.daemon != self._daemon:
            if not former.closed:
                _refuse_if_alive(former, self.data_dir)
            _clear_up(former)

    def close(self) -> None:
        """Let the next daemon in; a `retake` at the same time releases the lock, too."""
        with self._closing:
            self._closed = True
        self._owned.close()


def claim(data_dir: Path) -> Claim:
    """Take the data directory, after killing what a former daemon left; raises `DataInUseError`.

    Blocks for as long as that takes, at most twice `KILLED_WITHIN_S`.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock_fd = open_lock(data_dir / LOCK_FILE)
    try:
        former = _take(lock_fd, data_dir)
        _clear_up(former)
    # Ctrl-C too: a descriptor that stays open keeps the lock, and this process may go on.
    except BaseException:
        os.close(lock_fd)
        raise
    return Claim(lock_fd, data_dir)


def _take(lock_fd: int, data_dir: Path) -> Ledger:
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
    if author is not None and author.boot == procfs.boot_id() and _is_alive(author):
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


def _is_alive(author: Author) -> bool:
    now = procfs.stat(author.pid)
    return now is not None and now.start == author.start and now.lives


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
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


class ClaimKeeper:
    def __init__(
        self,
        claim: Claim,
        renew: Callable[[], Awaitable[None]],
        blocking: BlockingWork,
        *,
        open_queue: Callable[[], Inotify] = Inotify,
        settle_s: float = SETTLE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """Call `renew` after each time the directory had to be taken again."""
        self.problem: str | None = None
        """What the user has to know of the directory; None if all is well."""
        self._claim = claim
        self._renew = renew
        self._blocking = blocking
        self.looked = trio.Event()
        """Set once it has looked for the first time."""
        self._open_queue = open_queue
        self._settle_s = settle_s
        self._retry_s = retry_s

    async def run(self) -> None:
        while True:
            if await self._lost():
                await trio.sleep(self._settle_s)
                taken = await self._take_again()
            else:
                taken = True
            if taken:
                await self._wait_change()
            else:
                self.looked.set()
                await trio.sleep(self._retry_s)

    async def _wait_change(self) -> None:
        """Return once the directory may have changed."""
        try:
            queue = self._open_queue()
        except OSError:
            self.looked.set()
            await trio.sleep(self._retry_s)
            return
        try:
            data_dir = str(self._claim.data_dir)
            await self._blocking.run(_LOOKING, partial(queue.add, data_dir, _CHANGES))
            # What was deleted before the watch was there is no event.
            while not await self._lost():
                self.looked.set()
                await queue.events()
        except OSError:
            self.looked.set()
            await trio.sleep(self._retry_s)
        finally:
            queue.close()

    async def _lost(self) -> bool:
        return await self._blocking.run(_LOOKING, self._claim.lost)

    async def _take_again(self) -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_if_late)
            taken = await self._try_to_take()
            nursery.cancel_scope.cancel()
        return taken

    async def _say_if_late(self) -> None:
        # It is still waited for: what it makes late has to be known, or two would think it theirs.
        await trio.sleep(LATE_S)
        self._say(str(NoAnswerError(self._claim.data_dir)))

    async def _try_to_take(self) -> bool:
        data_dir = self._claim.data_dir
        try:
            replaced = await self._blocking.run(
                "taking the data directory again", self._claim.retake
            )
            await self._renew()
        except (DataInUseError, OSError) as error:
            self._say(_not_taken(data_dir, error))
            return False
        if replaced:
            self._say(
                f"{data_dir} was deleted while the daemon ran, with what was in it; it is made anew"
                " and locked"
            )
        else:
            log.warning("the lock of the data directory was deleted, and made again")
            self.problem = None
        return True

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            log.error("data directory lost", problem=problem)
        self.problem = problem


def _not_taken(data_dir: Path, error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return (
        f"{data_dir} was deleted while the daemon ran, and cannot be locked again: {why};"
        " stop one of the daemons, or make the directory usable"
    )
