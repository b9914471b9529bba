r"""The copies of assets, named by their content (DATA/assets/sha256/ab/cdef...), and how they grow.

    a file, read by a thread     \
                                  half a file, without a name -> named by its content
    pieces that a module prints  /        \--stopped, dropped, or no room--> gone

A file with a name is whole. The same content is kept once, and goes when the last asset with it is
forgotten. All but `path` and `check_room` does file work, and is for worker threads.

Pieces of a file (`Spool`) are written as they come. Those that wait for the disk are held once, and
the module is paused for it (`waiting_bytes`). A disk that does not answer keeps a thread, not the
daemon.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from protocol.connection import Notice
from protocol.events import Asset, AssetBytes
from supervisor.kernel.assets.files import CheckedFile, KeepOn, NotCopiedError, OpenFile, chunks
from supervisor.kernel.parties import Provenance

if TYPE_CHECKING:
    from supervisor.kernel.assets.registry import Assets


class AssetOptions(msgspec.Struct, frozen=True):
    """The operator's options about assets."""

    copy: bool = False
    """Keep a copy of each."""
    store_bytes: int = 1 << 30
    """How much the copies may take together."""
    fsync: bool = False
    """Sync copies to the disk, so that they outlive a loss of power too."""


_HALF = ".half-"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class AssetStore:
    """The copies below one folder; safe to use from several threads."""

    def __init__(self, folder: Path, options: AssetOptions) -> None:
        self.total_bytes = 0
        self.limit_bytes = options.store_bytes
        self.folder = folder / "sha256"
        self.fsync = options.fsync
        self._lock = threading.Lock()
        self._uses: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256[2:]

    def open(self, used: Iterable[str], *, collect: bool = True) -> None:
        """Begin with the copies on disk: half files go, and copies whose digest is not in `used`.

        Without `collect` other copies stay, and count.
        """
        uses = Counter(used)
        with self._lock:
            for half in list(self.folder.glob(f"{_HALF}*")):
                _remove(half)
            for file in list(self.folder.glob("*/*")):
                sha256 = file.parent.name + file.name
                if (uses[sha256] or not collect) and _DIGEST.fullmatch(sha256):
                    self._sizes[sha256] = file.stat().st_size
                else:
                    _remove(file)
            self._uses = Counter({name: uses[name] for name in self._sizes})
            self.total_bytes = sum(self._sizes.values())

    @property
    def left_bytes(self) -> int:
        return self.limit_bytes - self.total_bytes

    def check_room(self, size: int) -> None:
        """Raise `NotCopiedError` if a content of `size` bytes is too much."""
        if size > self.left_bytes:
            words = f"it has {size} bytes, and {self.total_bytes} of the {self.limit_bytes}"
            raise NotCopiedError(f"{words} that asset_store_bytes allows are in use", size)

    def reserve(self, size: int) -> None:
        """Count bytes of a file without a name yet; raises `NotCopiedError` if it is too much."""
        # So two at once cannot pass the limit together.
        with self._lock:
            if size > 0:
                self.check_room(size)
            self.total_bytes += size

    def add(self, file: OpenFile, keep_on: KeepOn) -> str | None:
        """Copy a file and return its SHA-256, or None if it was stopped.

        The copy is in use until `release`. Raises `NotCopiedError` and `ChangedError`.
        """
        half = HalfFile(self, file.size)
        try:
            return half.copy(file, keep_on)
        finally:
            half.drop()

    def adopt(self, sha256: str, half: Path, size: int) -> bool:
        """Give a half file its name, for one asset; returns whether the content is new."""
        target = self.path(sha256)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            if sha256 not in self._sizes or not target.is_file():
                half.chmod(0o400)
                half.rename(target)
                if self.fsync:
                    _fsync_folder(target.parent)
            is_new = sha256 not in self._sizes
            self._sizes[sha256] = size
            self._uses[sha256] += 1
        return is_new

    def release(self, sha256: str) -> None:
        """Count one asset less with this content; the copy goes with the last one."""
        with self._lock:
            self._uses[sha256] -= 1
            if self._uses[sha256] <= 0:
                del self._uses[sha256]
                self.total_bytes -= self._sizes.pop(sha256, 0)
                _remove(self.path(sha256))


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(file: Path) -> None:
    # The next start tries again to remove it.
    with contextlib.suppress(OSError):
        if file.is_dir() and not file.is_symlink():
            for one in file.iterdir():
                _remove(one)
            file.rmdir()
        else:
            file.unlink()


