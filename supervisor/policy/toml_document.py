"""Read TOML that a person wrote: the document, and in which line each key stands.

What is no TOML is said as a remark on a line, with the words that stand there.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec

from protocol.problem import printable, quoted, shortened
from supervisor.policy.toml_lines import Place, lines, repeat_in

_EXCERPT_CHARS = 60
_WHERE = re.compile(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", re.DOTALL)
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline")
"""How tomllib's words begin where something stands twice; they name no key, and one line."""


class Remark(msgspec.Struct, frozen=True, order=True):
    """Something about a line of a file; the message begins with the key, if it has one."""

    line: int
    message: str


class NotTomlError(Exception):
    """Text that is no TOML."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark)
        self.remark = remark


def decoded(data: bytes) -> str:
    """Return the text of a file; raises `NotTomlError`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotTomlError(Remark(line, "is not UTF-8")) from None


def read_toml(text: str) -> tuple[dict[str, Any], dict[Place, int]]:
    """Return the document and the line of each place in it; raises `NotTomlError`, nothing else."""
    try:
        return tomllib.loads(text), lines(text)
    except RecursionError:
        raise NotTomlError(Remark(1, "is nested too deeply to be read")) from None
    except ValueError as error:  # a TOMLDecodeError, or an integer of too many digits
        raise NotTomlError(_syntax(text, str(error))) from None


def told(source: str, remark: Remark) -> str:
    """Return a remark as the one line that a person reads; line 0 is the file as a whole."""
    where = f"{printable(source)}:{remark.line}" if remark.line else printable(source)
    return f"{where}: {remark.message}"


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
    rows = text.replace("\r\n", "\n").split("\n")
    match = _WHERE.match(words)
    if match is None:
        return Remark(1, f"is not TOML: {printable(words)}")
    if match[1].startswith(_TWICE) and (repeat := repeat_in(text)) is not None:
        words = f"stands in line {repeat.first} already, and a key may stand once only"
        return Remark(repeat.second, f"is not TOML: {key_text(repeat.place)} {words}")
    line = len(rows) if match[2] is None else int(match[2])
    row = rows[min(line, len(rows)) - 1].strip()
    shown = f", in {quoted(shortened(row, _EXCERPT_CHARS))}" if row else ""
    return Remark(line, f"is not TOML: {printable(match[1])}{shown}")
