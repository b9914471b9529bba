"""Accept args by common schemas without jsonschema, in a quarter of the time, and in bounds.

A schema of common keywords becomes nested functions, which check each part of the args at most
`MOST_BREADTH` times, and at most `MOST_VALUES` values where the schema does not bound their number;
patterns are searched for only as far as `bounded_pattern` has a proof, and for at most `MOST_STEPS`
in all. They decide one way only: accepted args are valid; of others jsonschema says whether they
are, and why not. So each test here may be
stricter than the keyword (`enum` and `const` accept no float, since `1.0` equals `1`, and no array
or object), never laxer. A test holds them to jsonschema.

`is_plain` tells which schemas are certainly valid. Checking one against its meta-schema costs
700 us and the import of jsonschema 100 ms; this costs 3 us. It too decides one way only: a schema
that it does not recognise may still be valid, and jsonschema is asked. A test holds it to the
meta-schema.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from protocol.bounded_pattern import bounded

MOST_STEPS = 200_000
"""Of all patterns together, per check: some 2 ms."""

MOST_VALUES = 5_000
"""Values of arrays and open objects per check: some 3 ms. A value counts once per schema that may
be applied to it, and a member of an object twice."""

MOST_BREADTH = 16
"""How many alternative schemas may be applied to one value."""

MOST_PARTS = 5_000
"""Of the schema of one op: it is prepared on the event loop, when it is first needed."""

MOST_PATTERNS = 16
"""Of the schema of one op: counting the steps of a pattern takes time too."""

Accepts = Callable[[Any], bool]

_COMPARED_BY_TYPE = (str, int, bool, type(None))


class NotPlainError(Exception):
    """The schema has a keyword that is not checked here."""


def plain_acceptance(schema: Any, most_values: int = MOST_VALUES) -> Accepts:
    """Return a function that accepts only valid values; the schema itself must be valid.

    It accepts nothing with more than `most_values` values. Raises `NotPlainError`, or
    `RecursionError` for a schema that is too deep.
    """
    if _breadth(schema) > MOST_BREADTH:
        raise NotPlainError
    budget = _Budget(most_values)
    accepts = _accepting(schema, budget)
    return budget.begun(accepts) if budget.is_spent else accepts


def has_few_parts(schema: Any) -> bool:
    """Tell whether a schema has at most `MOST_PARTS` parts; stops counting there."""
    left, count = [schema], 0
    while left and count <= MOST_PARTS:
        one = left.pop()
        if isinstance(one, dict | list):
            count += len(one)
            left += one.values() if isinstance(one, dict) else one
    return count <= MOST_PARTS


class _Budget:
    """The remaining cost of a check by one schema, and the part that is being prepared."""

    def __init__(self, most_values: int) -> None:
        self.is_spent = False
        """Whether any check costs more than its schema's parts."""
        self.repeats = False
        """Whether the part being prepared is applied to any number of values."""
        self._most_values = most_values
        self._patterns = 0
        self._steps_left = self._values_left = 0

    def begun(self, accepts: Accepts) -> Accepts:
        """Return the same check, with the full budget at each start."""

        def begin(value: Any) -> bool:
            self._steps_left, self._values_left = MOST_STEPS, self._most_values
            return accepts(value)

        return begin

    def paying(self) -> Callable[[int], bool]:
        """Return a function that spends values, and tells whether there were as many."""
        self.is_spent = True
        return self._pay

    def _pay(self, values: int) -> bool:
        self._values_left -= values
        return self._values_left >= 0

    def repeated(self, schema: Any) -> Accepts:
        """Return the check of a schema for any number of values, for which its caller pays."""
        around, self.repeats = self.repeats, True
        accepts = _accepting(schema, self)
        self.repeats = around
        return accepts

    def searching(self, pattern: str) -> Accepts:
        """Return the check that a pattern is found in a string, while steps are left."""
        self.is_spent = True
        self._patterns += 1
        proof = bounded(pattern) if self._patterns <= MOST_PATTERNS else None
        if proof is None:
            raise NotPlainError
        most, steps, search = proof.chars, proof.steps, proof.compiled.search

        def accepts(value: Any) -> bool:
            if not isinstance(value, str):
                return True
            self._steps_left -= steps
            return len(value) <= most and self._steps_left >= 0 and search(value) is not None

        return accepts


