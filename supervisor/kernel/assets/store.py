"""Copies of assets, named by their content: DATA/assets/sha256/ab/cdef...

A copy is written to a temporary name and renamed when it is whole, so a file with a name is whole.
The same content is kept once and goes when the last asset with it is forgotten. The methods do file
work and are for worker threads; `path` and `check_room` do none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from supervisor.kernel.assets.files import ChangedError, KeepOn, OpenFile, digest


class AssetOptions(msgspec.Struct, frozen=True):
    """The operator's options about assets."""

    copy: bool = False
    """Keep a copy of each."""
    store_bytes: int = 1 << 30
    """How much the copies may take together."""
    fsync: bool = False
    """Sync copies to the disk, so that they outlive a loss of power too."""


_FICLONE = 0x40049409
"""The ioctl that shares the blocks of a file (linux/fs.h); Btrfs, XFS and others have it."""

_CANNOT_SHARE = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.ENOSYS}
)
_HALF_COPIED = ".half-"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class NotCopiedError(Exception):
    """There is no copy; the text says why, with the limit and the figure if it is a limit."""

    def __init__(self, words: str, no_room_for: int = 0) -> None:
        super().__init__(words)
        self.no_room_for = no_room_for


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
        """Begin with the copies on disk: half copies go, and copies whose digest is not in `used`.

        Without `collect` other copies stay, and count.
        """
        uses = Counter(used)
        with self._lock:
            for half in list(self.folder.glob(f"{_HALF_COPIED}*")):
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

    def add(self, file: OpenFile, keep_on: KeepOn) -> str | None:
        """Copy a file and return its SHA-256, or None if it was stopped.

        The copy is in use until `release`. Raises `NotCopiedError` and `ChangedError`.
        """
        reserved = file.size
        self.reserve(reserved)
        try:
            with self._half_copy() as half:
                sha256 = self._copy(file, half, keep_on)
                if sha256 is not None and self.adopt(sha256, half, file.size):
                    reserved = 0  # it counts for good from here on
                return sha256
        except OSError as error:
            words = f"it could not be copied to {self.folder}: {error.strerror}"
            raise NotCopiedError(words) from None
        finally:
            self.reserve(-reserved)

    def release(self, sha256: str) -> None:
        """Count one asset less with this content; the copy goes with the last one."""
        with self._lock:
            self._uses[sha256] -= 1
            if self._uses[sha256] <= 0:
                del self._uses[sha256]
                self.total_bytes -= self._sizes.pop(sha256, 0)
                _remove(self.path(sha256))

    def reserve(self, size: int) -> None:
        """Count bytes of a file without a name yet; raises `NotCopiedError` if it is too much."""
        # So two at once cannot pass the limit together.
        with self._lock:
            if size > 0:
                self.check_room(size)
            self.total_bytes += size

    def begin_half(self) -> Path:
        """Return the path of a new file without a name yet; `drop_half` ends it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_HALF_COPIED, dir=self.folder)) / "content"

    def drop_half(self, half: Path) -> None:
        """Remove the rest of such a file."""
        half.unlink(missing_ok=True)
        half.parent.rmdir()

    @contextlib.contextmanager
    def _half_copy(self) -> Iterator[Path]:
        half = self.begin_half()
        try:
            yield half
        finally:
            self.drop_half(half)

    def _copy(self, file: OpenFile, half: Path, keep_on: KeepOn) -> str | None:
        with half.open("xb+") as copy:
            if _share_blocks(file.descriptor, copy.fileno()):
                summed = _digest_of(copy.fileno(), keep_on)
                if summed is not None and os.fstat(copy.fileno()).st_size != file.size:
                    raise ChangedError
            else:
                summed = digest(file, keep_on, copy.fileno())
            if self.fsync and summed is not None:
                os.fsync(copy.fileno())
        return summed

    def adopt(self, sha256: str, half: Path, size: int) -> bool:
        """Give a file its name, for one asset; returns whether the content is new."""
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


def _share_blocks(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def _digest_of(descriptor: int, keep_on: KeepOn) -> str | None:
    found = os.fstat(descriptor)
    copy = OpenFile(descriptor, "", "", found.st_size, found.st_mtime_ns)
    return digest(copy, keep_on)


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
