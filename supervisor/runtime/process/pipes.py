"""The three pipes of a process: who closes which end, and how what it prints is read.

An exit does not mean the end of the pipes: a grandchild may hold them. What the leader itself wrote
is in the pipe by then, so FIONREAD bounds what is still to be read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

import trio

from protocol.transcript import EntrySource
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import LOOP, LineTurn, pieces

READ_BYTES = 65536
"""One read takes at most what a pipe holds by default."""

FEW_BYTES = 512
"""A piece no longer than this may well be the answer to what was asked a moment ago."""


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


class Pump:
    """Takes what a process prints on one pipe, a turn at a time."""

    def __init__(
        self,
        instance: str,
        pipe: int,
        source: EntrySource,
        taps: Taps,
        *,
        take: Callable[[bytes], bool | None],
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`take` returns whether what it took led to asking; while `is_full` nothing is read."""
        self._instance = instance
        self._pipe = pipe
        self._source = source
        self._doing = "stderr" if source is EntrySource.STDERR else "stdout"
        self._take = take
        self.is_full = is_full
        self._taps = taps
        self._turn = LineTurn(instance)
        self._untaken: deque[bytes] = deque()
        """What was read already: an exit may come between two turns."""
        self._room = trio.Event()

    def nudge(self) -> None:
        self._room.set()

    async def run(
        self, ended: Callable[[], Awaitable[None]], asked: trio.Event | None = None
    ) -> None:
        """Take what comes until the end of the pipe, and go on with `ended`.

        With `asked`, nothing is read before that is set.
        """
        if asked is not None:
            await asked.wait()
        drained = True
        while data := await read(self._pipe, drained=drained):
            drained = len(data) < READ_BYTES
            self._note(data)
            while self._untaken:
                if not self._turn.begin():
                    await self._turn.wait(len(self._untaken[0]))
                    continue
                if self._take_turn():
                    drained = False  # just asked: it may answer during the neighbours' turn
                if self._untaken:
                    await self._turn.wait()
                elif not drained:
                    await trio.lowlevel.checkpoint()  # then the neighbours' turn
                while self.is_full():
                    self._room = trio.Event()
                    await self._room.wait()
        await ended()

    async def take_rest(self) -> None:
        """Take what was read already, then what the pipe has now, in turns; not cancelled."""
        turn = self._turn
        turn.begin()
        for piece in self._rest():
            self._take(piece)
            if turn.took_piece():
                with trio.CancelScope(shield=True):
                    await turn.wait()
                turn.begin()

    def _rest(self) -> Iterator[bytes]:
        yield from self._untaken
        for chunk in read_rest(self._pipe):
            self._taps.said(self._instance, self._source, chunk)
            yield from pieces(chunk)

    def _take_turn(self) -> bool:
        """Take as much as a turn has time for; return whether there may be more at once.

        That is so if what was taken led to asking. An answer that comes at once belongs to this
        turn: to come round to it in another one costs more than a small call itself.
        """
        turn, asked = self._turn, False
        LOOP.begin(self._instance, self._doing)
        while self._untaken:
            piece = self._untaken.popleft()
            asked |= bool(self._take(piece))
            if turn.took_piece():
                break
            if asked and not self._untaken and len(piece) <= FEW_BYTES:
                asked = self._read_more()
        LOOP.end()
        return asked

    def _read_more(self) -> bool:
        """Read what has come since; return whether that is anything, or the end."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._note(data)
        return True

    def _note(self, data: bytes) -> None:
        if self._taps.listeners:
            self._taps.said(self._instance, self._source, data)
        self._untaken += pieces(data)
