"""Take a terminal over and restore it, whatever ends the command; and read its keys.

The alternate screen is shown, without a cursor, and keys come one by one (cbreak: Ctrl-C and Ctrl-Z
are still signals). The handler of a signal that ends the command restores the terminal first;
SIGTSTP restores it while the command is stopped.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from types import FrameType
from typing import Any

STDIN, STDOUT = 0, 1

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = b"\x1b[H", b"\x1b[2K", b"\x1b[J"

_DEADLY = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
)
_HANDLED = {signal.SIGINT, signal.SIGTSTP, *_DEADLY}

PATIENCE_S = 1.0
"""How long a blocked terminal (Ctrl-S) may delay the end of the command."""

_FALLBACK_SIZE = (80, 24)


class ClosedTerminalError(Exception):
    """The terminal is gone."""


class Screen:
    def __init__(self, wake_up: int) -> None:
        self.wake_up = wake_up
        """Readable after a signal: the size may have changed, or all has to be redrawn."""
        self._before: list[Any] | None = None

    def open(self) -> None:
        """Take the terminal over; raises `ClosedTerminalError`."""
        try:
            self._before = termios.tcgetattr(STDIN)
            tty.setcbreak(STDIN, termios.TCSANOW)
        except termios.error as error:
            raise ClosedTerminalError from error
        _write(_ENTER)

    def close(self) -> None:
        """Restore the terminal; idempotent. Signals cannot interrupt this, and it has a timeout."""
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            before, self._before = self._before, None
            if before is None:
                return
            # A terminal that is gone needs nothing back.
            with contextlib.suppress(OSError, termios.error):
                if _takes_more(PATIENCE_S):
                    os.write(STDOUT, _LEAVE)
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(STDIN, termios.TCSANOW, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    def size(self) -> tuple[int, int]:
        """Return the number of columns and lines."""
        try:
            size = os.get_terminal_size(STDOUT)
        except OSError:
            return _FALLBACK_SIZE
        return size.columns or _FALLBACK_SIZE[0], size.lines or _FALLBACK_SIZE[1]

    def draw(self, lines: Sequence[str], encoding: str) -> bool:
        """Replace the shown lines.

        Returns False if the terminal takes nothing. Raises `ClosedTerminalError`.
        """
        if not _takes_more(0):
            return False
        rows = [_CLEAR_LINE + line.encode(encoding, "replace") for line in lines]
        _write(_HOME + b"\r\n".join(rows) + _CLEAR_BELOW * bool(rows))
        return True

    def typed(self) -> bytes:
        """Return the typed bytes; raises `ClosedTerminalError`."""
        try:
            data = os.read(STDIN, 1024)
        except OSError as error:
            raise ClosedTerminalError from error
        if not data:
            raise ClosedTerminalError
        return data


@contextlib.contextmanager
def taken_over() -> Iterator[Screen]:
    """Take the terminal over for a block; Ctrl-C raises `KeyboardInterrupt` in it."""
    with contextlib.ExitStack() as stack:
        heard, told = os.pipe()
        for end in (heard, told):
            os.set_blocking(end, False)
            stack.callback(os.close, end)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(told, warn_on_full_buffer=False))
        screen = Screen(heard)
        for number, handler in _handlers(screen).items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                stack.callback(signal.signal, number, signal.signal(number, handler))
        # Called before the handlers are removed.
        stack.callback(screen.close)
        screen.open()
        yield screen


Handler = Callable[[int, FrameType | None], None]


def _handlers(screen: Screen) -> dict[signal.Signals, Handler]:
    def interrupt(_: int, __: FrameType | None) -> None:
        screen.close()
        raise KeyboardInterrupt

    def end(number: int, _: FrameType | None) -> None:
        """End as the signal would have ended it."""
        screen.close()
        _act_on(number)

    def stop(number: int, _: FrameType | None) -> None:
        """Stop as the signal would have stopped it; continues after SIGCONT."""
        screen.close()
        _act_on(number)
        signal.signal(number, stop)
        screen.open()

    def note(_: int, __: FrameType | None) -> None:
        """Do nothing: with a handler, the signal wakes `Screen.wake_up`."""

    return {
        **dict.fromkeys(_DEADLY, end),
        signal.SIGINT: interrupt,
        signal.SIGTSTP: stop,
        signal.SIGWINCH: note,
    }


def _act_on(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _takes_more(timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(STDOUT, select.POLLOUT)
    return bool(poll.poll(timeout_s * 1000))


def _write(data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(STDOUT, left) :]
    except OSError as error:
        raise ClosedTerminalError from error


class Key(Enum):
    QUIT = auto()
    SORT = auto()
    RESTART = auto()
    LOGS = auto()
    YES = auto()
    UP = auto()
    DOWN = auto()
    PAGE_UP = auto()
    PAGE_DOWN = auto()
    TOP = auto()
    BOTTOM = auto()
    OTHER = auto()
    """Any other key; it answers a question with no."""


_KEYS = {
    b"q": Key.QUIT,
    b"Q": Key.QUIT,
    b"s": Key.SORT,
    b"r": Key.RESTART,
    b"l": Key.LOGS,
    b"\r": Key.LOGS,
    b"\n": Key.LOGS,
    b"y": Key.YES,
    b"k": Key.UP,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"j": Key.DOWN,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN,
    b" ": Key.PAGE_DOWN,
    b"g": Key.TOP,
    b"\x1b[H": Key.TOP,
    b"\x1bOH": Key.TOP,
    b"\x1b[1~": Key.TOP,
    b"G": Key.BOTTOM,
    b"\x1b[F": Key.BOTTOM,
    b"\x1bOF": Key.BOTTOM,
    b"\x1b[4~": Key.BOTTOM,
}
_ONE_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[^\x1b]|\x1b(?![\[O]|$)", re.DOTALL)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;]{0,16}|O)?\Z")


class Keys:
    """Splits input into keys; an arrow may come in two pieces over a slow line."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> Iterator[Key]:
        data = self._left + data
        unfinished = _UNFINISHED.search(data)
        self._left = b"" if unfinished is None else unfinished[0]
        for found in _ONE_KEY.finditer(data[: len(data) - len(self._left)]):
            yield _KEYS.get(found[0], Key.OTHER)
