"""Check that a value is a JSON Schema (2020-12) that can be used without any network.

It must be valid against the meta-schema, and each reference in it must lead to a schema inside
the same document (or to the meta-schema itself): nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from protocol.plain_schema import TYPES
from protocol.problem import Problem, did_you_mean, kind, quoted, step
from protocol.schema_words import explained

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
