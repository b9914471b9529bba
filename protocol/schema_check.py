"""The faults that jsonschema finds in a schema and in args, in few words.

A schema (2020-12) must be valid against the meta-schema, and each reference in it must lead to a
schema inside the same document (or to the meta-schema itself): nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from protocol.plain_args import TYPES
from protocol.problem import (
    EXCERPT_CHARS,
    POINTER_CHARS,
    Problem,
    described,
    did_you_mean,
    kind,
    literal,
    nearest,
    printable,
    quoted,
    shortened,
    step,
)

_META = Draft202012Validator(
    Draft202012Validator.META_SCHEMA,
    registry=EMPTY_REGISTRY,
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)
_META_ID = "https://json-schema.org/draft/2020-12/schema"
_TOO_DEEP = "is nested too deeply to be checked"

# Where schemas stand inside a schema (2020-12 core and applicator vocabularies).
_ONE = frozenset(
    (
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_REFERENCES = ("$ref", "$dynamicRef")


def schema_problems(schema: Any, at: str) -> list[Problem]:
    try:
        found = _meta_problems(schema, at)
        return found or _Walk().problems(schema, at)
    except RecursionError:
        return [Problem(at, _TOO_DEEP)]


def _meta_problems(schema: Any, at: str) -> list[Problem]:
    if not isinstance(schema, dict | bool):
        return [
            Problem(
                at, f"is {kind(schema)}, must be the JSON Schema of an op: an object, true or false"
            )
        ]
    found: dict[str, Problem] = {}
    for error in _META.iter_errors(schema):
        problem = explained(error, at)
        if error.absolute_path and error.absolute_path[-1] == "type":
            hint = did_you_mean(error.instance, TYPES) if isinstance(error.instance, str) else ""
            words = f"is not a JSON Schema type; there are {', '.join(TYPES)}{hint}"
            problem = Problem(problem.pointer, words)
        elif error.validator == "format" and error.validator_value == "regex":
            words = f"{quoted(error.instance)} is not a regular expression that can be used here"
            problem = Problem(problem.pointer, words)
        found.setdefault(problem.pointer, problem)
    return list(found.values())


class _Walk:
    """One pass over a valid schema, its subschemas, and the targets of its references."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._targets: list[tuple[str, Any, Any]] = []

    def problems(self, schema: Any, at: str) -> list[Problem]:
        try:
            resolver = EMPTY_REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
            found = list(self._schema(schema, at, resolver))
            # A reference may lead outside of the known keywords, to a value not checked yet.
            while self._targets:
                pointer, target, resolver = self._targets.pop()
                if id(target) not in self._seen:
                    faults = _meta_problems(target, "")
                    found += [Problem(pointer, f"does not lead to a schema: {f}") for f in faults]
                    found += [] if faults else self._schema(target, pointer, resolver)
        except ValueError as error:  # from urllib, about a malformed $id or $ref
            return [Problem(at, f"holds an identifier that is not a URI: {error}")]
        return found

    def _schema(self, schema: Any, at: str, resolver: Any) -> Iterator[Problem]:
        if not isinstance(schema, dict):
            return
        self._seen.add(id(schema))
        resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
        for keyword, value in schema.items():
            where = step(at, keyword)
            if keyword == "$schema" and len(self._seen) > 1 and value != _META_ID:
                # The whole schema may name any draft, and is read as 2020-12 all the same.
                yield Problem(where, f"is {quoted(value)}, must be left out inside of a schema")
            elif keyword in _REFERENCES:
                yield from self._reference(value, where, resolver)
            elif keyword in _ONE:
                yield from self._schema(value, where, resolver)
            elif keyword in _LISTS:
                for index, member in enumerate(value):
                    yield from self._schema(member, step(where, index), resolver)
            elif keyword in _MAPS:
                for name, member in value.items():
                    yield from self._schema(member, step(where, name), resolver)

    def _reference(self, reference: str, at: str, resolver: Any) -> Iterator[Problem]:
        if reference == _META_ID:
            return  # jsonschema carries it along
        try:
            resolved = resolver.lookup(reference)
        except (Unresolvable, LookupError, TypeError, ValueError):
            # referencing trips over pointers into what is no object: "#/type/x".
            yield Problem(at, _unresolved(reference))
        else:
            self._targets.append((at, resolved.contents, resolved.resolver))


