"""The three pipes of a process: who closes which end, and how they are read.

An exit does not mean the end of the pipes: a grandchild may hold them. What the leader itself wrote
is in the pipe by then, so FIONREAD bounds what is still to be read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import termios
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import msgspec
import trio

from protocol.transcript import EntrySource
from supervisor.runtime.turns import LineTurn

READ_BYTES = 65536
"""One read takes at most what a pipe holds by default."""


class Pipes:
    """Pipes for stdin, stdout and stderr, opened within a block.

    At its end the process's ends are closed in any case, and ours unless they were kept.
    """

    def __init__(self, most: int) -> None:
        """Take no descriptor of the number `most` or above (`file_limit`)."""
        self._most = most
        self._theirs: list[int] = []
        self._ours: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        close_all((*self._theirs, *self._ours))

    def open(self) -> list[int]:
        """Return the process's ends: its stdin, stdout and stderr; raises `OSError`."""
        for is_stdin in (True, False, False):
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self._theirs.append(reading if is_stdin else writing)
            self._ours.append(writing if is_stdin else reading)
            if max(reading, writing) >= self._most:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._theirs

    def keep(self) -> list[int]:
        """Return our ends, which do not block; to close them is the caller's from now on."""
        kept, self._ours = self._ours, []
        for descriptor in kept:
            os.set_blocking(descriptor, False)
        return kept


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def read(descriptor: int, *, drained: bool = False) -> bytes:
    """Wait for bytes on a pipe and return them; `b""` is its end.

    With `drained`, when the last read left nothing, there is no first look: it is the neighbours'
    turn at once, for a system call and a turn of the loop less.
    """
    if drained:
        await trio.lowlevel.wait_readable(descriptor)
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(descriptor)


def read_rest(descriptor: int) -> list[bytes]:
    """Return what is in a pipe now, in chunks, without waiting and without following a writer."""
    left = int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), "little")
    chunks: list[bytes] = []
    while left > 0:
        try:
            chunk = os.read(descriptor, min(left, READ_BYTES))
        except BlockingIOError:
            break
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return chunks


class Output(msgspec.Struct, eq=False):
    """What a process prints on one pipe, and how far it is taken (`Incarnation`)."""

    pipe: int
    source: EntrySource
    label: str
    """For `LOOP`."""
    turn: LineTurn
    untaken: deque[bytes] = msgspec.field(default_factory=deque)
    """What was read already: an exit may come between two turns."""
