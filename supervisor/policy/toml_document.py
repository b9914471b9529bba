"""Read TOML that a person wrote; a fault is told with its key, or with the line of bad syntax."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec

from protocol.problem import printable, quoted, shortened

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value, such as `("modules", "kv", "allow", 0)`."""

_EXCERPT_CHARS = 60
_WHERE = re.compile(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", re.DOTALL)


class Remark(msgspec.Struct, frozen=True):
    """Something about a file: a message that begins with the key, or a line of bad syntax."""

    message: str
    line: int | None = None


class NotTomlError(Exception):
    def __init__(self, remark: Remark) -> None:
        super().__init__(remark)
        self.remark = remark


def decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotTomlError(Remark("is not UTF-8", line)) from None


def read_toml(text: str) -> dict[str, Any]:
    """Return the document; raises `NotTomlError`, nothing else."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise NotTomlError(Remark("is nested too deeply to be read")) from None
    except ValueError as error:  # a TOMLDecodeError, or an integer of too many digits
        raise NotTomlError(_syntax(text, str(error))) from None


def told(source: str, remark: Remark) -> str:
    """Return a remark as one line: `FILE: KEY: ...`, or `FILE:LINE: ...`."""
    line = "" if remark.line is None else f":{remark.line}"
    return f"{printable(source)}{line}: {remark.message}"


def key_text(place: Place) -> str:
    """Write a place as TOML does, with indices in brackets."""
    words = ""
    for step in place:
        if isinstance(step, int):
            words += f"[{step}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", step) is not None and len(step) <= _EXCERPT_CHARS
            words += ("." if words else "") + (step if bare else quoted(step))
    return words


def _syntax(text: str, words: str) -> Remark:
    match = _WHERE.match(words)
    if match is None:
        return Remark(f"is not TOML: {printable(words)}")
    rows = text.replace("\r\n", "\n").split("\n")
    line = len(rows) if match[2] is None else int(match[2])
    row = rows[min(line, len(rows)) - 1].strip()
    shown = f", in {quoted(shortened(row, _EXCERPT_CHARS))}" if row else ""
    return Remark(f"is not TOML: {printable(match[1])}{shown}", line)
