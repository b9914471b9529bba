r"""A file that a module hands over in pieces: written to the store as they come, by a thread.

    first piece -> half a file ... last piece -> named by its content, as a copy is
                       \--dropped, or no room--> gone

Pieces that wait for the disk are held once, and the module is paused for it (`waiting_bytes`). A
disk that does not answer keeps a thread, not the daemon.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from protocol.connection import Notice
from protocol.events import Asset, AssetBytes
from supervisor.kernel.assets.checks import CheckedFile
from supervisor.kernel.assets.files import write_all
from supervisor.kernel.assets.store import AssetStore, NotCopiedError
from supervisor.kernel.parties import Provenance

if TYPE_CHECKING:
    from supervisor.kernel.assets.registry import Assets

SPOOLS_OPEN = 16
"""Files that a request may hand over at a time."""

SPOOLS_WHOLE = 256
"""The same for files that come in one piece: an answer may hold that many."""

DECODED_CHARS = 1 << 16
"""Characters of base64 decoded at a time: the event loop waits for Python's lock that long."""


class Spool:
    """One file on its way; the task `run` writes it."""

    def __init__(
        self,
        first: AssetBytes,
        assets: Assets,
        origin: Provenance,
        *,
        done: Callable[[Spool, CheckedFile | Notice], None],
        drained: Callable[[], None],
    ) -> None:
        """Call `done` once it is whole, or cannot be; `drained` when there is room for more."""
        self.first = first
        self.whole = False
        """Whether the last piece has come."""
        self.waiting_bytes = 0
        self._assets = assets
        self._checks = assets.checks
        self._module, self._owner = origin.module, origin.owner
        self._done = done
        self._drained = drained
        self._half = HalfFile(assets.checks.store)
        self._pieces: list[bytes | str] = []
        self._more = trio.Event()
        self._dropped = False
        self._given_up = threading.Event()
        self._refused: Notice | None = None

    def asset(self, path: str) -> Asset:
        """Return the event that stands for the file once it is whole."""
        one = self.first
        return Asset(
            version="0",
            asset_id=one.asset_id,
            kind=one.kind,
            media_type=one.media_type,
            path=path,
            metadata=one.metadata,
        )

    def add(self, piece: AssetBytes) -> None:
        """Take a piece; the last one is followed by `done`."""
        self.whole = piece.last
        if self._refused is None:
            self._pieces.append(piece.data)
            self.waiting_bytes += len(piece.data)
        self._more.set()

    def drop(self) -> None:
        """Drop the file: the request has ended. `done` is not called any more."""
        self._dropped = True
        self._given_up.set()
        self._more.set()

    def notice(self, reason: str, words: str) -> Notice:
        return Notice(reason, f"asset {self.first.asset_id!r:.80}: {words}")

    async def run(self) -> None:
        try:
            await self._write_all()
            # In a thread, as all that touches the disk.
            await self._checks.in_lane(self._module, self._half.drop)
        finally:
            self._half.drop()  # only if the daemon ends meanwhile is there anything left to do

    async def _write_all(self) -> None:
        while not self._dropped:
            await self._more.wait()
            self._more = trio.Event()
            whole, pieces, self._pieces = self.whole, self._pieces, []
            size = sum(map(len, pieces))
            await self._assets.make_room(self._owner, size)
            found = await self._write(pieces, whole=whole)
            self.waiting_bytes -= size
            if isinstance(found, Notice):
                self._refused, self._pieces, self.waiting_bytes = found, [], 0
            self._drained()
            if whole and found is not None and not self._dropped:
                self._done(self, found)
                return
            if isinstance(found, CheckedFile):  # dropped while the thread was about to return
                await self._checks.in_lane(self._module, partial(self._checks.release, found))

    async def _write(
        self, pieces: list[bytes | str], *, whole: bool
    ) -> CheckedFile | Notice | None:
        """Return the result if it is known: None while more pieces are to come."""
        if self._refused is not None:
            return self._refused
        half = self._half

        def work() -> CheckedFile | None:
            try:
                half.write(pieces)
                looked = half.finish() if whole else None
            except NotCopiedError:
                half.drop()
                raise
            if looked is None:
                return None
            half.drop()  # the folder that it was written in
            if self._given_up.is_set():  # the request has ended
                self._checks.release(looked)
                return None
            return looked

        try:
            with trio.move_on_after(self._checks.check_s):
                return await self._checks.in_lane(self._module, work)
        except NotCopiedError as error:
            return self.notice("asset_not_copied", str(error))
        self._given_up.set()
        words = f"it could not be written within {self._checks.check_s:g} s"
        return self.notice("asset_not_copied", words)


