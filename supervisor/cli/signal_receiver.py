"""Receive signals in a trio program, however many come.

`trio.open_signal_receiver` runs Python for each signal. In a flood (`while kill -TERM PID`) the
next one interrupts that at its first instruction, and that one's handler the next, until the stack
is full. Here each signal runs C only: Python's own handler writes its number to a pipe
(signal.set_wakeup_fd) and calls `operator.is_`, which takes two arguments and does nothing.
"""

from __future__ import annotations

import contextlib
import operator
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator

import trio

_READ_BYTES = 65536


@contextlib.contextmanager
def receiving(numbers: Iterable[signal.Signals]) -> Iterator[AsyncIterator[int]]:
    """Give what iterates over signals as they come; equal ones that come at once may be one.

    Within the main thread and trio only. After the block the signals are caught and forgotten,
    until somebody sets another handler.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    wanted = frozenset(int(number) for number in numbers)
    # Trio's own is for what its handlers, and Ctrl-C's, wake up; there are none of them here.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        for number in wanted:
            signal.signal(number, operator.is_)
        yield _Received(reading, wanted)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


class _Received:
    """Iterates over what is written to the pipe."""

    def __init__(self, reading: int, wanted: frozenset[int]) -> None:
        self._reading = reading
        self._wanted = wanted
        self._waiting: deque[int] = deque()

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        while not self._waiting:
            await trio.lowlevel.wait_readable(self._reading)
            with contextlib.suppress(BlockingIOError):
                came = os.read(self._reading, _READ_BYTES)
                # Others that have a handler of Python's, such as SIGCHLD, write there too.
                self._waiting += [one for one in dict.fromkeys(came) if one in self._wanted]
        return self._waiting.popleft()
