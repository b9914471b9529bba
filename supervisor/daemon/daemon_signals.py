"""Do what signals ask of a daemon.

    SIGTERM, SIGINT   begin an orderly end; another one hurries it
    SIGHUP            reload
    SIGHUP, sent because the daemon's terminal was closed: as SIGTERM
    SIGCONT           tells that the daemon was stopped, which the kernel has seen to

For the first process of a container the default action of a signal does nothing, so there are
handlers before there is anything to handle, and after: see `Edges`.

    begun --------> kept ------------> received -----------> over
    ends at once    trio.run begins    `receiving`, `obey`   ignored

A SIGHUP that does not tell of a closed terminal is kept from the first: whoever sees the socket may
send it.
"""

from __future__ import annotations

import contextlib
import operator
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import FrameType

import structlog
import trio

from supervisor.daemon.sd_notify import Notifier

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Reload = Callable[[str], Awaitable[object]]
"""Reads the configuration again; the argument is the cause, for the log."""

log = structlog.get_logger()


Kept = dict[int, FrameType | None]
"""Received signals in order. `dict.setdefault` takes the two arguments of a handler and keeps the
first frame; it runs C only, so that nothing can be raised into the interrupted code."""


class Edges:
    """Signal handling before the daemon can obey signals, and after the last module is gone."""

    def __init__(self) -> None:
        """From here on a signal ends the process, PID 1 or not; but for a wish to reload."""
        self._kept: Kept = {}
        self._had_terminal = has_terminal()
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def keep(self) -> Kept:
        """Keep signals for `receiving`: a signal that interrupts `trio.run` makes it fail."""
        for number in SIGNALS:
            signal.signal(number, self._kept.setdefault)
        return self._kept

    def over(self) -> None:
        """Ignore signals: the process is ending, and while Python does, it has no handlers."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_reload = number == signal.SIGHUP and not (self._had_terminal and not has_terminal())
        if is_reload:
            self._kept.setdefault(number, frame)
        else:
            raise SystemExit(128 + number)


class Continued:
    """Tells whether a SIGCONT has come since it was last asked."""

    def __init__(self) -> None:
        self._came: Kept = {}
        signal.signal(signal.SIGCONT, self._came.setdefault)

    def __call__(self) -> bool:
        """Main thread only."""
        came = bool(self._came)
        self._came.clear()
        return came


async def obey(
    received: AsyncIterator[int],
    shut_down: Callable[[str], None],
    reloading: Reloading,
) -> None:
    had_terminal = has_terminal()
    async for number in received:
        name = signal.Signals(number).name
        if number != signal.SIGHUP:
            shut_down(name)
        elif had_terminal and not has_terminal():
            shut_down("the terminal was closed")
        else:
            reloading.wish(name)


class Reloading:
    """Reload on request, one at a time; requests during a reload make one more."""

    def __init__(self, reload: Reload, notifier: Notifier) -> None:
        self._reload = reload
        self._notifier = notifier
        self._wished = trio.Event()
        self._cause = ""

    def wish(self, cause: str) -> None:
        self._cause = cause
        self._wished.set()

    async def run(self) -> None:
        while True:
            await self._wished.wait()
            self._wished = trio.Event()
            self._notifier.reloading()
            try:
                await self._reload(self._cause)
            # What is wrong with a new configuration is not to end the daemon that runs.
            except Exception:
                log.exception("reload failed", cause=self._cause)
            self._notifier.ready()


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


_READ_BYTES = 65536


@contextlib.contextmanager
def receiving(
    numbers: Iterable[signal.Signals], kept: Iterable[int] = ()
) -> Iterator[AsyncIterator[int]]:
    """Give an iterator over signals as they come; equal signals at once may be one.

    The `kept` ones come first. Main thread and trio only. After the block the signals are caught
    and dropped, until another handler is set.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    wanted = frozenset(int(number) for number in numbers)
    # Trio's own is for what its handlers, and Ctrl-C's, wake up; there are none of them here.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        for number in wanted:
            signal.signal(number, operator.is_)
        yield _Received(reading, wanted, kept)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


class _Received:
    def __init__(self, reading: int, wanted: frozenset[int], kept: Iterable[int]) -> None:
        self._reading = reading
        self._wanted = wanted
        self._waiting: deque[int] = deque()
        # At once: one that came as the handlers changed is among both.
        self._take(kept)

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        while not self._waiting:
            await trio.lowlevel.wait_readable(self._reading)
            self._take(())
        return self._waiting.popleft()

    def _take(self, kept: Iterable[int]) -> None:
        written = b""
        with contextlib.suppress(BlockingIOError):
            written = os.read(self._reading, _READ_BYTES)
        # Others that have a handler of Python's, such as SIGCHLD, write there too.
        came = dict.fromkeys((*kept, *written))
        self._waiting += [one for one in came if one in self._wanted]
