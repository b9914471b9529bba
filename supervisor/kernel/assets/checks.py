"""Checks of the files of assets in worker threads, each within a bound.

A file system that does not answer keeps a thread, not the daemon: the caller gets its answer after
`ASSET_CHECK_S`. Each module has threads of its own, so only its own later assets lack them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec
import structlog
import trio

from supervisor.kernel.assets.files import (
    AssetFileError,
    ChangedError,
    KeepOn,
    OpenFile,
    digest,
    opened,
)
from supervisor.kernel.assets.store import AssetStore, NotCopiedError
from supervisor.runtime.threads import NoAnswerError, Threads

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

log = structlog.get_logger()
T = TypeVar("T")


class CheckedFile(msgspec.Struct, frozen=True):
    """What a check found out about a file; without `sha256` it has not been read to its end."""

    path: str
    real_path: str
    size: int
    mtime_ns: int
    sha256: str | None = None
    copied: bool = False
    changed: bool = False
    """The file changed while it was read, so no digest is right."""


class RefusedAssetError(Exception):
    """The asset is refused: `reason` is that of the warning, the text says why.

    `no_room_for` is the size of a file, if there is no room for its copy.
    """

    def __init__(self, reason: str, words: str, no_room_for: int = 0) -> None:
        super().__init__(words)
        self.reason = reason
        self.no_room_for = no_room_for


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
        """Check a file, and read it if that does not take long; raises `RefusedAssetError`."""
        until = time.monotonic() + self._digest_s
        keep_on = self._keep_on(lambda: time.monotonic() < until)
        given_up = threading.Event()

        def work() -> CheckedFile:
            looked = _look(path, folder, self._copy_to, keep_on)
            if given_up.is_set():  # the request has ended
                self.release(looked)
            return looked

        try:
            with trio.move_on_after(self.check_s):
                return await self.in_lane(module, work)
        finally:
            given_up.set()
        words = f"{path!r:.200} could not be looked at within {self.check_s:g} s"
        raise RefusedAssetError("unreadable_path", words)

    async def read(self, module: str, path: str) -> CheckedFile:
        """Read all of a file, however long it takes; raises `RefusedAssetError`."""
        keep_on = self._keep_on(lambda: True)
        return await self._threads.run(
            f"reading an asset of {module} whole",
            lambda: _look(path, "/", self._copy_to, keep_on, limit_bytes=None),
            abandon_after_s=0,
        )

    def release(self, looked: CheckedFile) -> None:
        """Release the copy of a file whose asset was not taken; does file work."""
        if looked.copied and looked.sha256 is not None:
            self.store.release(looked.sha256)

    async def release_later(self, copies: Iterable[CheckedFile]) -> None:
        """Release such copies in a thread; the next daemon removes those that are left."""

        def release() -> None:
            for looked in copies:
                self.release(looked)

        await self._threads.run("removing copies of assets", release)

    async def in_thread(self, module: str, bound_s: float, work: Callable[[KeepOn], T]) -> T | None:
        """Return what `work` returns in a thread for reads, or None after `bound_s`."""
        until = time.monotonic() + bound_s
        keep_on = self._keep_on(lambda: time.monotonic() < until)
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

    def _keep_on(self, condition: KeepOn) -> KeepOn:
        return lambda: condition() and not self._ending.is_set()


def _look(
    path: str,
    folder: str,
    store: AssetStore | None,
    keep_on: KeepOn,
    *,
    limit_bytes: int | None = DIGEST_BYTES,
) -> CheckedFile:
    try:
        with opened(path, folder) as file:
            looked = CheckedFile(file.path, file.real_path, file.size, file.mtime_ns)
            if limit_bytes is None or file.size <= limit_bytes:
                return _read(file, looked, store, keep_on)
            if store is not None:
                store.check_room(file.size)
            return looked
    except AssetFileError as error:
        raise RefusedAssetError("unreadable_path", str(error)) from None
    except NotCopiedError as error:
        words = f"{path!r:.200}: {error}"
        raise RefusedAssetError("asset_not_copied", words, error.no_room_for) from None


def _read(
    file: OpenFile, looked: CheckedFile, store: AssetStore | None, keep_on: KeepOn
) -> CheckedFile:
    try:
        sha256 = digest(file, keep_on) if store is None else store.add(file, keep_on)
    except ChangedError:
        return msgspec.structs.replace(looked, changed=True)
    copied = store is not None and sha256 is not None
    return msgspec.structs.replace(looked, sha256=sha256, copied=copied)
