"""Read a file that people write, such as a descriptor: whole, of bounded size, without waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnreadableError(Exception):
    """Why a file was not read; the words go after its name."""


def read_whole(path: Path, limit_bytes: int, what: str) -> bytes:
    """Return what a regular file holds; raises `UnreadableError`.

    One of more than `limit_bytes` is no `what`, and is not read into memory to find that out.
    """
    try:
        # Without O_NONBLOCK a named pipe would wait for a writer, and all modules with it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableError("is not a regular file")
            data: bytes | None = file.read(limit_bytes + 1)
    except OSError as error:
        dangling = isinstance(error, FileNotFoundError) and path.is_symlink()
        words = "is a dangling link" if dangling else f"cannot be read: {error.strerror}"
        raise UnreadableError(words) from None
    if data is None:  # the kernel has files that are regular and make their readers wait
        raise UnreadableError("cannot be read: it has nothing to read now")
    if len(data) > limit_bytes:
        raise UnreadableError(f"is larger than the {limit_bytes} bytes that a {what} may have")
    return data
