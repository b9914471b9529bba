"""A module's form for a person: whether it is valid, and the values of an answer.

The form is MCP's of an elicitation: an object of texts, numbers, yes or no, and choices, and
nothing nested. So no schema of a module is ever evaluated; each field is one of these few kinds,
checked in a few steps. A person types text: it is read as the type of its field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from protocol.problem import described, did_you_mean, quoted

FIELDS = 64
FORM_BYTES = 64 << 10
"""A larger one is no form for a person."""

TYPES = ("string", "number", "integer", "boolean", "array")

_YES_NO = {"true": True, "yes": True, "false": False, "no": False}


def form_problem(form: Mapping[str, Any]) -> str | None:
    """Say why a module's schema is no form, or None."""
    fields = form.get("properties")
    if form.get("type") != "object" or not isinstance(fields, dict):
        return 'a form has "type" "object" and "properties"'
    required = form.get("required", [])
    if not isinstance(required, list) or not all(one in fields for one in map(str, required)):
        return '"required" of a form names fields of it'
    if len(fields) > FIELDS:
        return f"a form has at most {FIELDS} fields"
    try:
        if len(msgspec.json.encode(form)) > FORM_BYTES:
            return f"a form takes at most {FORM_BYTES} bytes"
    except (RecursionError, UnicodeError, TypeError):
        return "the form cannot be passed on"
    for name, field in fields.items():
        if not isinstance(field, dict) or field.get("type") not in TYPES:
            return f"the field {quoted(name)} of a form has one of the types {', '.join(TYPES)}"
        if field["type"] == "array" and choices_of(field) is None:
            return f"the field {quoted(name)} is a list of choices and has none"
    return None


def filled(form: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the values of an answer, or its fault; the form is a valid one.

    Texts are read as their fields' types, and defaults stand in for what is left out.
    """
    fields, content = form["properties"], {}
    for name, value in given.items():
        field = fields.get(name)
        if field is None:
            near = did_you_mean(name, fields) or f"; there are {', '.join(map(quoted, fields))}"
            return f"the form has no field {quoted(name)}{near}"
        found = _read(field, value)
        if isinstance(found, _Wrong):
            return f"{quoted(name)} is {described(value)}, it must be {found.wanted}"
        content[name] = found
    for name, field in fields.items():
        if name not in content and "default" in field:
            found = _read(field, field["default"])
            if not isinstance(found, _Wrong):
                content[name] = found
    missing = [name for name in map(str, form.get("required", [])) if name not in content]
    if missing:
        return f"the form wants {', '.join(map(quoted, missing))} too"
    return content


def choices_of(field: Mapping[str, Any]) -> list[str] | None:
    holder = field.get("items") if field.get("type") == "array" else field
    if not isinstance(holder, dict):
        return None
    titled = holder.get("oneOf", holder.get("anyOf"))
    plain = holder.get("enum")
    if plain is None and isinstance(titled, list):
        plain = [one.get("const") for one in titled if isinstance(one, dict)]
    if not isinstance(plain, list) or not plain:
        return None
    return [one for one in plain if isinstance(one, str)]


class _Wrong(msgspec.Struct, frozen=True):
    wanted: str


def _read(field: Mapping[str, Any], value: Any) -> Any:
    return _READERS[field["type"]](field, value)


def _text(field: Mapping[str, Any], value: Any) -> Any:
    choices = choices_of(field)
    if choices is not None:
        return value if value in choices else _Wrong(f"one of {', '.join(map(quoted, choices))}")
    if not isinstance(value, str):
        return _Wrong("a text")
    least, most = field.get("minLength"), field.get("maxLength")
    if isinstance(least, int) and len(value) < least:
        return _Wrong(f"a text of at least {least} characters")
    if isinstance(most, int) and len(value) > most:
        return _Wrong(f"a text of at most {most} characters")
    wanted, is_one = _FORMATS.get(str(field.get("format")), ("", lambda _: True))
    try:
        return value if is_one(value) else _Wrong(wanted)
    except ValueError:
        return _Wrong(wanted)


def _number(field: Mapping[str, Any], value: Any) -> Any:
    whole = field["type"] == "integer"
    wrong = _Wrong("a whole number" if whole else "a number")
    if isinstance(value, str):
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            return wrong
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return wrong
    if whole and value != int(value):
        return wrong
    least, most = field.get("minimum"), field.get("maximum")
    if isinstance(least, int | float) and value < least:
        return _Wrong(f"at least {least}")
    if isinstance(most, int | float) and value > most:
        return _Wrong(f"at most {most}")
    return int(value) if whole else value


def _are_among(value: list[Any], known: list[str]) -> bool:
    if len(value) > len(known):
        return False
    among = frozenset(known)  # thousands are not to be looked for among thousands
    return all(isinstance(one, str) and one in among for one in value)


def _yes_no(field: Mapping[str, Any], value: Any) -> Any:
    del field
    if isinstance(value, str):
        value = _YES_NO.get(value.strip().casefold())
    return value if isinstance(value, bool) else _Wrong("yes or no")


def _choices(field: Mapping[str, Any], value: Any) -> Any:
    known = choices_of(field) or []
    if isinstance(value, str) and len(value) <= FORM_BYTES:
        value = [one.strip() for one in value.split(",") if one.strip()]
    wrong = _Wrong(f"some of {', '.join(map(quoted, known))}")
    if not isinstance(value, list) or not _are_among(value, known):
        return wrong
    least, most = field.get("minItems"), field.get("maxItems")
    if isinstance(least, int) and len(value) < least:
        return _Wrong(f"at least {least} of {', '.join(map(quoted, known))}")
    if isinstance(most, int) and len(value) > most:
        return _Wrong(f"at most {most} of {', '.join(map(quoted, known))}")
    return value


_READERS: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "string": _text,
    "number": _number,
    "integer": _number,
    "boolean": _yes_no,
    "array": _choices,
}

_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "email": ("an address such as a@example.org", lambda one: "@" in one.strip("@")),
    "uri": ("a URI such as https://example.org", lambda one: urlsplit(one).scheme),
    "date": ("a date such as 2026-11-22", date.fromisoformat),
    "date-time": ("a time such as 2026-11-22T17:10:00Z", datetime.fromisoformat),
}