class HalfFile:
    """A file while it grows; worked on by one thread at a time, and dropped by any."""

    def __init__(self, store: AssetStore, size_bytes: int = 0) -> None:
        """Take room for `size_bytes` at once; raises `NotCopiedError`."""
        if size_bytes:
            store.reserve(size_bytes)
        self._store = store
        self._lock = threading.Lock()
        self._summed = hashlib.sha256()
        self._size = 0
        self._reserved = size_bytes
        self._path: Path | None = None
        self._descriptor = -1
        self._busy = self._dropped = False

    def copy(self, file: OpenFile, keep_on: KeepOn) -> str | None:
        """Copy a file, and name the copy; returns its SHA-256, or None if it was stopped.

        Raises `NotCopiedError` and `ChangedError`.
        """
        # Not copy_file_range: every byte has to be read for its digest anyway.
        with self._working("copied to"):
            for chunk in chunks(file, keep_on):
                self._add(chunk)
            return self._named() if self._size == file.size else None

    def write(self, pieces: list[bytes | str]) -> None:
        """Add pieces, those in base64 decoded; raises `NotCopiedError`."""
        with self._working("written to"):
            try:
                for piece in pieces:
                    for part in [piece] if isinstance(piece, bytes) else _decoded(piece):
                        self._add(part)
            except ValueError as error:
                raise NotCopiedError(f"its data is not base64: {error}") from None

    def finish(self) -> CheckedFile:
        """Give it its name; raises `NotCopiedError`."""
        with self._working("kept in"):
            sha256 = self._named()
            path = self._store.path(sha256)
            found = path.stat()
            real_path = str(path.resolve())
            size, mtime_ns = found.st_size, found.st_mtime_ns
            return CheckedFile(str(path), real_path, size, mtime_ns, sha256, copied=True)

    def drop(self) -> None:
        """Delete the file unless it has got its name; idempotent."""
        with self._lock:
            self._dropped = True
            if self._busy:
                return  # the thread that works on it will see to it
        self._clear()

    @contextlib.contextmanager
    def _working(self, verb: str) -> Iterator[None]:
        with self._lock:
            if self._dropped:
                raise NotCopiedError("the request has ended")
            self._busy = True
        try:
            if self._path is None:
                self._store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._descriptor, path = tempfile.mkstemp(prefix=_HALF, dir=self._store.folder)
                self._path = Path(path)
            yield
        except OSError as error:
            words = f"it could not be {verb} {self._store.folder}: {error.strerror}"
            raise NotCopiedError(words) from None
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._busy = False
            dropped = self._dropped
        if dropped:
            self._clear()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._reserved:
            self._store.reserve(self._size - self._reserved)
            self._reserved = self._size
        self._summed.update(part)
        left = memoryview(part)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _named(self) -> str:
        assert self._path is not None  # noqa: S101 - whoever works on it has made it
        if self._store.fsync:
            os.fsync(self._descriptor)
        sha256 = self._summed.hexdigest()
        if self._store.adopt(sha256, self._path, self._size):
            self._reserved = 0  # it counts for good from here on
        return sha256

    def _clear(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        path, self._path = self._path, None
        reserved, self._reserved = self._reserved, 0
        # A file that cannot be removed, or is gone already, is no failure; the next start of the
        # daemon tries again.
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
        if reserved:
            self._store.reserve(-reserved)


DECODED_CHARS = 1 << 16
"""Characters of base64 decoded at a time: the event loop waits for Python's lock that long."""


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


SPOOLS_OPEN = 16
"""Files that a request may hand over at a time."""

SPOOLS_WHOLE = 256
"""The same for files that come in one piece: an answer may hold that many."""


class Spool:
    """A file that a module hands over in pieces; the task `run` writes the pieces."""

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
                await self._checks.release([found.copy])

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
            half.drop()  # what is left of it if there was such a copy before
            if self._given_up.is_set() and looked.copy is not None:  # the request has ended
                self._checks.store.release(looked.copy)
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
