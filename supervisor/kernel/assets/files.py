"""Look at the file of an asset: is it there, regular, readable; how large; what is its SHA-256.

Threads do that (`AssetChecks`), each within a bound: a file system that does not answer keeps a
thread, not the daemon, and each module has threads of its own, so only its own later assets lack
them. The file that was looked at stays open for the read, so a path that changes in between cannot
show another file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from supervisor.runtime.threads import NoAnswerError, Threads

if TYPE_CHECKING:
    from supervisor.kernel.assets.store import AssetStore

CHUNK_BYTES = 1 << 20
"""One read: large enough for hashing to run without Python's lock, small enough to stop soon."""

SHOWN_CHARS = 200

KERNELS_OWN = ("/proc", "/sys", "/dev")
"""Files below these differ from process to process: /proc/self is the daemon, not the module."""

SHARED = ("/dev", "shm")
"""The exception: files in memory, which all processes share."""

MOST_LINKS = 40
"""As many as the kernel follows (MAXSYMLINKS)."""

ASSET_CHECK_S = 5.0
"""The longest an invocation waits for the check of one of its files."""

DIGEST_S = 3.0
"""A digest that takes longer is made after the response; less than the above, so that it is."""

DIGEST_BYTES = 64 << 20
"""A larger file is read after the response."""

CHECKS_AT_ONCE = 4
OPEN_STORE_S = 5.0
"""How long a start waits for the folder of copies."""

READS_AT_ONCE = 2
"""Threads that a module's assets may take: for checks, and for files that a client reads."""

T = TypeVar("T")

KeepOn = Callable[[], bool]
"""Asked before each chunk; False stops the reading."""


class AssetFileError(Exception):
    """The file cannot be handed over; the text says why, beginning with its path."""

    reason = "unreadable_path"
    """The reason of the warning that the client gets."""
    no_room_for = 0
    """The size of a file for whose copy there is no room."""


class NotCopiedError(AssetFileError):
    """There is no copy; the text says why, with the limit and the figure if it is a limit."""

    reason = "asset_not_copied"

    def __init__(self, words: str, no_room_for: int = 0) -> None:
        super().__init__(words)
        self.no_room_for = no_room_for


class ChangedError(Exception):
    """The file changed while it was read."""


class OpenFile(msgspec.Struct, frozen=True):
    """A regular file, open for reading."""

    descriptor: int
    path: str
    """Absolute, as the module named it."""
    real_path: str
    """The path with all links followed."""
    size: int
    mtime_ns: int


