"""Open a file to be locked (flock(2)), and nothing else that stands in its place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_lock(path: Path) -> int:
    """Return a descriptor of the lock file, which is made if it is missing.

    Does not wait, whatever stands there. Raises `OSError` with words (`strerror`) that name the
    file.
    """
    # A lock is written to: through a link, that would be somebody else's file.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        kind = _kind(path)
        problem = f"cannot be opened: {error.strerror}" if kind is None else _is_no_file(kind)
        raise OSError(error.errno, f"the lock file {path} {problem}") from None
    kind = _KINDS.get(stat.S_IFMT(os.fstat(descriptor).st_mode))
    if kind is not None:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"the lock file {path} {_is_no_file(kind)}")
    return descriptor


def _kind(path: Path) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode))
    except OSError:
        return None


def _is_no_file(kind: str) -> str:
    return f"is {kind}, it must be a regular file; move it away"
