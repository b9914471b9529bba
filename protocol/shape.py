"""A small vocabulary for the shape of a JSON document, made for saying what is wrong with one.

A rule looks at a value and adds a `Problem` for everything it finds, so that one reading reports
all faults. JSON Schema's meaning of types is kept: `true` is no number, `5.0` is an integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec

from protocol.problem import Problem, described, did_you_mean, kind, quoted, step

MAX_INTEGER = 2**53 - 1  # the largest that every JSON reader keeps exact

_JSON = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Rule:
    want: str
    """Completes the sentence "must be ..."."""
    schema: dict[str, Any]
    """The same rule as JSON Schema, for other programs."""

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        """Add to `found` what is wrong with the value, `at` being its JSON pointer."""
        raise NotImplementedError


class Scalar(Rule):
    """A string, number, boolean or null of certain JSON types for which `holds` is true."""

    def __init__(
        self,
        want: str,
        types: tuple[type, ...],
        holds: Callable[[Any], bool] = lambda _: True,
        schema: dict[str, Any] | None = None,
    ) -> None:
        """Without a `schema` it is that of the types alone."""
        self.want = want
        self._types = types
        self.holds = holds
        self.schema = {"type": [_JSON[one] for one in types]} if schema is None else schema

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        """Check the type first, so that `holds` sees only values of those types."""
        if type(value) not in self._types:
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
        elif not self.holds(value):
            found.append(Problem(at, f"is {described(value)}, must be {self.want}"))


class Choice(Rule):
    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self.want = "one of " + ", ".join(quoted(word) for word in words)
        self.schema = {"enum": list(words)}

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        if not isinstance(value, str):
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
        elif value not in self._words:
            hint = did_you_mean(value, self._words)
            found.append(Problem(at, f"is {quoted(value)}, must be {self.want}{hint}"))


class NumberOrWord(Choice):
    """An integer from 0 to `most`, or one of a few words."""

    def __init__(self, want: str, most: int, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self.want = want
        self._most = most
        number = {"type": "integer", "minimum": 0, "maximum": most}
        self.schema = {"anyOf": [number, {"enum": list(words)}]}

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        if isinstance(value, str):
            super().__call__(value, at, found)
        elif type(value) not in {int, float}:
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
        elif not 0 <= value <= self._most or value != int(value):
            found.append(Problem(at, f"is {described(value)}, must be {self.want}"))


class Array(Rule):
    def __init__(self, want: str, element: Rule, *, least: int = 0) -> None:
        self.want = want
        self._element = element
        self._least = least
        self.schema = {"type": "array", "items": element.schema, "minItems": least}

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        if not isinstance(value, list):
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
            return
        if len(value) < self._least:
            found.append(Problem(at, f"is empty, must be {self.want}"))
        for index, element in enumerate(value):
            self._element(element, f"{at}/{index}", found)


class OneOrMore(Rule):
    """A string, or an array of such."""

    def __init__(self, want: str, element: Scalar) -> None:
        self.want = want
        self._one, self._many = element, Array(want, element)
        self.schema = {"type": ["string", "array"], "minLength": 1, "items": element.schema}

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        (self._one if isinstance(value, str) else self._many)(value, at, found)


class OrNull(Rule):
    """Another rule, or null, which counts as absent."""

    def __init__(self, rule: Rule) -> None:
        self.want = f"{rule.want}, or null"
        self.schema = {"anyOf": [rule.schema, {"type": "null"}]}
        self._rule = rule

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        if value is not None:
            self._rule(value, at, found)


class Map(Rule):
    """An object of like members under keys of the writer's choice."""

    def __init__(self, want: str, key: Rule, member: Rule) -> None:
        self.want = want
        self._key = key
        self.member = member
        self.schema = {
            "type": "object",
            "propertyNames": key.schema,
            "additionalProperties": member.schema,
        }

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        """Check each key and each member, both under the member's pointer."""
        if not isinstance(value, dict):
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
            return
        for key, member in value.items():
            where = step(at, key)
            bad_key: list[Problem] = []
            self._key(key, where, bad_key)
            found += [Problem(where, f"the key {problem.message}") for problem in bad_key]
            self.member(member, where, found)


