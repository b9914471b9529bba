"""Digests of files that are asked for again and again: bytes are read only if they may be new."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from functools import partial
from typing import NamedTuple

SETTLED_NS = 2_000_000_000
"""A file changed so short a time ago may change again without its stamps showing it: they are as
coarse as the kernel's tick, on some file systems as two seconds. Its signature is not trusted."""

CHUNK_BYTES = 1 << 18


class Signature(NamedTuple):
    """What of `stat` changes with a file's bytes; the change time cannot be set by a program."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int
    mode: int

    @property
    def regular(self) -> bool:
        """Whether it is a regular file; a pipe would be waited for."""
        return stat.S_ISREG(self.mode)

    def settled(self) -> bool:
        """Whether an equal signature will mean equal bytes."""
        return time.time_ns() - max(self.mtime_ns, self.ctime_ns) > SETTLED_NS


def signature(path: str) -> Signature:
    """Look at a file, through links; raises `OSError`."""
    found = os.stat(path)  # noqa: PTH116 - ten thousand times; a Path costs more than the call
    return Signature(
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_size,
        found.st_ino,
        found.st_dev,
        found.st_mode,
    )


def signature_or_none(path: str) -> Signature | None:
    try:
        return signature(path)
    except OSError:
        return None


class FileDigests:
    """The SHA-256 of files, kept with their signatures."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Signature, str]] = {}

    def digest(self, path: str) -> str | None:
        """Return the digest (hex) of a regular file, or None if there is none that can be read."""
        try:
            now = signature(path)
            if not now.regular:
                return None
            known = self._known.get(path)
            if known is not None and known[0] == now:
                return known[1]
            settled = now.settled()
            digest = _digest(path)
        except OSError:
            self._known.pop(path, None)
            return None
        if settled:
            self._known[path] = now, digest
        return digest

    def keep_only(self, paths: set[str]) -> None:
        for path in self._known.keys() - paths:
            del self._known[path]


def _digest(path: str) -> str:
    # Without O_NONBLOCK a file that makes its readers wait, such as /proc/kmsg or a pipe that has
    # just taken the place of a file, would hold up all modules.
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for chunk in iter(partial(os.read, descriptor, CHUNK_BYTES), b""):
            digest.update(chunk)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
