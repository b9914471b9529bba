"""Look at the file of an asset: is it there, regular, readable; how large; what is its SHA-256.

All of this is for worker threads: a file system may take its time, or never answer. The file that
was looked at stays open for the read, so a path that changes in between cannot show another file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

CHUNK_BYTES = 1 << 20
"""One read: large enough for hashing to run without Python's lock, small enough to stop soon."""

SHOWN_CHARS = 200

KERNELS_OWN = ("/proc", "/sys", "/dev")
"""Files below these differ from process to process: /proc/self is the daemon, not the module."""

SHARED = ("/dev", "shm")
"""The exception: files in memory, which all processes share."""

MOST_LINKS = 40
"""As many as the kernel follows (MAXSYMLINKS)."""

KeepOn = Callable[[], bool]
"""Asked before each chunk; False stops the reading."""


class AssetFileError(Exception):
    """The file cannot be handed over; the text says why, beginning with its path."""


class ChangedError(Exception):
    pass


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


def _chunks(file: OpenFile, keep_on: KeepOn) -> Iterator[bytes]:
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


def digest(file: OpenFile, keep_on: KeepOn, copy_to: int | None = None) -> str | None:
    """Return the SHA-256 in hexadecimal, or None if it was stopped; raises `ChangedError`.

    What is read is written to the descriptor `copy_to`, if there is one.
    """
    # Not copy_file_range: every byte has to be read for its digest anyway.
    summed = hashlib.sha256()
    read = 0
    for chunk in _chunks(file, keep_on):
        summed.update(chunk)
        read += len(chunk)
        if copy_to is not None:
            write_all(copy_to, chunk)
    return summed.hexdigest() if read == file.size else None


def write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


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