def _unresolved(reference: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return f"{quoted(reference)} is elsewhere, and nothing is fetched; put it under $defs"
    return f"{quoted(reference)} leads to nothing in this schema"


MAX_ERRORS = 20  # to choose the most useful from; an array of a million faults has a million


class CompiledSchema:
    """A schema that has passed `args_schema.ops_problems`, to explain wrong args by.

    Nothing bounds the time that this takes: `pattern` backtracks, `$ref` and `allOf` may check one
    value again and again, `uniqueItems` compares each with each. So it belongs in a process of its
    own.
    """

    def __init__(self, schema: Any) -> None:
        # A `$schema` would make jsonschema change the draft halfway, at a reference to the root.
        if isinstance(schema, dict):
            schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        # A registry of our own, even an empty one, keeps jsonschema from fetching references.
        self._validator = Draft202012Validator(schema, registry=EMPTY_REGISTRY)

    def problem(self, args: Any) -> Problem | None:
        """Return what is wrong with the args, the pointer starting from them, or None."""
        try:
            errors = self._validator.iter_errors(args)
            first = next(errors, None)
            if first is None:
                return None
            best = best_match([first, *islice(errors, MAX_ERRORS)])
            return explained(best or first)
        except RecursionError:
            return Problem("", "is nested too deeply to be validated")
        except OverflowError:
            # `multipleOf` with a fraction divides as doubles do; an integer may be of any size.
            return Problem("", "holds a number too large to be validated by `multipleOf`")


MESSAGE_CHARS = 240


def explained(error: ValidationError, at: str = "") -> Problem:
    """Return the place and the words of an error; short however large the value is."""
    pointer = at
    for key in error.absolute_path:
        pointer = step(pointer, key)
    child, words = _words(error)
    if child is not None:
        pointer = step(pointer, child)
    # Only a machine makes a pointer this long; nobody reads it.
    return Problem(shortened(pointer, POINTER_CHARS), printable(words, MESSAGE_CHARS))


def _words(error: ValidationError) -> tuple[str | None, str]:
    keyword: Any = error.validator
    value: Any = error.instance
    wanted: Any = error.validator_value
    schema: Any = error.schema
    match keyword:
        case None:
            # Of the schema `false` jsonschema tells the value, but not always the whole path.
            return None, f"{described(value)} is not allowed"
        case "type":
            return None, f"{described(value)} is not {_types(wanted)}"
        case "enum":
            hint = did_you_mean(value, _texts(wanted)) if isinstance(value, str) else ""
            return None, f"{described(value)} is not one of {_list(wanted)}{hint}"
        case "const":
            return None, f"{described(value)} is not {literal(wanted)}"
        case "required":
            missing = next(name for name in wanted if name not in value)
            known = schema.get("properties", {})
            given = nearest(missing, [name for name in value if name not in known])
            hint = "" if given is None else f"; it has {literal(given)}, is that meant?"
            return missing, f"is missing{hint}"
        case "additionalProperties" if not schema.get("patternProperties"):
            known = schema.get("properties", {})
            unknown = next(name for name in value if name not in known)
            return unknown, f"is not known{did_you_mean(unknown, known)}"
    # jsonschema's own words start with the whole value; ours with its beginning.
    return None, described(value) + error.message.removeprefix(repr(value))


def _types(wanted: Any) -> str:
    names = [wanted] if isinstance(wanted, str) else wanted
    return " or ".join(_ARTICLES.get(name, name) for name in names)


def _list(wanted: list[Any]) -> str:
    return shortened(", ".join(map(literal, wanted[:20])), EXCERPT_CHARS * 2)


def _texts(values: list[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


_ARTICLES = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
