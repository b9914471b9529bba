"""Whether clients can compile an output schema.

They do when they get a list (ajv, without its meta-schema), or at each call: what cannot be
compiled costs the one or the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from protocol.plain_schema import TYPES
from protocol.problem import described, quoted

_ONE, _LIST, _MAP = (dict, bool), (list,), (dict,)
_IN_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_IN_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_KEYWORDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_IN_LISTS, _LIST),
    **dict.fromkeys(_IN_MAPS, _MAP),
    **dict.fromkeys(("additionalProperties", "not", "if", "then", "else", "contains"), _ONE),
    **dict.fromkeys(("propertyNames", "unevaluatedProperties", "unevaluatedItems"), _ONE),
    **dict.fromkeys((*_COUNTS, *_NUMBERS, "minContains", "maxContains"), (int, float)),
    **dict.fromkeys(
        ("$schema", "$id", "$ref", "$dynamicRef", "$anchor", "pattern", "format"), (str,)
    ),
    **dict.fromkeys(("required", "enum"), _LIST),
    **dict.fromkeys(("dependencies", "dependentRequired"), _MAP),
    **dict.fromkeys(("uniqueItems", "nullable"), (bool,)),
    "items": (dict, bool, list),
    "type": (str, list),
}
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[67]|draft/20(19-09|20-12))/schema#?")


def output_fault(output: Any) -> str | None:
    """Return why clients cannot compile an output schema, as a clause; None if they can."""
    if not isinstance(output, dict):
        return f"is {described(output)}"
    dialect = output.get("$schema", _NEWEST)
    if not isinstance(dialect, str) or not _DIALECTS.fullmatch(dialect):
        return f"is of the dialect {described(dialect)}"
    references, names = [], {""}
    left: list[Any] = [output]
    while left:
        schema = left.pop()
        if isinstance(schema, bool):
            continue
        fault = _fault(schema, may_have_tuples="2020" not in dialect)
        if fault is not None:
            return fault
        left += _below(schema)
        references.append(schema.get("$ref", "#"))
        names |= {schema.get("$id", ""), schema.get("$anchor", "")}
    for one in references:
        if not _leads(output, one, names):
            return f"has the reference {quoted(one)}, which leads nowhere"
    return None


def _below(schema: dict[str, Any]) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _IN_MAPS:
            yield from value.values()
        elif keyword in _IN_LISTS or (keyword == "items" and isinstance(value, list)):
            yield from value
        elif keyword == "items" or _KEYWORDS.get(keyword) is _ONE:
            yield value


def _fault(schema: Any, *, may_have_tuples: bool) -> str | None:
    """Return what is wrong with a schema, whatever is in those below it."""
    if not isinstance(schema, dict):
        return f"has {described(schema)} where a schema belongs"
    for keyword, value in schema.items():
        if keyword in _KEYWORDS and type(value) not in _KEYWORDS[keyword]:
            return f"has the {keyword} {described(value)}"
    types = schema.get("type", [])
    for one in [types] if isinstance(types, str) else types:
        if one not in TYPES:
            return f"has the type {described(one)}"
    for one in (*schema.get("patternProperties", ()), schema.get("pattern", "")):
        if not _is_pattern(one):
            return f"has the pattern {quoted(one)}"
    if schema.get("enum") == [] or ("nullable" in schema and not types):
        return "has an enum without values, or a nullable without a type"
    if isinstance(schema.get("items"), list) and not may_have_tuples:
        return "has items that are an array"
    return None


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


def _is_pattern(pattern: str) -> bool:
    """Tell whether a pattern is one of ECMA-262 with the flag `u`, as far as Python can tell."""
    bare = re.sub(r"\\[pPu]\{\w[^{}]*\}", ".", pattern)
    outside = re.sub(r"\[(?:\\.|[^\]\\])*\]", ".", bare)
    if re.search(r"\\[^dDwWsSbBfnrtvcxupPk\d^$\\.*+?()[\]{}|/-]", bare) or r"\-" in outside:
        return False
    plain = re.sub(r"\{\d+(,\d*)?\}", "*", re.sub(r"\\.", ".", outside))
    if re.search(r"[{}\]]|\(\?(?![:=!<])|[*+?]\+", plain):
        return False
    try:
        names = re.sub(r"\(\?<(?=[=!])", "(?", bare).replace("(?<", "(?P<")
        re.compile(re.sub(r"\\k<(\w+)>", r"(?P=\1)", names))
    except (re.error, RecursionError, OverflowError):
        return False
    return True
