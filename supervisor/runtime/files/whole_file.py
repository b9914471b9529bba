"""Read a file that people write, such as a descriptor, or replace it: whole, without waiting."""

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


def replace_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file in the place of the one that is there, if any; raises `OSError`.

    A reader sees one of them whole. `mode` holds whatever the umask is; None is the usual one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600 if mode else 0o666), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
