"""Read the args of an invocation from the command line, a file or stdin, strictly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from protocol.json_document import read_document

_HALF_WRITTEN = "; is the file still being written?"


def read_args(given: str | None) -> dict[str, Any]:
    """Return the object that `--args` names: JSON itself, `@FILE`, or `-` for stdin.

    Raises `click.UsageError` that says by line and column, or by pointer, what is wrong.
    """
    if given is None:
        return {}
    where, data = _load(given)
    if not data.strip():
        raise click.UsageError(f"{where}: is empty, must be one JSON object, such as {{}}")
    document = read_document(data)
    if isinstance(document, dict):
        return document
    words = "; ".join(str(problem) for problem in document)
    if where == "--args":
        words = words.replace(_HALF_WRITTEN, "; did the shell take the quotes away?")
    raise click.UsageError(f"{where}: {words}")


def _load(given: str) -> tuple[str, bytes]:
    if given in ("-", "@-"):
        return "--args from stdin", sys.stdin.buffer.read()
    if not given.startswith("@"):
        return "--args", given.encode("utf-8", "surrogateescape")
    path = Path(given[1:])
    try:
        return f"--args from {path}", path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--args: {path} cannot be read: {error.strerror}") from None
