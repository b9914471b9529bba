"""Text for terminals: safe text, tables, and a line that is rewritten in place.

Colours are added with `click.style`; `click.echo` removes them where no terminal reads.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Self

import click

# Control characters other than tab and newline, and those that reorder what stands around them:
# a module's text is not to move the cursor, or to look like something else. And surrogates: the
# bytes of a path that are not UTF-8 (PEP 383).
STEERING = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""DEL, C1, line separators, and characters that change the direction of text."""

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
    """Escape all characters that could steer a terminal."""
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
    """Quote a module's name for a shell command that is to be copied."""
    import shlex

    word = shlex.quote(one_line(name))
    return f"-- {word}" if name.startswith("-") else word


def state_word(state: str) -> str:
    """Return a state in its colour; it may be padded."""
    return click.style(state, fg=STATE_COLOURS.get(state.rstrip()))


def is_in(state: str) -> str:
    """Return `is ready`, `is in backoff`, with the state in its colour."""
    return f"is {'in ' if state == 'backoff' else ''}{state_word(state)}"


def dim(text: str) -> str:
    return click.style(text, dim=True)


def cells(text: str) -> int:
    """Return the columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Cut a text to a number of columns; a cut text ends in two dots."""
    if cells(text) <= width:
        return text
    mark = CUT if width > len(CUT) else ""
    while text and cells(text) > width - len(mark):
        text = text[:-1]
    return text + mark


def pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - cells(text))
    return space + text if right else text + space


GAP = "  "
"""Between the columns of a table."""


def column_widths(columns: Iterable[str], rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Return the width of each column: that of its title, or of its widest cell."""
    return {name: max(cells(name), *(cells(row[name]) for row in rows), 0) for name in columns}


def row_width(columns: Sequence[str], widths: Mapping[str, int]) -> int:
    return sum(widths[name] for name in columns) + len(GAP) * (len(columns) - 1)


def table_line(
    columns: Iterable[str],
    widths: Mapping[str, int],
    row: Mapping[str, str] | None = None,
    *,
    right: Container[str] = (),
    paint: Callable[[str, str], str] = lambda _, text: text,
) -> str:
    """Return a row of a table, or its titles, each cell cut and padded.

    `paint` gets a column and its cell.
    """
    texts = [(name, cut(name if row is None else row[name], widths[name])) for name in columns]
    padded = [(name, pad(text, widths[name], right=name in right)) for name, text in texts]
    return GAP.join(paint(*one) if row else one[1] for one in padded).rstrip()


def is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except ValueError:
        return False  # the stream is closed


def columns_of_stdout() -> int | None:
    """Return the width of the terminal that reads stdout; None without one."""
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns


class Ticker:
    """A count on stderr: rewritten in place on a terminal, a line per step elsewhere."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self.live = is_terminal(sys.stderr)
        """Whether a line can be rewritten."""
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Replace the shown text; does nothing without a terminal."""
        if self.live and not self._silent:
            import shutil

            self.clear()
            # Only the last row of a text with two rows could be rewritten.
            self._shown = cut(text, shutil.get_terminal_size().columns - 1)
            click.echo(self._shown, err=True, nl=False)

    def step(self, text: str, count: str) -> None:
        """Show the new count on a terminal, a line elsewhere."""
        if self.live:
            self.show(count)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Write a permanent line above the shown text."""
        if self._silent:
            return
        shown = self._shown
        self.clear()
        click.echo(text, err=True)
        self.show(shown)

    def clear(self) -> None:
        if self._shown:
            self._shown = ""
            # Not by `click.echo`: without colours, it removes all escapes.
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
