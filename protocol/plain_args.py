"""Accept args by an everyday schema without jsonschema, in a quarter of the time.

A schema that `plain_schema` recognises becomes nested functions. They decide one way only: what
they accept is valid, and of what they do not accept jsonschema says whether it is, and why not. So
each test here may be stricter than the keyword (`enum` and `const` accept no float, since `1.0`
equals `1`, and no array or object), never laxer. A test holds them to jsonschema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Accepts = Callable[[Any], bool]

_COMPARED_BY_TYPE = (str, int, bool, type(None))


def accepting(schema: Any) -> Accepts:
    """Return a function that accepts only what is valid; the schema must be plain."""
    if isinstance(schema, bool):
        return _anything if schema else nothing
    tests = [make(schema[keyword]) for keyword, make in _TESTS.items() if keyword in schema]
    if _OF_OBJECTS & schema.keys():
        tests.append(_members(schema))
    if not tests:
        return _anything
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:  # noqa: PLR2004 - a type and one more; a loop costs as much as both
        first, second = tests
        return lambda value: first(value) and second(value)

    def accepts(value: Any) -> bool:
        for test in tests:  # noqa: SIM110 - `all` of a generator takes twice as long
            if not test(value):
                return False
        return True

    return accepts


def _anything(_value: Any) -> bool:
    return True


def nothing(_value: Any) -> bool:
    """Accept nothing."""
    return False


def _type(name: str) -> Accepts:
    types = _TYPES[name]
    if len(types) == 1:
        (only,) = types
        return lambda value: type(value) is only
    return lambda value: type(value) in types


_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),  # a float without a fraction is one too: jsonschema is asked
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def _members(schema: dict[str, Any]) -> Accepts:
    required = tuple(schema.get("required", ()))
    others = accepting(schema.get("additionalProperties", True))
    known = {name: accepting(one) for name, one in schema.get("properties", {}).items()}

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name in required:
            if name not in value:
                return False
        for name, member in value.items():  # noqa: SIM110 - as above
            if not known.get(name, others)(member):
                return False
        return True

    return accepts


def _items(schema: Any) -> Accepts:
    each = accepting(schema)
    return lambda value: not isinstance(value, list) or all(map(each, value))


def _listed(members: list[Any]) -> Accepts:
    found = {(type(one), one) for one in members if type(one) in _COMPARED_BY_TYPE}
    return lambda value: type(value) in _COMPARED_BY_TYPE and (type(value), value) in found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


_TESTS: dict[str, Callable[[Any], Accepts]] = {
    "type": _type,
    "enum": _listed,
    "const": lambda constant: _listed([constant]),
    "minimum": lambda bound: lambda value: not _is_number(value) or value >= bound,
    "maximum": lambda bound: lambda value: not _is_number(value) or value <= bound,
    "exclusiveMinimum": lambda bound: lambda value: not _is_number(value) or value > bound,
    "exclusiveMaximum": lambda bound: lambda value: not _is_number(value) or value < bound,
    "minLength": lambda bound: lambda value: not isinstance(value, str) or len(value) >= bound,
    "maxLength": lambda bound: lambda value: not isinstance(value, str) or len(value) <= bound,
    "minItems": lambda bound: lambda value: not isinstance(value, list) or len(value) >= bound,
    "maxItems": lambda bound: lambda value: not isinstance(value, list) or len(value) <= bound,
    "items": _items,
}
"""From what stands beside a keyword to its test; those of an object are tested together."""

_OF_OBJECTS = frozenset({"properties", "required", "additionalProperties"})
