"""Write to terminals: safe text, columns of cells, and a line that is rewritten in place.

Colours are added with `click.style`; `click.echo` takes them away where no terminal reads.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import Any, Self

import click

# Control characters other than tab and newline, and those that reorder what stands around them:
# a module's text is not to move the cursor, or to look like something else. And surrogates: the
# bytes of a path that are not UTF-8 (PEP 383).
STEERING = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""DEL, C1, line separators, and what changes the direction of text."""

_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{STEERING}\ud800-\udfff]")

_CLEAR_LINE = "\r\x1b[K"

CUT = ".."
"""Every encoding has it."""

STATE_COLOURS = {
    "ready": "green",
    "preparing": "cyan",
    "starting": "cyan",
    "stopping": "cyan",
    "degraded": "yellow",
    "backoff": "yellow",
    "failed": "red",
    "down": "bright_black",
}


def safe(text: str) -> str:
    """Return a text with whatever could steer a terminal written as an escape."""
    return _UNSAFE.sub(lambda found: _escape(found[0]), text)


def _escape(char: str) -> str:
    byte = ord(char) - 0xDC00
    if 0x80 <= byte <= 0xFF:  # noqa: PLR2004 - the bytes that PEP 383 writes so
        return f"\\x{byte:02x}"
    return char.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Return a text as one safe line."""
    return safe(" ".join(text.splitlines()) if "\n" in text else text).replace("\t", " ")


def shell_word(name: str) -> str:
    """Return a module's name as it is typed in a shell, for a command that is to be copied."""
    import shlex

    word = shlex.quote(one_line(name))
    return f"-- {word}" if name.startswith("-") else word


def state_word(state: str, width: int = 0) -> str:
    """Return a state in its colour, padded to a width."""
    return click.style(state.ljust(width), fg=STATE_COLOURS.get(state))


def is_in(state: str) -> str:
    """Return `is ready`, `is in backoff`, with the state in its colour."""
    return f"is {'in ' if state == 'backoff' else ''}{state_word(state)}"


def dim(text: str) -> str:
    """Return a text that stands back."""
    return click.style(text, dim=True)


def cells(text: str) -> int:
    """Return how many columns a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Return as much of a text as fits into columns; what is cut off ends in two dots."""
    if cells(text) <= width:
        return text
    mark = CUT if width > len(CUT) else ""
    while text and cells(text) > width - len(mark):
        text = text[:-1]
    return text + mark


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up with spaces to a number of columns."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


def is_terminal(stream: Any) -> bool:
    """Tell whether a person reads the stream."""
    try:
        return bool(stream.isatty())
    except ValueError:
        return False  # it is closed


def columns_of_stdout() -> int | None:
    """Return how wide the terminal is that reads stdout; None if none does."""
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns


class Ticker:
    """A count on stderr: rewritten in place on a terminal, a line per step elsewhere."""

    def __init__(self, *, silent: bool = False) -> None:
        """Say nothing at all if `silent`."""
        self._silent = silent
        self.live = is_terminal(sys.stderr)
        """Whether a line can be rewritten."""
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line."""
        self.clear()

    def show(self, text: str) -> None:
        """Put a text in the place of the one before; nothing unless a terminal reads."""
        if self.live and not self._silent:
            import shutil

            self.clear()
            # Of a text that has two rows, only the second could be rewritten.
            self._shown = cut(text, shutil.get_terminal_size().columns - 1)
            click.echo(self._shown, err=True, nl=False)

    def step(self, text: str, count: str) -> None:
        """Tell of a step: as the new count on a terminal, as a line elsewhere."""
        if self.live:
            self.show(count)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Write a line that stays, above what is shown."""
        if self._silent:
            return
        shown = self._shown
        self.clear()
        click.echo(text, err=True)
        self.show(shown)

    def clear(self) -> None:
        """Take away what is shown."""
        if self._shown:
            self._shown = ""
            # Not by `click.echo`: for who wants no colours, it takes all escapes away.
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
