"""The lines that wait to be written to one client, bounded in bytes by their writers.

A writer of a stream checks `congested` (or awaits `wait_room`) and pauses; the bound is HIGH_BYTES
plus one chunk of a pipe for each of them.

Lines that come during a turn leave at its end, in one write and without a pass of the event loop
between, if the client takes them; else a task writes them (`take`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

import trio

from supervisor.runtime.held_bytes import ANSWERS, Account
from supervisor.runtime.turns import LOOP

if TYPE_CHECKING:
    from supervisor.faces.module_wire import LineClient

HIGH_BYTES = 1 << 20
LOW_BYTES = 1 << 18
"""Congestion begins above the one and ends below the other: the gap keeps it from flapping. Both
are less where a party has less free (`held_bytes.LEAST_FREE_BYTES`)."""

TOGETHER_BYTES = 1 << 20
"""Waiting lines are joined up to this length to be written, or the first one alone."""

COUNTED_BYTES = 1 << 16
"""The client's account is updated in such steps: a stream of events passes here."""


class Outbox:
    def __init__(self, resume: Callable[[], None], account: Account) -> None:
        """Call `resume` when congestion ends; waiting bytes are held for `account`."""
        self.congested = False
        self.waiting_bytes = 0
        self.account = account
        self._resume = resume
        self._counted_bytes = 0
        self._count_at = COUNTED_BYTES
        self._lines: list[bytes] = []
        self._some = trio.Event()
        self._room: trio.Event | None = None
        """Waits until less is held; mostly there is no waiter, and that costs no call."""
        self._closed = False
        self._write: Callable[[bytes], int] | None = None
        self._is_taken = False
        """Whether the writing task has lines in its hands: the others wait for that."""
        self._to_flush = False
        self.gatherer: LineClient | None = None
        """The request whose gathered lines come after the waiting ones."""

    def write_through(self, write: Callable[[bytes], int]) -> None:
        """Write lines by this function, which returns how much it took, or raises `OSError`."""
        self._write = write

    def put(self, line: bytes) -> None:
        """Add a line, or a piece of one; after `close` it is dropped."""
        if self._closed or not line:  # nothing to be taken is the end
            return
        if self.gatherer is not None:
            self.gather()
        self._lines.append(line)
        self.waiting_bytes += len(line)
        if self.waiting_bytes >= self._count_at:
            self._count()
        if not (self._to_flush or self._flushes()):
            self._some.set()

    def awaits(self, gatherer: LineClient) -> bool:
        """Gather lines until others come, or all leave; False if they are to be put now."""
        if self.congested or self._closed or not self._flushes():
            return False
        if self.gatherer is not None:
            self.gather()
        self.gatherer = gatherer
        return True

    def _flushes(self) -> bool:
        """Whether the waiting lines leave when the current turn ends."""
        if not self._to_flush and self._write is not None and not self._is_taken:
            self._to_flush = LOOP.afterwards(self._flush)
        return self._to_flush

    def gather(self) -> None:
        """Put the gathered lines behind the waiting ones."""
        gatherer, self.gatherer = self.gatherer, None
        if gatherer is not None:
            lines = gatherer.gathered()
            self._lines += lines
            self.waiting_bytes += sum(map(len, lines))
            if self.waiting_bytes >= self._count_at:
                self._count()

    async def take(self) -> bytes:
        """Wait for lines and return some, or all there are; b"" after `close`."""
        while not self._lines and not self._closed:
            self._is_taken = False
            self._some = trio.Event()
            await self._some.wait()
        self._is_taken = True
        self.gather()
        return self._take_some()

    def _take_some(self) -> bytes:
        sizes = accumulate(map(len, self._lines))
        fitting = sum(1 for _ in takewhile(TOGETHER_BYTES.__ge__, sizes)) or 1
        some, self._lines = self._lines[:fitting], self._lines[fitting:]
        return b"".join(some)

    def written(self, size: int) -> None:
        """Count bytes that have left."""
        self.waiting_bytes -= size
        if self._counted_bytes:
            self._count()
        if self.congested and self.waiting_bytes < min(LOW_BYTES, self.account.free_bytes // 4):
            self._relieve()
        elif self._room is not None and self.waiting_bytes == 0:
            self._wake()

    async def wait_room(self) -> None:
        while self.congested:
            await self._wait_less()

    async def wait_empty(self) -> None:
        """Return once everything has been written."""
        while self.waiting_bytes > 0 and not self._closed:
            await self._wait_less()

    def close(self) -> None:
        """Drop the waiting lines; nothing is taken from here on."""
        self._closed = True
        self.gatherer = None
        self._lines.clear()
        self.waiting_bytes = 0
        self._count()
        self._some.set()
        self._relieve()
        self._resume, self._write = _nothing, None  # of its conversation, which holds it

    def _count(self) -> None:
        waiting, high = self.waiting_bytes, min(HIGH_BYTES, self.account.free_bytes)
        if waiting > high:
            self.congested = True
        self._count_at = waiting + COUNTED_BYTES
        if waiting <= high < self._count_at:
            self._count_at = high + 1
        self._counted_bytes = waiting
        self.account.hold(ANSWERS, waiting)

    def _flush(self) -> None:
        self._to_flush = False
        if self.gatherer is not None:
            self.gather()
        if not self._lines or self._write is None:
            return  # taken meanwhile, or closed
        if self.waiting_bytes <= TOGETHER_BYTES:
            data, self._lines = b"".join(self._lines), []
        elif len(self._lines[0]) <= TOGETHER_BYTES:
            data = self._take_some()
        else:
            self._some.set()  # the task copies nothing of what is left of it
            return
        try:
            size = self._write(data)
        except OSError:
            size = 0  # whatever it is, the task will meet it too
        if size < len(data):
            self._lines.insert(0, data[size:])
        if self._lines:
            self._some.set()
        self.written(size)

    def _relieve(self) -> None:
        self.congested = False
        self._wake()
        self._resume()

    async def _wait_less(self) -> None:
        if self._room is None:
            self._room = trio.Event()
        await self._room.wait()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()


def _nothing() -> None:
    pass
