"""Recognise JSON Schemas that use common keywords only, and use them correctly.

Checking a schema against its meta-schema costs 700 us and the import of jsonschema 100 ms; this
costs 3 us. It decides one way only: a schema that it does not recognise may still be valid, and
jsonschema is asked. A test holds it to the meta-schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def is_plain(schema: Any) -> bool:
    """Tell whether a schema is certainly valid and has no references."""
    if schema is True or schema is False:
        return True
    if type(schema) is not dict:
        return False
    for keyword, value in schema.items():
        recognise = _KEYWORDS.get(keyword)
        if recognise is None or not recognise(value):
            return False
    return True


def _schemas(value: Any) -> bool:
    return type(value) is dict and all(map(is_plain, value.values()))


def _text(value: Any) -> bool:
    return type(value) is str


def _number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _array(value: Any) -> bool:
    return type(value) is list


def _names(value: Any) -> bool:
    return type(value) is list and all(map(_text, value)) and len(set(value)) == len(value)


def _type(value: Any) -> bool:
    if type(value) is str:
        return value in TYPES
    return _names(value) and len(value) > 0 and all(one in TYPES for one in value)


def _alternatives(value: Any) -> bool:
    return type(value) is list and len(value) > 0 and all(map(is_plain, value))


def _anything(_value: Any) -> bool:
    return True


_KEYWORDS: dict[str, Callable[[Any], bool]] = {
    "type": _type,
    "properties": _schemas,
    "required": _names,
    "additionalProperties": is_plain,
    "items": is_plain,
    "anyOf": _alternatives,
    "enum": _array,
    "const": _anything,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "title": _text,
    "$comment": _text,
    "description": _text,
    "default": _anything,
    "examples": _array,
}