class Fields(Rule):
    """An object of known fields; when `closed`, of no others."""

    want = "an object"

    def __init__(
        self,
        fields: Mapping[str, Rule],
        *,
        required: tuple[str, ...] = (),
        closed: bool = False,
        elsewhere: Mapping[str, str] = {},
    ) -> None:
        """`elsewhere`: keys that do not belong here, and for each the field that is meant."""
        self.fields = fields
        self._elsewhere = elsewhere
        self._required = required
        self._closed = closed
        self.schema = {
            "type": "object",
            "required": list(required),
            "additionalProperties": not closed,
            "properties": {name: rule.schema for name, rule in fields.items()},
        }

    def __call__(self, value: Any, at: str, found: list[Problem]) -> None:
        if not isinstance(value, dict):
            found.append(Problem(at, f"is {kind(value)}, must be {self.want}"))
            return
        for key, member in value.items():
            rule = self.fields.get(key)
            if rule is not None:
                rule(member, f"{at}/{key}", found)
            elif self._closed:
                hint = did_you_mean(key, self.fields) or f"; known are {', '.join(self.fields)}"
                if key in self._elsewhere:
                    hint = f"; did you mean {self._elsewhere[key]}?"
                found.append(Problem(step(at, key), f"unknown key{hint}"))
        found += [self.missing(key, value, at) for key in self._required if key not in value]

    def missing(self, key: str, value: dict[str, Any], at: str) -> Problem:
        """Say that a field is missing, and which unknown one may have been meant for it."""
        unknown = [name for name in value if name not in self.fields]
        written = next((name for name in unknown if did_you_mean(name, (key,))), None)
        hint = "" if written is None else f"; is {quoted(written)} a misspelling of it?"
        return Problem(f"{at}/{key}", f"is missing, must be {self.fields[key].want}{hint}")


def text(want: str, *, forbidden: str | None = None, empty: bool = False) -> Scalar:
    """`forbidden` is a set of characters."""
    schema: dict[str, Any] = {"type": "string", "minLength": 0 if empty else 1}
    if forbidden is None:
        return Scalar(want, (str,), lambda value: empty or value != "", schema)
    schema["not"] = {"pattern": f"[{forbidden}]"}
    search = re.compile(f"[{forbidden}]").search
    return Scalar(
        want, (str,), lambda value: (empty or value != "") and search(value) is None, schema
    )


def number(
    want: str, holds: Callable[[float], bool], schema: dict[str, Any], *, or_null: bool = False
) -> Scalar:
    """`schema` says the same as `holds`; `or_null` admits null."""
    type_ = schema.get("type", "number")
    if or_null:
        return Scalar(
            f"{want}, or null",
            (int, float, type(None)),
            lambda value: value is None or holds(value),
            {**schema, "type": [type_, "null"]},
        )
    return Scalar(want, (int, float), holds, {**schema, "type": type_})


def integer(least: int, such_as: str, *, or_null: bool = False) -> Scalar:
    def holds(value: float) -> bool:
        return value == int(value) and least <= value <= MAX_INTEGER

    want = f"an integer of at least {least}, such as {such_as}"
    schema = {"type": "integer", "minimum": least, "maximum": MAX_INTEGER}
    return number(want, holds, schema, or_null=or_null)


def seconds(such_as: str, *, or_null: bool = False) -> Scalar:
    want = f"a number of seconds greater than 0, such as {such_as}"
    return number(want, lambda value: value > 0, {"exclusiveMinimum": 0}, or_null=or_null)


ANY = Scalar("any JSON value", (str, bool, int, float, list, dict, type(None)))
ANY_TEXT = text("a string", empty=True)
_TEXT_OR_NULL = Scalar("a string, or null", (str, type(None)))
_FLAG = Scalar("true or false", (bool,))


def object_of(
    kind: type[msgspec.Struct],
    *,
    closed: bool = False,
    required: tuple[str, ...] | None = None,
    without: Collection[str] = (),
    elsewhere: Mapping[str, str] = {},
    **rules: Rule,
) -> Fields:
    """Return the rule of an object that becomes a struct, `without` fields that it gets elsewhere.

    A field's rule is among `rules`, or it is annotated with it, or it is that of its type.
    `required` are the fields without a default, unless it is given.
    """
    known = [one for one in msgspec.structs.fields(kind) if one.name not in without]
    if required is None:
        required = tuple(one.encode_name for one in known if one.required)
    fields = {
        one.encode_name: rules.get(one.name) or _rule_of(one.type, closed=closed) for one in known
    }
    return Fields(fields, required=required, closed=closed, elsewhere=elsewhere)


def _rule_of(hint: Any, *, closed: bool) -> Rule:
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, Rule):
            return one
    if isinstance(hint, UnionType):
        hints = set(get_args(hint)) - {msgspec.Raw, msgspec.UnsetType}
        if hints == {str, type(None)}:
            return _TEXT_OR_NULL
        (hint,) = hints
    of_types = {Any: ANY, bool: _FLAG, str: ANY_TEXT}
    if hint in of_types:
        return of_types[hint]
    if get_origin(hint) is dict:
        return Fields({})
    if get_origin(hint) is Literal:
        return Choice(get_args(hint))
    return Choice(tuple(hint)) if issubclass(hint, StrEnum) else object_of(hint, closed=closed)
