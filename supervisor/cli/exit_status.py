"""Say what exit statuses mean (docs/operating.md), and end a verb with one of them and a sentence.

0  ok
1  the answer is no: not ok, unhealthy, invalid, not ready in time
2  usage
3  no daemon there, or it went away before it answered
70 a bug in stdiod
74 stdout cannot be written: the disk is full, for example
130, 141  ended by Ctrl-C, or by a reader of stdout that went away: 128 + the signal, as in a shell
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO, Any

import click

OK = 0
NO = 1
USAGE = 2
NO_DAEMON = 3
BUG = 70
UNWRITABLE = 74
INTERRUPTED = 130
BROKEN_PIPE = 141


def remark(words: str) -> None:
    """Say something about stdiod or its daemon, on stderr."""
    click.echo(f"stdiod: {words}", err=True)


def exit_unless(well: object) -> None:
    """End the verb if the answer is no; it has been shown."""
    if not well:
        raise click.exceptions.Exit(NO)


class EndError(click.ClickException):
    """End the command with a sentence on stderr, and an exit status."""

    def __init__(self, message: str, status: int = NO) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = status  # click declares it of the class

    def show(self, file: IO[Any] | None = None) -> None:
        del file
        remark(self.message)


class NoError(EndError):
    """The answer is no."""


class NoDaemonError(EndError):
    """Nobody answers on the socket."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NO_DAEMON)


@contextlib.contextmanager
def interruption(words: str) -> Iterator[None]:
    """End the command with these words upon Ctrl-C in the block; `Verbs.invoke` writes them."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words) from None
