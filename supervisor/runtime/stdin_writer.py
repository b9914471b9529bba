"""What is written to a process: at once where the pipe has room for it, else as soon as it has."""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

from protocol.connection import Connection
from protocol.outgoing import Written
from protocol.transcript import Happened, Source
from supervisor.runtime.process import Process
from supervisor.runtime.taps import Taps


class StdinWriter:
    """The stdin of a process, and what its connection has for it."""

    def __init__(self, instance: str, process: Process, connection: Connection, taps: Taps) -> None:
        self.drained: Callable[[], None] = lambda: None
        """Called each time that the pipe has taken what it had no room for at first."""
        self._instance = instance
        self._process = process
        self._connection = connection
        self._taps = taps
        self._to_write = trio.Event()
        self._left = memoryview(b"")
        self._held = False

    @property
    def half_written(self) -> bool:
        """Whether bytes wait because the process does not read them."""
        return bool(self._left)

    def flush(self) -> None:
        """Have what the connection has to send written; many calls make one write."""
        if not self._held:
            self._to_write.set()

    def begin(self) -> None:
        """Go on where the process's opening left off; the writer sees to what is left."""
        opening = self._process.opening
        if opening is None:
            self.write_now()
            return
        self._taps.said(self._instance, Source.HOST, opening.written)
        self._left = memoryview(opening.left)
        if self._process.stdin is None:
            self._taps.happened(self._instance, Happened.STDIN_CLOSED)

    def write_now(self) -> bool:
        """Write what the pipe takes this moment; the writer sees to the rest.

        Returns whether there was anything that could be written.
        """
        stdin = self._process.stdin
        if self._held:
            return False
        if self._left or stdin is None:
            self._to_write.set()
            return False
        data = self._connection.data_to_send()
        if not data:
            return False
        try:
            written = os.write(stdin, data)
        except OSError:
            written = 0  # whatever it is, the writer will meet it too
        if self._taps.tap is not None:
            self._taps.said(self._instance, Source.HOST, data[:written])
        if written < len(data):
            self._left = memoryview(data)[written:]
            self._to_write.set()
        elif self._connection.closes_stdin:
            self.close()
        return True

    def hold(self) -> None:
        """Write nothing until `release`: what many lines lead to is to make one write."""
        self._held = True

    def release(self) -> bool:
        """Write what has come since `hold`, without waking the writer; see `write_now`."""
        self._held = False
        return self.write_now()

    def withdraw(self, request_id: str) -> Written:
        """Return how much of a request was written, and do not write it if that is nothing."""
        outgoing = self._connection.outgoing
        if self.half_written:
            # Left with the connection until the pipe has room: a thousand that are given up in one
            # moment would each copy all that the others wait to write.
            outgoing.take_back(len(self._left))
            self._left = memoryview(b"")
            self._to_write.set()
        return outgoing.withdraw(request_id)

    async def run(self) -> bool:
        """Write what there was no room for; ends when stdin has been closed.

        Returns False if it was the process that closed it, while something was to be written.
        """
        while True:
            self._to_write = trio.Event()
            if not self._left:
                self._left = memoryview(self._connection.data_to_send())
            if self._left:
                if not await self._write_left():
                    return False
                self.drained()
                if self._connection.closes_stdin:
                    self.close()
                    return True
            else:
                await self._to_write.wait()

    def close(self) -> None:
        """Close stdin; idempotent."""
        if self._process.stdin is not None:
            self._taps.happened(self._instance, Happened.STDIN_CLOSED)
        self._process.close_stdin()

    async def _write_left(self) -> bool:
        while self._left:
            stdin = self._process.stdin
            if stdin is None:
                return False
            try:
                written = os.write(stdin, self._left)
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_writable(stdin)
                except trio.ClosedResourceError:
                    return False
            except OSError:
                return False  # EPIPE: it closed its stdin; SIGPIPE is ignored by Python
            else:
                self._taps.said(self._instance, Source.HOST, self._left[:written])
                self._left = self._left[written:]
        return True
