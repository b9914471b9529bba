"""The ledger on disk (`containment.ledger`), for the next daemon: written in a thread.

Only the daemon's end waits for it, within a bound: a process that is not on disk when the daemon
and its guardian are killed is found by the marks all the same. What waits for a stalled disk is
dropped when there is too much of it, and the whole is written anew instead.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog
import trio

from supervisor.runtime.blocking import BlockingWork

RECORD_BYTES = 1 << 18
"""When the record has grown to this size, it is written anew with what still holds."""

GROUP_S = 0.01
"""How long a line waits for others: one that comes and goes with a lone call costs one write."""

log = structlog.get_logger()

_DOING = "writing the record of instances"


class LedgerFile:
    def __init__(
        self, path: Path, lines: Callable[[], list[bytes]], blocking: BlockingWork
    ) -> None:
        """`lines` gives the whole ledger as it is at the moment."""
        self.path = path
        self._lines = lines
        self._blocking = blocking
        self._file = -1
        self._written = self._fresh = 0
        self._waiting = bytearray()
        self._stale = False
        """Whether something was dropped that should have been written."""
        self._some = trio.Event()
        self._closing = False

    def begin(self) -> None:
        """Write the whole ledger to a new file in its place; for threads.

        On a full disk there is none, and the log says so.
        """
        try:
            self._begin(self._lines())
        except OSError as error:
            # The guardian knows all the same; only what outlives both of them is not written down.
            words = os.strerror(error.errno or 0)
            log.warning("no record of instances", record=str(self.path), words=words)

    def append(self, line: bytes) -> None:
        """Write a line soon, if there is a file."""
        if self._file < 0:
            return
        self._waiting += line
        if len(self._waiting) > RECORD_BYTES:
            self._waiting.clear()
            self._stale = True
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await trio.sleep(GROUP_S)
            self._some = trio.Event()
            await self._write()

    async def renew(self) -> None:
        """Write the whole ledger anew, where it belongs by now; raises `OSError`."""
        self._waiting.clear()
        await self._blocking.run(_DOING, partial(self._begin, self._lines()))

    async def close(self) -> None:
        """Write what waits, within a bound, and close the file; not cancelled."""
        self._closing = True
        with trio.move_on_after(self._blocking.end_left_s(), shield=True):
            await self._write()
            with contextlib.suppress(OSError):  # without a thread: the event loop waits for no disk
                await self._blocking.run(_DOING, self._close, abandon_after_s=0)

    def let_go(self) -> None:
        """Close the file, unless `close` has seen to it."""
        if not self._closing:
            self._close()

    async def _write(self) -> None:
        # Twice what it was when it was new: a ledger that is long is not written anew each time.
        anew = self._stale or self._written > max(RECORD_BYTES, 2 * self._fresh)
        work = (
            partial(self._begin, self._lines())
            if anew
            else partial(self._append, bytes(self._waiting))
        )
        self._waiting.clear()
        self._stale = False
        # A full disk must not keep modules from being started; the marks find them all the same.
        with contextlib.suppress(OSError):
            await self._blocking.run(_DOING, work, abandon_after_s=0)

    # In a thread, one at a time.

    def _append(self, data: bytes) -> None:
        if self._file >= 0:
            self._written += os.write(self._file, data)

    def _begin(self, lines: list[bytes]) -> None:
        fresh = self.path.with_suffix(".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(file, b"".join(lines))
            fresh.rename(self.path)
        except OSError:
            os.close(file)
            raise
        self._close()
        self._file = file
        self._written = self._fresh = written

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:  # on a full disk there is none
            os.close(file)
