"""What waits to be written to one client: bounded in bytes by those who fill it.

Whoever streams looks at `congested` (or awaits `wait_room`) and pauses; the bound is HIGH_BYTES
plus what each of them had in its hands, one chunk of a pipe.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from supervisor.runtime.held_bytes import ANSWERS, Account

HIGH_BYTES = 1 << 20
LOW_BYTES = 1 << 18
"""Congestion begins above the one and ends below the other: the gap keeps it from flapping."""

COUNTED_BYTES = 1 << 16
"""What waits is told to the client's account in such steps: a stream of events passes here."""


class Outbox:
    """Lines for one client, taken by the task that writes to it."""

    def __init__(self, resume: Callable[[], None], account: Account) -> None:
        """Call `resume` when congestion ends; what waits is held for `account`."""
        self.congested = False
        self.waiting_bytes = 0
        """How much has not been written yet."""
        self.account = account
        self._resume = resume
        self._count_at = COUNTED_BYTES
        self._lines: list[bytes] = []
        self._some = trio.Event()
        self._waiting_for_room = trio.lowlevel.ParkingLot()
        self._closed = False

    def put(self, line: bytes) -> None:
        """Add a line; after `close` it is dropped, for nobody is there to read it."""
        if self._closed:
            return
        self._lines.append(line)
        self.waiting_bytes += len(line)
        if self.waiting_bytes >= self._count_at:
            self._count()
        self._some.set()

    async def take(self) -> bytes:
        """Wait for lines and return all there are; b"" after `close`."""
        while not self._lines and not self._closed:
            self._some = trio.Event()
            await self._some.wait()
        data = b"".join(self._lines)
        self._lines.clear()
        return data

    def written(self, size: int) -> None:
        """Take note that this many bytes have left."""
        self.waiting_bytes -= size
        self._count()
        if self.congested and self.waiting_bytes < LOW_BYTES:
            self._relieve()
        elif self.waiting_bytes == 0:
            self._waiting_for_room.unpark_all()

    async def wait_room(self) -> None:
        """Return once there is no congestion."""
        while self.congested:
            await self._waiting_for_room.park()

    async def wait_empty(self) -> None:
        """Return once everything has been written."""
        while self.waiting_bytes > 0 and not self._closed:
            await self._waiting_for_room.park()

    def close(self) -> None:
        """Drop what waits; nothing is taken from here on."""
        self._closed = True
        self._lines.clear()
        self.waiting_bytes = 0
        self._count()
        self._some.set()
        self._relieve()

    def _count(self) -> None:
        waiting = self.waiting_bytes
        if waiting > HIGH_BYTES:
            self.congested = True
        self._count_at = waiting + COUNTED_BYTES
        if waiting <= HIGH_BYTES < self._count_at:
            self._count_at = HIGH_BYTES + 1
        self.account.hold(ANSWERS, waiting)

    def _relieve(self) -> None:
        self.congested = False
        self._waiting_for_room.unpark_all()
        self._resume()