@contextlib.contextmanager
def opened(path: str, folder: str) -> Iterator[OpenFile]:
    """Open a file for the block; a relative path starts from `folder`. Raises `AssetFileError`."""
    # Opened for the check and for the digest only: to render it is deferred until somebody asks
    # (Spec 001 4.3).
    absolute = os.path.join(folder, path)  # noqa: PTH118 - `Path` would raise here for some
    descriptor = -1
    try:
        absolute.encode()
        real_path = _resolved(absolute, path)
        real_path.encode()
        # Looked at first, since to open a device may do something.
        _check_regular(os.stat(real_path), path)  # noqa: PTH116
        descriptor = os.open(real_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        found = os.fstat(descriptor)
        _check_regular(found, path)
        shown = str(Path(absolute))
        yield OpenFile(descriptor, shown, real_path, found.st_size, found.st_mtime_ns)
    except UnicodeEncodeError:
        raise AssetFileError(f"{path!r:.{SHOWN_CHARS}}: its full path is not UTF-8") from None
    except PermissionError:
        words = f"{path!r:.{SHOWN_CHARS}} may not be read by the daemon"
        raise AssetFileError(words) from None
    except (OSError, ValueError) as error:
        words = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise AssetFileError(f"{path!r:.{SHOWN_CHARS}} cannot be read: {words}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def chunks(file: OpenFile, keep_on: KeepOn) -> Iterator[bytes]:
    """Yield all of a file; raises `ChangedError` if it changed meanwhile.

    Ends early, without an error, when `keep_on` returns False: the caller counts the bytes.
    """
    read = 0
    while keep_on():
        chunk = os.pread(file.descriptor, CHUNK_BYTES, read)
        read += len(chunk)
        if read > file.size:  # it grows, or it is one of those in /proc, whose size is said to be 0
            raise ChangedError
        if not chunk:
            break
        yield chunk
    now = os.fstat(file.descriptor)
    if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
        raise ChangedError


def digest(file: OpenFile, keep_on: KeepOn) -> str | None:
    """Return the SHA-256 in hexadecimal, or None if it was stopped; raises `ChangedError`."""
    summed = hashlib.sha256()
    read = 0
    for chunk in chunks(file, keep_on):
        summed.update(chunk)
        read += len(chunk)
    return summed.hexdigest() if read == file.size else None


def _resolved(absolute: str, path: str) -> str:
    """Return where a path leads, all links followed; raises `AssetFileError` and `OSError`.

    Each step is looked at, since a link in /proc (and so /dev/fd/3) leads to a file that the daemon
    has open, wherever that is.
    """
    steps = _steps(absolute)
    at, links = "/", 0
    while steps:
        step = steps.pop()
        if step == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - `Path` would make a surrogate's step the same
            continue
        at = f"{at.rstrip('/')}/{step}"
        if at in KERNELS_OWN:
            if at == SHARED[0] and steps[-1:] == [SHARED[1]]:
                continue
            words = f"{path!r:.{SHOWN_CHARS}} leads into {at}, where the daemon would find its own"
            raise AssetFileError(words)
        if stat.S_ISLNK(os.lstat(at).st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(at)  # noqa: PTH115
            steps += _steps(target)
            at = "/" if target.startswith("/") else os.path.dirname(at)  # noqa: PTH120
    os.lstat(absolute)  # a slash at the end of what is no folder
    return at


def _steps(path: str) -> list[str]:
    """Return the names in a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _check_regular(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise AssetFileError(f"{path!r:.{SHOWN_CHARS}} is not a regular file")


class CheckedFile(msgspec.Struct, frozen=True):
    """A file that passed its check; without `sha256` the file was not read to its end."""

    path: str
    real_path: str
    size: int
    mtime_ns: int
    sha256: str | None = None
    copied: bool = False
    changed: bool = False
    """The file changed while it was read, so no digest is right."""

    @property
    def copy(self) -> str | None:
        """The digest of its copy, if the store has one."""
        return self.sha256 if self.copied else None


class AssetChecks:
    def __init__(
        self,
        store: AssetStore,
        threads: Threads,
        *,
        copy: bool = False,
        check_s: float = ASSET_CHECK_S,
        digest_s: float = DIGEST_S,
    ) -> None:
        """With `copy`, files that are read are copied to the store."""
        self.check_s = check_s
        self._digest_s = digest_s
        self.store = store
        self._copy_to = store if copy else None
        self._threads = threads
        self._ending = threading.Event()

    def end(self) -> None:
        """Stop the threads that read at their next chunk."""
        self._ending.set()

    async def look(self, module: str, path: str, folder: str) -> CheckedFile:
        """Check a file, and read it if that does not take long; raises `AssetFileError`."""
        keep_on = self._keep_on(self._digest_s)
        given_up = threading.Event()

        def work() -> CheckedFile:
            looked = _look(path, folder, self._copy_to, keep_on)
            if given_up.is_set() and looked.copy is not None:  # the request has ended
                self.store.release(looked.copy)
            return looked

        try:
            with trio.move_on_after(self.check_s):
                return await self.in_lane(module, work)
        finally:
            given_up.set()
        words = f"{path!r:.200} could not be looked at within {self.check_s:g} s"
        raise AssetFileError(words)

    async def read(self, module: str, path: str) -> CheckedFile:
        """Read all of a file, however long it takes; raises `AssetFileError`."""
        keep_on = self._keep_on(math.inf)
        return await self._threads.run(
            f"reading an asset of {module} whole",
            lambda: _look(path, "/", self._copy_to, keep_on, limit_bytes=None),
            abandon_after_s=0,
        )

    async def release(self, copies: Iterable[str | None]) -> None:
        """Release the copies of assets that are not taken, or forgotten, in a thread.

        The next daemon removes those that are left.
        """

        def release() -> None:
            for sha256 in copies:
                if sha256 is not None:
                    self.store.release(sha256)

        await self._threads.run("removing copies of assets", release)

    async def in_thread(self, module: str, bound_s: float, work: Callable[[KeepOn], T]) -> T | None:
        """Return what `work` returns in a thread for reads, or None after `bound_s`."""
        keep_on = self._keep_on(bound_s)
        with trio.move_on_after(bound_s):
            doing = f"reading from an asset of {module}"
            return await self._threads.run(
                doing, lambda: work(keep_on), at_once=READS_AT_ONCE, abandon_after_s=0
            )
        return None

    async def in_lane(self, module: str, work: Callable[[], T]) -> T:
        """Return what `work` returns in one of the threads for a module's checks."""
        doing = f"looking at an asset of {module}"
        return await self._threads.run(doing, work, at_once=CHECKS_AT_ONCE, abandon_after_s=0)

    async def open_store(self, copies: Iterable[str], *, collect: bool) -> str | None:
        """Read which copies there are; with `collect`, remove others.

        Returns why it could not. Where that takes longer than a start may, users of copies wait for
        it in a thread.
        """
        look = partial(self.store.open, copies, collect=collect)
        try:
            with trio.move_on_after(OPEN_STORE_S):
                await self._threads.run("looking at the copies of assets", look, abandon_after_s=0)
                return None
        except OSError as error:
            return str(error)
        return str(NoAnswerError(self.store.folder))

    def _keep_on(self, within_s: float) -> KeepOn:
        until = time.monotonic() + within_s
        return lambda: time.monotonic() < until and not self._ending.is_set()


def _look(
    path: str,
    folder: str,
    store: AssetStore | None,
    keep_on: KeepOn,
    *,
    limit_bytes: int | None = DIGEST_BYTES,
) -> CheckedFile:
    """Look at a file, and read it if it is not too large; raises `AssetFileError`."""
    try:
        with opened(path, folder) as file:
            looked = CheckedFile(file.path, file.real_path, file.size, file.mtime_ns)
            if limit_bytes is not None and file.size > limit_bytes:
                if store is not None:
                    store.check_room(file.size)
                return looked
            try:
                sha256 = digest(file, keep_on) if store is None else store.add(file, keep_on)
            except ChangedError:
                return msgspec.structs.replace(looked, changed=True)
            copied = store is not None and sha256 is not None
            return msgspec.structs.replace(looked, sha256=sha256, copied=copied)
    except NotCopiedError as error:
        raise NotCopiedError(f"{path!r:.{SHOWN_CHARS}}: {error}", error.no_room_for) from None
