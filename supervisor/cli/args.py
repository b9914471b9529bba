"""Read the args of an invocation: JSON, a file or stdin; or words behind an op.

    dice=3d6         the text, unless the op's schema says that `dice` is something else
    count=3          a number, true or false, null: what the schema has in the place of text
    tag=a tag=b      an array, one element for each; `tag=a` is an array of one
    at={"x":1}       an object, or a whole array, is written as JSON
    count:=3         JSON, whatever the schema says

What the whole is worth is for the daemon to say: it checks all args, however they were given.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from protocol.json_document import read_document, read_value
from protocol.problem import quoted

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


MAX_DEPTH = 16
"""Alternatives and references of a schema are followed no further."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "integer": (int, "a whole number, such as 3"),
    "number": ((int, float), "a number, such as 3 or 0.5"),
    "boolean": (bool, "true or false"),
    "null": (type(None), "null"),
    "object": (dict, 'a JSON object, such as {"key":"value"}'),
    "array": (list, "a JSON array, such as [1,2]"),
}


class Word(NamedTuple):
    """A word; `value` is None unless the word is JSON."""

    key: str
    text: str
    is_json: bool
    value: Any = None


def read_words(words: tuple[str, ...]) -> list[Word]:
    """Raises `click.UsageError` for a malformed word."""
    return [_word(one) for one in words]


def _word(text: str) -> Word:
    key, equals, rest = text.partition("=")
    if text.lstrip().startswith(("{", "[")):
        raise click.UsageError(f"{quoted(text)}: pass args as one JSON object with --args")
    if not equals or not key.strip(":"):
        raise click.UsageError(f"{quoted(text)} is neither key=value nor key:=json")
    if not key.endswith(":"):
        return Word(key, rest, is_json=False)
    value, problems = read_value(rest.encode("utf-8", "surrogateescape"))
    if problems:
        why = "; ".join(str(one).removesuffix(_HALF_WRITTEN) for one in problems)
        hint = f"; for a text, write {key[:-1]}={rest}" if rest.strip() else ""
        if rest.startswith("@"):
            hint = "; --args @FILE reads all args from a file, as one JSON object"
        raise click.UsageError(f"{quoted(text)}: {why}{hint}")
    return Word(key[:-1], rest, is_json=True, value=value)


def args_of(words: Sequence[Word], schema: Any) -> dict[str, Any]:
    """Return the args by the op's schema, if it is known; raises `click.UsageError`."""
    schemas = properties_of(schema)
    given: dict[str, list[Word]] = {}
    for word in words:
        given.setdefault(word.key, []).append(word)
    return {key: _value(key, said, schemas.get(key), schema) for key, said in given.items()}


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the schema of each arg that the op's schema names."""
    found: dict[str, Any] = {}
    for one in _parts(schema, schema):
        properties = one.get("properties")
        if isinstance(properties, dict):
            found |= properties
    return found


def _value(key: str, said: list[Word], schema: Any, root: Any) -> Any:
    of = {} if not isinstance(schema, dict) else schema
    kinds = list(dict.fromkeys(_kinds(of, root)))
    if "array" in kinds and "string" not in kinds:
        if len(said) == 1 and not said[0].is_json and said[0].text.lstrip().startswith("["):
            return _one(said[0], ["array"])
        if not (len(said) == 1 and said[0].is_json):
            elements = list(_kinds(_items(of, root), root))
            return [_one(word, elements) for word in said]
    if len(said) > 1:
        raise click.UsageError(f"{key} is given {len(said)} times, and takes one value")
    return _one(said[0], kinds)


def _one(word: Word, kinds: list[str]) -> Any:
    if word.is_json:
        return word.value
    if not kinds or "string" in kinds:
        return word.text
    value, problems = read_value(word.text.encode("utf-8", "surrogateescape"))
    wanted = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    for types, _ in wanted:
        is_true_or_false = isinstance(value, bool) and types is not bool
        if not problems and isinstance(value, types) and not is_true_or_false:
            return value
    words = ", or ".join(words for _, words in wanted)
    raise click.UsageError(f"{word.key}={word.text}: {word.key} must be {words}")


def _kinds(schema: Any, root: Any) -> Iterator[str]:
    """Yield the types that a value may have, as far as the schema names them."""
    for one in _parts(schema, root):
        named = one.get("type")
        if named is not None:
            yield from [named] if isinstance(named, str) else map(str, named)
            continue
        values = one.get("enum", [one["const"]] if "const" in one else [])
        for value in values if isinstance(values, list) else []:
            yield next(
                (kind for kind, (types, _) in _ORDERED if isinstance(value, types)), "string"
            )


# True is an int of Python's.
_ORDERED = sorted(_KINDS.items(), key=lambda one: one[0] != "boolean")


def _items(schema: Any, root: Any) -> Any:
    return next((one["items"] for one in _parts(schema, root) if "items" in one), {})


def _parts(schema: Any, root: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a schema, its alternatives, and what it refers to in the same document."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    yield schema
    for keyword in _ALTERNATIVES:
        for one in schema.get(keyword) or ():
            yield from _parts(one, root, depth + 1)
    target = _target(schema.get("$ref"), root)
    if target is not None:
        yield from _parts(target, root, depth + 1)


def _target(reference: Any, root: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        if not isinstance(found, dict):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found