def _breadth(schema: Any) -> int:
    """Return how many schemas may be applied to one value."""
    if not isinstance(schema, dict):
        return 1
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[keyword] for keyword in ("items", "additionalProperties") if keyword in schema]
    return max(map(_breadth, inner), default=1) + sum(map(_breadth, schema.get("anyOf", ())))


def _asked(schema: Any) -> int:
    """Return how many schemas may be applied to a value itself, without its members."""
    return 1 + sum(map(_asked, schema.get("anyOf", ()))) if isinstance(schema, dict) else 1


def _accepting(schema: Any, budget: _Budget) -> Accepts:
    if isinstance(schema, bool):
        return _anything if schema else nothing
    tests = _tests(schema, budget)
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


def _tests(schema: dict[str, Any], budget: _Budget) -> list[Accepts]:
    if not schema.keys() <= _KNOWN:
        raise NotPlainError
    tests = [make(schema[keyword]) for keyword, make in _TESTS.items() if keyword in schema]
    if "pattern" in schema:
        tests.append(budget.searching(schema["pattern"]))
    if "items" in schema:
        tests.append(_items(schema["items"], budget))
    if _OF_OBJECTS & schema.keys():
        tests.append(_members(schema, budget))
    if "anyOf" in schema:
        tests.append(_any_of([_accepting(one, budget) for one in schema["anyOf"]]))
    return tests


def _anything(_value: Any) -> bool:
    return True


def nothing(_value: Any) -> bool:
    return False


def _type(names: str | list[str]) -> Accepts:
    if isinstance(names, str):
        names = [names]
    types = tuple(dict.fromkeys(one for name in names for one in _TYPES[name]))
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
TYPES = tuple(_TYPES)


def _members(schema: dict[str, Any], budget: _Budget) -> Accepts:
    required = tuple(schema.get("required", ()))
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties", True)
    known = {name: _accepting(one, budget) for name, one in properties.items()}
    others = budget.repeated(additional)
    # A closed object ends at its first member too many; of an open one only those known matter.
    most = len(known) if others is _anything else sys.maxsize

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name in required:
            if name not in value:
                return False
        if len(value) > most:
            value = {name: value[name] for name in known if name in value}
        for name, member in value.items():  # noqa: SIM110 - as above
            if not known.get(name, others)(member):
                return False
        return True

    if not budget.repeats and (others is _anything or others is nothing):
        return accepts
    each = 2 * max(map(_asked, (additional, *properties.values())))
    pays = budget.paying()
    return lambda value: not isinstance(value, dict) or (pays(each * len(value)) and accepts(value))


def _items(schema: Any, budget: _Budget) -> Accepts:
    accepts, each = budget.repeated(schema), _asked(schema)
    if accepts is _anything:
        return _anything
    pays = budget.paying()
    return lambda value: (
        not isinstance(value, list) or (pays(each * len(value)) and all(map(accepts, value)))
    )


def _any_of(branches: list[Accepts]) -> Accepts:
    def accepts(value: Any) -> bool:
        for one in branches:  # noqa: SIM110 - as above
            if one(value):
                return True
        return False

    return accepts


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
}
"""The test of each keyword, from its value; those of objects are tested together."""

_OF_OBJECTS = frozenset({"properties", "required", "additionalProperties"})

_ANNOTATIONS = frozenset(
    ("$comment", "default", "deprecated", "description", "examples", "format", "title")
)
"""Keywords without effect on validity; `format` has one only on demand."""

_KNOWN = frozenset((*_TESTS, *_OF_OBJECTS, *_ANNOTATIONS, "items", "pattern", "anyOf"))


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


def _names_of_types(value: Any) -> bool:
    if type(value) is str:
        return value in TYPES
    return _names(value) and len(value) > 0 and all(one in TYPES for one in value)


def _alternatives(value: Any) -> bool:
    return type(value) is list and len(value) > 0 and all(map(is_plain, value))


_KEYWORDS: dict[str, Accepts] = {
    "type": _names_of_types,
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
