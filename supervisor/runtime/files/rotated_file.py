"""Append to a file that is put aside when it gets too long; nobody else is to read it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_BYTES = 5 << 20
"""A file is put aside when it passes this size; so what is kept stays under FILES times it."""

FILES = 3
"""How many there are at the most: NAME, and the older NAME.1 and NAME.2."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def append(path: Path, data: bytes | memoryview, *, flags: int = 0) -> int:
    """Write at the end of a file, made if there is none; returns how much the disk took.

    Raises `OSError`. It is opened anew each time, with more `flags`: somebody may have deleted it,
    or put it aside.
    """
    descriptor = os.open(path, _APPEND | flags, 0o600)
    try:
        written = os.write(descriptor, data)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size > FILE_BYTES:
        for number in range(FILES - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                numbered(path, number - 1).replace(numbered(path, number))
    return written


def numbered(path: Path, number: int) -> Path:
    """Return the path of a file that was put aside so many times."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")
