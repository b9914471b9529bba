"""Env files: variables as lines of text, by the rules of docs/descriptor.md ("Env files")."""

from __future__ import annotations

import re

_ENTRY = re.compile(
    r"""[ \t\r]*(?:\#[^\n]*)?(?:\n|\Z)
    | [ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?:
        [ \t]*(?:'([^']*)'|"((?:[^"\\]|\\.)*)")[ \t]*(?:(?<=[ \t])\#[^\n]*)?
        | (?![ \t]*['"])([^\n]*)
      )(?:\n|\Z)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\$": "$", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
_ESCAPE = re.compile(r'\\["\\$nrt]')


class EnvFileError(Exception):
    """A fault of a file, with its line; never with the line's text, which may be secret."""


def read_env_file(data: bytes) -> dict[str, str]:
    """Return the variables of a file; the last value of a repeated name."""
    text = data.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n")
    bad = re.search("[\0\ud800-\udfff]", text)
    if bad is not None:
        raise EnvFileError(f"line {_line(text, bad.start())} has a NUL, or is not UTF-8")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            words = "is not NAME=value, or has a quote that is not closed, or text after it"
            raise EnvFileError(f"line {_line(text, at)} {words}")
        at = entry.end()
        name, literal, escaped, bare = entry.groups()
        if escaped is not None:
            found[name] = _ESCAPE.sub(lambda one: _ESCAPES[one[0]], escaped)
        elif name is not None:
            found[name] = re.sub(r"[ \t]#.*", "", bare).strip() if literal is None else literal
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def quoted_line(name: str, value: str) -> str:
    escapes = {ord(plain): escape for escape, plain in _ESCAPES.items()}
    return f'{name}="{value.translate(escapes)}"\n'
