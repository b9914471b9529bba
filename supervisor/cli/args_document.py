"""Read the args of an invocation from the command line, a file or stdin."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from protocol.json_document import read_document

ARGS_MIB = 16
"""Larger args are refused: some files have no end."""

_HALF_WRITTEN = "; is the file still being written?"


def read_args(given: str | None, option: str = "--args") -> dict[str, Any]:
    """Return the object that an option names: JSON itself, `@FILE`, or `-` for stdin.

    Raises `click.UsageError` that says by line and column, or by pointer, what is wrong.
    """
    if given is None:
        return {}
    where, data = _load(given, option)
    if not data.strip():
        raise click.UsageError(f"{where}: is empty, must be one JSON object, such as {{}}")
    document = read_document(data)
    if isinstance(document, dict):
        return document
    words = "; ".join(str(problem) for problem in document)
    if where == option:
        cut = words.endswith(_HALF_WRITTEN)
        words = words.removesuffix(_HALF_WRITTEN)
        if cut or "is not JSON" in words:
            # A shell takes quotes away: {"a": 1} without others around it comes as {a: 1}.
            words += f'; in a shell it is written {option} \'{{"key": "value"}}\''
    raise click.UsageError(f"{where}: {words}")


def _load(given: str, option: str) -> tuple[str, bytes]:
    if given in ("-", "@-"):
        where = f"{option} from stdin"
        return where, _read(sys.stdin.buffer, where)
    if not given.startswith("@"):
        return option, given.encode("utf-8", "surrogateescape")
    path = Path(given[1:])
    where = f"{option} from {path}"
    try:
        with path.open("rb") as file:
            return where, _read(file, where)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise click.UsageError(f"{option}: {path} cannot be read: {words}") from None


def _read(file: BinaryIO, where: str) -> bytes:
    data = file.read((ARGS_MIB << 20) + 1)
    if len(data) > ARGS_MIB << 20:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        odd = "" if regular else "is not a regular file, and "
        raise click.UsageError(f"{where}: {odd}has more than {ARGS_MIB} MiB, which are allowed")
    return data
