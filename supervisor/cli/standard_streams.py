"""Make the standard streams dependable, whatever the command was started with.

a descriptor of 0 to 2 is closed   it becomes /dev/null, so that no socket takes its number
stdout cannot be written           the command ends with a sentence, and a status of its own
stderr cannot be written           what was to be said is lost, and nothing else
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from supervisor.cli.exit_status import BROKEN_PIPE, UNWRITABLE, EndError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def make_dependable() -> None:
    """Replace `sys.stdin`, `sys.stdout` and `sys.stderr` where they would fail."""
    for descriptor in range(3):
        _fill(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _text(_Stdout(io.FileIO(1, "wb", closefd=False)), sys.stdout)
    sys.stderr = _text(_Stderr(io.FileIO(2, "wb", closefd=False)), sys.stderr)


def let_go_of_stdout() -> None:
    """Let the rest of the buffer go nowhere: at exit Python would complain about it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _fill(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest free number is taken, and all below this one are in use.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _text(binary: _Stdout | _Stderr, before: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        binary,
        encoding="utf-8" if before is None else before.encoding,
        # A character that a terminal's encoding lacks is written as an escape.
        errors="backslashreplace",
        line_buffering=isinstance(binary, _Stderr) or binary.isatty(),
    )


# Errors are caught around the buffer and not below it: if Ctrl-C came in a raw stream's method that
# is Python, after the bytes were written, the buffer would take them for not written, and write
# them again at exit. Nothing global is used where all goes well: streams are flushed once more
# when the interpreter has already emptied this module.


class _Stdout(io.BufferedWriter):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _end(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            _end(error)


class _Stderr(io.BufferedWriter):
    def write(self, data: ReadableBuffer, /) -> int:
        # It may be full and non-blocking: a remark is lost rather than waited for.
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


def _end(error: OSError) -> NoReturn:
    """End the command, whose stdout cannot be written."""
    let_go_of_stdout()
    if isinstance(error, BrokenPipeError):
        raise click.exceptions.Exit(BROKEN_PIPE) from None
    words = f"stdout cannot be written: {os.strerror(error.errno or 0)}"
    raise EndError(words, UNWRITABLE) from None
