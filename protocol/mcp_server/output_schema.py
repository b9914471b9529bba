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
from protocol.problem import literal, quoted

_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[67]|draft/20(19-09|20-12))/schema#?")

_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLE = (
    *("additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedProperties", "unevaluatedItems", "items"),
)
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"),
    "maxContains",
)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*_LISTS, "required", "enum"), (list,)),
    **dict.fromkeys((*_MAPS, "dependencies", "dependentRequired"), (dict,)),
    **dict.fromkeys(_SINGLE, (dict, bool)),
    **dict.fromkeys(_NUMBERS, (int, float)),
    **dict.fromkeys(("uniqueItems", "nullable"), (bool,)),
    **dict.fromkeys(("$id", "$anchor", "$ref", "$dynamicRef", "format", "pattern"), (str,)),
    "type": (str, list),
}
_OLDER_KINDS = {**_KINDS, "items": (dict, bool, list)}
"""Before 2020-12, a tuple's."""
_BELOW: dict[str, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys(_LISTS, list),
    **dict.fromkeys(_MAPS, dict.values),
    **dict.fromkeys(_SINGLE, lambda value: value if isinstance(value, list) else (value,)),
}
"""The schemas in the value of a keyword."""


def output_fault(output: Any) -> str | None:
    """Return why clients cannot compile an output schema, as a clause; None if they can."""
    dialect = output.get("$schema", _NEWEST) if isinstance(output, dict) else ""
    if not isinstance(dialect, str) or (dialect and not _DIALECTS.fullmatch(dialect)):
        return f"is of the dialect {literal(dialect)}"
    kinds = _KINDS if "2020" in dialect else _OLDER_KINDS
    references, names = [], {""}
    left: list[Any] = [output]
    while left:
        schema = left.pop()
        if isinstance(schema, bool) and schema is not output:
            continue
        fault = _fault(schema, kinds, left)
        if fault is not None:
            return fault
        references.append(schema.get("$ref", "#"))
        names |= {schema.get("$id", ""), schema.get("$anchor", "")}
    for one in references:
        if not _leads(output, one, names):
            return f"has the reference {quoted(one)}, which leads nowhere"
    return None


def _fault(schema: Any, kinds: dict[str, tuple[type, ...]], left: list[Any]) -> str | None:
    """Return what is wrong with a schema; those below it are added to what is `left`."""
    if not isinstance(schema, dict):
        return f"is, or has in it, {literal(schema)} where a schema belongs"
    for keyword, value in schema.items():
        if keyword not in kinds:
            continue
        if type(value) not in kinds[keyword] or not _GOOD.get(keyword, _any)(value):
            return f"has the {keyword} {literal(value)}"
        if keyword in _BELOW:
            left += _BELOW[keyword](value)
    if "nullable" in schema and "type" not in schema:
        return "has a nullable without a type"
    return None


def _any(_: Any) -> bool:
    return True


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


_GOOD: dict[str, Callable[[Any], bool]] = {
    "enum": bool,
    "type": lambda value: all(
        one in TYPES for one in ([value] if isinstance(value, str) else value)
    ),
    "pattern": _is_pattern,
    "patternProperties": lambda value: all(map(_is_pattern, value)),
}
