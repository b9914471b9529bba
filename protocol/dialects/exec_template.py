"""The templates of the dialect `exec`: an argument, or all of stdin, with holes for args.

    {name}    the arg of that name, which has to be there
    {name?}   the same; if it is absent, the whole argument is left out, and so is the whole stdin
    {name:json}, {name:json?}   as JSON text: a string in quotes, a list as one argument
    {{ }}     a brace

Only the name of one of the op's `inputs` makes a hole: `{print $1}` is text as it stands. Values
are filled in literally, and no shell sees them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from protocol.frames import encode
from protocol.problem import did_you_mean, quoted

ARGUMENT_BYTES = (128 << 10) - 1
"""The longest argument that Linux starts a program with (MAX_ARG_STRLEN, its NUL included)."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)(?::json)?\??")


class Hole(msgspec.Struct, frozen=True):
    name: str
    optional: bool = False
    as_json: bool = False


class Template(msgspec.Struct, frozen=True):
    text: str
    parts: tuple[str | Hole, ...]

    @property
    def only(self) -> Hole | None:
        part = self.parts[0] if len(self.parts) == 1 else None
        return part if isinstance(part, Hole) else None


class UnfitArgError(Exception):
    """An arg that cannot be filled in: its name, and a clause with the arg as its subject."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name, words)
        self.name = name
        self.words = words


def read(text: str, names: Collection[str]) -> Template:
    """Read a template for an op whose inputs have these names."""
    parts: list[str | Hole] = []
    literal, at = "", 0
    for found in _TOKEN.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        name = found[1]
        if name is None:
            literal += found[0][0]
        elif (hole := _hole(name, names)) is not None:
            parts += [literal, hole] if literal else [hole]
            literal = ""
        else:
            literal += found[0]
    literal += text[at:]
    parts += [literal] if literal else []
    return Template(text, tuple(parts))


def _hole(word: str, names: Collection[str]) -> Hole | None:
    if word in names:
        return Hole(word)
    short = word.removesuffix("?")
    name = short if short in names else short.removesuffix(":json")
    if name not in names:
        return None
    return Hole(name, optional=short != word, as_json=name != short)


class NoHole(NamedTuple):
    pointer: str
    """The template's pointer within the op."""
    written: str
    meant: str
    """`; did you mean ...?`, if the word resembles the name of an input."""

    @property
    def is_slip(self) -> bool:
        """Whether the word is surely a misspelt hole."""
        return bool(self.meant) or self.written.endswith("?}")


def no_holes(op: Mapping[str, Any], names: Collection[str]) -> Iterator[NoHole]:
    """Yield the words of an op's templates that look like holes; the op may have any shape."""
    args = op.get("args")
    places = enumerate(args) if isinstance(args, list) else ()
    for pointer, template in (
        *((f"/args/{at}", one) for at, one in places),
        ("/stdin", op.get("stdin")),
    ):
        for found in _TOKEN.finditer(template) if isinstance(template, str) else ():
            word = found[1]
            if word is not None and (slip := _WORD.fullmatch(word)):
                name = slip[1]
                if _hole(word, names) is None:
                    yield NoHole(pointer, found[0], did_you_mean(name, names))


def input_names(schema: Any) -> frozenset[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def arguments(template: Template, args: Mapping[str, Any], *, options: bool) -> tuple[str, ...]:
    """Fill in the template of one argument: none, one, or one for each element of a list.

    Unless `options`, no value makes an argument that begins with `-`. Raises `UnfitArgError`.
    """
    only = template.only
    if only is not None and not only.as_json and isinstance(args.get(only.name), list):
        filled = tuple(_filled_in(only.name, one) for one in args[only.name])
    elif any(_is_left_out(part, args) for part in template.parts):
        return ()
    else:
        filled = (_text(template, args),)
    for one in filled:
        name = _first_name(template)
        if one.startswith("-") and not template.text.startswith("-") and not options:
            words = (
                f"makes the argument {quoted(one)}, which the program would take for an option; "
                'the descriptor allows that behind "--", in "--x={...}", or with "options": true'
            )
            raise UnfitArgError(name, words)
        if len(one.encode(errors="surrogatepass")) > ARGUMENT_BYTES:
            words = (
                f"makes an argument of more than {ARGUMENT_BYTES} bytes, with which Linux starts "
                'no program; a long value has to go in through "stdin"'
            )
            raise UnfitArgError(name, words)
    return filled


def stdin(template: Template, args: Mapping[str, Any]) -> bytes:
    """Fill in the template of stdin. Raises `UnfitArgError`."""
    if any(_is_left_out(part, args) for part in template.parts):
        return b""
    return _text(template, args).encode(errors="surrogatepass")


def _text(template: Template, args: Mapping[str, Any]) -> str:
    return "".join(
        part if isinstance(part, str) else _filled(part, args) for part in template.parts
    )


def _filled(hole: Hole, args: Mapping[str, Any]) -> str:
    if hole.name not in args:
        raise UnfitArgError(hole.name, "is missing, and the command cannot be run without it")
    return _filled_in(hole.name, args[hole.name], as_json=hole.as_json)


def _filled_in(name: str, value: Any, *, as_json: bool = False) -> str:
    text = value if isinstance(value, str) and not as_json else encode(value).decode()
    if "\0" in text:
        raise UnfitArgError(name, "holds a NUL, which is passed to no command")
    return text


def _is_left_out(part: str | Hole, args: Mapping[str, Any]) -> bool:
    return isinstance(part, Hole) and part.optional and part.name not in args


def _first_name(template: Template) -> str:
    return next((part.name for part in template.parts if isinstance(part, Hole)), "")
