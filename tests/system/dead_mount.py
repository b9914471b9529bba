"""A file system that does not answer: FUSE, with nobody at the other end."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_DETACH = 2


@contextlib.contextmanager
def dead_mount(folder: Path) -> Iterator[Path]:
    """Have one for as long as the block lasts; who waits for it fails then (ENOTCONN)."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(exist_ok=True)  # what was there is covered
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error.strerror}")
    path = os.fsencode(folder)
    try:
        words = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"fuse", path, b"fuse", 0, words) != 0:
            pytest.skip(f"no file system can be mounted: {os.strerror(ctypes.get_errno())}")
        yield folder
    finally:
        os.close(device)
        libc.umount2(path, _DETACH)