class HalfFile:
    """The file while it grows; worked on by one thread at a time, and dropped by any."""

    def __init__(self, store: AssetStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._summed = hashlib.sha256()
        self._size = 0
        self._path: Path | None = None
        self._descriptor = -1
        self._busy = self._dropped = False

    def write(self, pieces: list[bytes | str]) -> None:
        """Add pieces, those in base64 decoded; raises `NotCopiedError`."""
        self._enter()
        try:
            if self._path is None:
                self._path = self._store.begin_half()
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            for piece in pieces:
                for part in [piece] if isinstance(piece, bytes) else _decoded(piece):
                    self._add(part)
        except ValueError as error:
            raise NotCopiedError(f"its data is not base64: {error}") from None
        except OSError as error:
            words = f"it could not be written to {self._store.folder}: {error.strerror}"
            raise NotCopiedError(words) from None
        finally:
            self._leave()

    def _add(self, part: bytes) -> None:
        self._store.reserve(len(part))
        self._size += len(part)
        self._summed.update(part)
        write_all(self._descriptor, part)

    def finish(self) -> CheckedFile:
        """Give it its name; raises `NotCopiedError`."""
        self._enter()
        try:
            assert self._path is not None  # noqa: S101 - even nothing was written first
            if self._store.fsync:
                os.fsync(self._descriptor)
            sha256 = self._summed.hexdigest()
            if self._store.adopt(sha256, self._path, self._size):
                self._size = 0  # it counts for good from here on
            path = self._store.path(sha256)
            found = path.stat()
            real_path = str(path.resolve())
            size, mtime_ns = found.st_size, found.st_mtime_ns
            return CheckedFile(str(path), real_path, size, mtime_ns, sha256, copied=True)
        except OSError as error:
            words = f"it could not be kept in {self._store.folder}: {error.strerror}"
            raise NotCopiedError(words) from None
        finally:
            self._leave()

    def drop(self) -> None:
        """Delete the file unless it has got its name; idempotent."""
        with self._lock:
            self._dropped = True
            if self._busy:
                return  # the thread that writes will see to it
        self._clear()

    def _enter(self) -> None:
        with self._lock:
            if self._dropped:
                raise NotCopiedError("the request has ended")
            self._busy = True

    def _leave(self) -> None:
        with self._lock:
            self._busy = False
            dropped = self._dropped
        if dropped:
            self._clear()

    def _clear(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        path, self._path = self._path, None
        size, self._size = self._size, 0
        # A file that cannot be removed, or is gone already, is no failure; the next start of the
        # daemon tries again.
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if path is not None:
            with contextlib.suppress(OSError):
                self._store.drop_half(path)
        self._store.reserve(-size)


def _decoded(text: str) -> Iterator[bytes]:
    """Yield the bytes of a text in base64; white space is skipped.

    Raises `ValueError` if the text is not base64, which may be after some bytes.
    """
    left, padded = b"", False
    for start in range(0, len(text), DECODED_CHARS):
        chars = text[start : start + DECODED_CHARS].encode("ascii")
        chars = left + chars.translate(None, b" \t\r\n")
        whole = len(chars) // 4 * 4
        part, left = chars[:whole], chars[whole:]
        if part and padded:
            raise ValueError("it goes on after its padding")
        padded = padded or part.endswith(b"=")
        yield binascii.a2b_base64(part, strict_mode=True)
    if left:
        raise ValueError("its length is not a multiple of four")
