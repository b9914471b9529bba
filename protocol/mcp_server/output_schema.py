"""Whether clients can compile an output schema.

They do when they get a list (ajv, without its meta-schema), or at each call: what cannot be
compiled costs the one or the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from protocol.plain_schema import TYPES
from protocol.problem import described, quoted

_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[67]|draft/20(19-09|20-12))/schema#?")


def output_fault(output: Any) -> str | None:
    """Return why clients cannot compile an output schema, as a clause; None if they can."""
    if not isinstance(output, dict):
        return f"is {described(output)}"
    dialect = output.get("$schema", _NEWEST)
    if not isinstance(dialect, str) or not _DIALECTS.fullmatch(dialect):
        return f"is of the dialect {described(dialect)}"
    walk = _Walk()
    try:
        walk.look(output)
    except _FaultError as fault:
        return str(fault)
    except RecursionError:
        return "is nested too deeply"
    if walk.has_tuples and "2020" in dialect:
        return "has items that are an array"
    for one in walk.references:
        if not _leads(output, one, walk.names):
            return f"has the reference {quoted(one)}, which leads nowhere"
    return None


class _FaultError(Exception):
    """Says what is wrong, as a clause."""


class _Walk:
    """What one schema and those below it hold."""

    def __init__(self) -> None:
        self.references: list[str] = []
        self.names: set[str] = {""}
        self.has_tuples = False

    def look(self, schema: Any) -> None:
        """Look at a schema; raises `_FaultError`."""
        if type(schema) is bool:
            return
        if type(schema) is not dict:
            raise _FaultError(f"has {described(schema)} where a schema belongs")
        for keyword, value in schema.items():
            taken = _KEYWORDS.get(keyword)
            if taken is None:
                continue
            kinds, then = taken
            if type(value) not in kinds:
                raise _FaultError(f"has the {keyword} {described(value)}")
            if then is not None:
                then(self, value)
        if "nullable" in schema and "type" not in schema:
            raise _FaultError("has a nullable without a type")

    def look_at_all(self, schemas: Iterable[Any]) -> None:
        """Look at each of them."""
        for one in schemas:
            self.look(one)

    def look_at_items(self, value: Any) -> None:
        """Look at the schema of items, or at those of a tuple."""
        if type(value) is list:
            self.has_tuples = True
            self.look_at_all(value)
        else:
            self.look(value)


def _check_types(_: _Walk, value: str | list[Any]) -> None:
    for one in [value] if isinstance(value, str) else value:
        if one not in TYPES:
            raise _FaultError(f"has the type {described(one)}")


def _check_enum(_: _Walk, value: list[Any]) -> None:
    if not value:
        raise _FaultError("has an enum without values")


def _check_pattern(_: _Walk, value: str) -> None:
    if not _is_pattern(value):
        raise _FaultError(f"has the pattern {quoted(value)}")


def _check_patterns(walk: _Walk, value: dict[str, Any]) -> None:
    for one in value:
        _check_pattern(walk, one)
    walk.look_at_all(value.values())


_Then = Callable[[_Walk, Any], None]
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"),
    "maxContains",
)
_KEYWORDS: dict[str, tuple[tuple[type, ...], _Then | None]] = {
    **dict.fromkeys(_NUMBERS, ((int, float), None)),
    **dict.fromkeys(("uniqueItems", "nullable"), ((bool,), None)),
    **dict.fromkeys(("format", "$dynamicRef"), ((str,), None)),
    **dict.fromkeys(("dependencies", "dependentRequired"), ((dict,), None)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), ((list,), _Walk.look_at_all)),
    **dict.fromkeys(
        ("properties", "$defs", "definitions", "dependentSchemas"),
        ((dict,), lambda walk, value: walk.look_at_all(value.values())),
    ),
    **dict.fromkeys(("additionalProperties", "not", "if", "then"), ((dict, bool), _Walk.look)),
    **dict.fromkeys(("else", "contains", "propertyNames"), ((dict, bool), _Walk.look)),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), ((dict, bool), _Walk.look)),
    **dict.fromkeys(("$id", "$anchor"), ((str,), lambda walk, value: walk.names.add(value))),
    "$ref": ((str,), lambda walk, value: walk.references.append(value)),
    "items": ((dict, bool, list), _Walk.look_at_items),
    "type": ((str, list), _check_types),
    "required": ((list,), None),
    "enum": ((list,), _check_enum),
    "pattern": ((str,), _check_pattern),
    "patternProperties": ((dict,), _check_patterns),
}
"""What the values of keywords have to be, and what is looked at then."""


def _leads(output: dict[str, Any], reference: str, names: set[str]) -> bool:
    base, _, fragment = reference.partition("#")
    if base not in names or not fragment.startswith("/"):
        return base in names and (not fragment or fragment in names)
    at: Any = output
    for step in unquote(fragment).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, list) and name.isdecimal() and int(name) < len(at):
            at = at[int(name)]
        elif isinstance(at, dict) and name in at:
            at = at[name]
        else:
            return False
    return isinstance(at, dict | bool)


_UNKNOWN = re.compile(
    r"(?:[^\\]|^)(?:\\\\)*\\(?:[^dDwWsSbBfnrtvcxupPk\d^$\\.*+?()\[\]{}|/-]"
    r"|x(?![\da-fA-F]{2})|c(?![a-zA-Z])|u(?![\da-fA-F]{4}|\{)|$)"
)
_ESCAPE = re.compile(r"\\(?:[pP]\{\w[^{}]*\}|u\{[\da-fA-F]+\}|k<\w+>|.)")
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*(?:\]|$)", re.DOTALL)
_OPEN_RANGE = re.compile(r"\\[dDwWsSpP](?:\{[^{}]*\})?-[^\]]")
_TIMES = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP = re.compile(r"\((?:\?(?:[:=!]|<[=!]|<\w+>))?")
_ODD = re.compile(r"[\[\]{}]|(?:^|[(|*+])[*+]|(?:^|[(|])\?|[*+?]\?[*+?]|\?\+")


def _is_pattern(pattern: str) -> bool:
    """Tell whether a pattern looks like one of ECMA-262 with the flag `u`.

    To compile it would tell more, and takes thirty times as long.
    """
    if _UNKNOWN.search(pattern):
        return False
    classes = _CLASS.findall(pattern)
    if any(one[-1] != "]" or _OPEN_RANGE.search(one) for one in classes):
        return False
    outside = _CLASS.sub(".", pattern) if classes else pattern
    plain = _GROUP.sub("(", _TIMES.sub("*", _ESCAPE.sub(".", outside)))
    if r"\-" in outside or _ODD.search(plain):
        return False
    return plain.count("(") == plain.count(")")
