"""Make the standard streams dependable, whatever the command was started with.

a descriptor of 0 to 2 is closed   it becomes /dev/null, so that no socket takes its number
stdout cannot be written           the command ends with a sentence, and a status of its own
stderr cannot be written           what was to be said is lost, and nothing else
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import BROKEN_PIPE, UnwritableError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def make_dependable() -> None:
    """Replace `sys.stdin`, `sys.stdout` and `sys.stderr` where they would fail."""
    for descriptor in range(3):
        _fill(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _text(_Stdout(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Stderr(2, "wb", closefd=False), sys.stderr)


def let_go_of_stdout() -> None:
    """Have what is still buffered go nowhere: at exit Python would complain about it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _fill(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest free number is taken, and all below this one are in use.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _text(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        # A character that a terminal's encoding lacks is written as an escape.
        errors="backslashreplace",
        line_buffering=isinstance(raw, _Stderr) or raw.isatty(),
    )


class _Stdout(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            let_go_of_stdout()
            raise click.exceptions.Exit(BROKEN_PIPE) from None
        except OSError as error:
            let_go_of_stdout()
            words = f"stdout cannot be written: {os.strerror(error.errno or 0)}"
            raise UnwritableError(words) from None


class _Stderr(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written: int | None = super().write(data)
        except OSError:
            written = None
        # None: it is full and does not block. Nobody is to wait for, or to fail with, a remark.
        return memoryview(data).nbytes if written is None else written
