"""Explain a validation error of jsonschema in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.problem import (
    EXCERPT_CHARS,
    POINTER_CHARS,
    Problem,
    described,
    did_you_mean,
    literal,
    nearest,
    printable,
    shortened,
    step,
)

if TYPE_CHECKING:
    from jsonschema import ValidationError

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
