"""How much work it is to hold args to a schema: keywords that meet values, some 60 ns each.

At each depth of the args, the keywords of the schema that may meet one value there are counted with
references and combinators expanded, times the values there. The count is never much too low, and is
bounded itself. What a schema says nothing of is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from protocol.problem import Problem

MOST_WORK = 800_000
"""For the args of one request: some 50 ms."""

EXPLAINED = 500
"""With so little work, all faults may be looked for, which takes 60 us for one."""

ARGS_DEPTH = 256
"""Of as much of the args as a schema describes."""

STEPS = 20_000
"""Of the count for one schema, some 2 us each; beyond it, the work counts as too much."""

BACKTRACKING = 10_000
"""The work of a pattern where the engine may backtrack."""

STRING_CHARS = 64
"""A string counts once more for so many characters, if there are patterns."""

# The library compares numbers as decimals of any length, which takes 1e-300 and 0.5 80 us.
_FLOAT, _ODD_FLOAT = 5, 300
_LARGE = 1e15
LARGE_BITS = 64
_COMPARED = 8
"""The work of `enum`, `const` and `multipleOf` beside that of bounds."""

BESIDE = frozenset(
    ("allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then")
)
"""Hold schemas of the same value; the others here, of its members."""
ONE_OF = frozenset(
    ("additionalItems", "additionalProperties", "items", "prefixItems", "properties")
)
"""At most one of these meets a member; of the following, each may."""
EACH = frozenset(
    ("contains", "patternProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
)
MAPS = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)
HOLDING = BESIDE | ONE_OF | EACH | MAPS
REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

_META: dict[str, Any] = {"required": [0] * 500}
_META |= {"items": _META, "additionalProperties": _META}
"""As much work as the meta-schema, which may be referred to."""

Parts = tuple[int, list[Any], list[Any], list[Any]]
"""The work of a schema's own keywords, the schemas beside it, one of its members, and each."""


class ArgsWork:
    def __init__(self, schema: Any, *, backtracks: bool) -> None:
        """Count for a valid schema; `backtracks` tells whether its patterns may."""
        self.has_unions = False
        """Whether args so deep as those before have met an `anyOf` or `oneOf`."""
        self._schema = schema
        self._of_pattern = BACKTRACKING if backtracks else 1
        self._has_patterns = self._is_unique = False
        self._each: list[int] = []
        """The most work of one value, by depth."""
        self._counted: dict[tuple[int, int], int] = {}
        self._parts: dict[int, Parts] = {}
        self._all = [one for one in _nodes(schema) if isinstance(one, dict)]
        ids = (one.get(name) for one in self._all[1:] for name in ("$id", "id"))
        self._has_ids = any(isinstance(one, str) for one in ids)
        self._each += [self._of_one(0), self._of_one(1)]
        self._few = EXPLAINED // max(1, sum(self._each))

    def of(self, args: Any) -> int | Problem:
        """Return the work, or a problem if that is too much."""
        if self._is_small(args):
            return EXPLAINED
        layer, work = [args], 0
        for depth in range(ARGS_DEPTH + 2):
            if depth == len(self._each):
                self._each.append(self._of_one(depth))
            if not layer or not self._each[depth]:
                return work
            types = {*map(type, layer)}
            work += self._each[depth] * self._values(layer, types)
            if work > MOST_WORK:
                return Problem("", "would take too much work to be validated by this schema")
            inner: list[Any] = []
            if dict in types:
                dicts = _of_type(dict, layer)
                inner += chain.from_iterable(map(dict.values, dicts))
                if self._has_patterns:
                    inner += chain.from_iterable(dicts)
            if list in types:
                inner += chain.from_iterable(_of_type(list, layer))
            layer = inner
        return Problem("", "is nested too deeply to be validated")

    def _is_small(self, args: Any) -> bool:
        """Tell, in a tenth of the time, that the work of usual args is at most `EXPLAINED`."""
        if type(args) is not dict or len(args) > self._few:
            return False
        for one in chain(args, args.values()) if self._has_patterns else args.values():
            if type(one) is str:
                if len(one) > STRING_CHARS and self._has_patterns:
                    return False
            elif type(one) is int:
                if one.bit_length() > LARGE_BITS:
                    return False
            elif type(one) is not bool and one is not None:
                return False
        return True

    def _values(self, layer: list[Any], types: set[type]) -> int:
        """Return for how many values those of one depth count."""
        count = len(layer)
        if self._has_patterns and str in types:
            count += sum(map(len, _of_type(str, layer))) // STRING_CHARS
        if float in types:
            floats = [*map(abs, _of_type(float, layer))]
            is_odd = max(floats) > _LARGE or min(filter(None, floats), default=1) < 1 / _LARGE
            count += len(floats) * (_ODD_FLOAT if is_odd else _FLOAT)
        ints = _of_type(int, layer) if int in types else []
        bits = max(map(int.bit_length, ints), default=0)
        if bits > LARGE_BITS:
            # `uniqueItems` compares each of them with each.
            count += bits // 2 * len(ints) * (len(ints) if self._is_unique else 1)
        return count

    def _of_one(self, depth: int) -> int:
        try:
            return self._of(self._schema, depth)
        except RecursionError:
            return MOST_WORK + 1

    def _of(self, schema: Any, depth: int) -> int:
        """Return the work of one value that is so deep in what a schema is for."""
        if type(schema) is not dict:
            return 0
        key = id(schema), depth
        work = self._counted.get(key)
        if work is None:
            if len(self._counted) > STEPS:
                return MOST_WORK + 1
            self._counted[key] = 0  # for a reference back to the same value
            own, beside, one_of, each = self._parts.get(key[0]) or self._take_apart(schema)
            work = sum(self._of(one, depth) for one in beside)
            if depth:
                work += max((self._of(one, depth - 1) for one in one_of), default=0)
                work += sum(self._of(one, depth - 1) for one in each)
            else:
                work += own
            self._counted[key] = work = min(work, MOST_WORK + 1)
        return work

    def _take_apart(self, schema: dict[str, Any]) -> Parts:
        own, beside, one_of, each = len(schema), list[Any](), list[Any](), list[Any]()
        for keyword, value in schema.items():
            if keyword in REFERENCES:
                beside += self._targets(value)
            elif keyword in HOLDING:
                inner = value if isinstance(value, list) else [value]
                inner = [*value.values()] if keyword in MAPS else inner
                if keyword in BESIDE:
                    beside += inner
                elif keyword in ONE_OF:
                    one_of += inner
                elif keyword in EACH:
                    each += inner
                if keyword == "patternProperties":
                    each += [{"pattern": one} for one in value]
            elif keyword == "pattern":
                own += self._of_pattern
            elif keyword == "uniqueItems":
                each.append({"const": None})
            elif keyword in ("enum", "const", "multipleOf"):
                members = value if keyword == "enum" else [value]
                own += sum(min(_COMPARED * one, one + 64) for one in map(_compared, members))
            else:
                own += _compared(value)
        if "unevaluatedItems" in schema or "unevaluatedProperties" in schema:
            beside *= 4  # to find out what they evaluate
        self.has_unions |= "anyOf" in schema or "oneOf" in schema
        self._is_unique |= "uniqueItems" in schema
        self._has_patterns |= not schema.keys().isdisjoint(
            ("pattern", "patternProperties", "propertyNames")
        )
        self._parts[id(schema)] = parts = own, beside, one_of, each
        return parts

    def _targets(self, reference: str) -> list[Any]:
        """Return the schema that a reference leads to; where that is hard to say, all there are."""
        found = self._schema
        for name in reference.split("/")[1:]:
            key = name.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        is_pointer = reference == "#" or reference.startswith("#/")
        if is_pointer and found is not None and not self._has_ids:
            return [found]
        return [*self._all, _META]


def _of_type(wanted: type, values: list[Any]) -> list[Any]:
    return [*filter(wanted.__instancecheck__, values)]


def _nodes(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, dict | list):
            left += one.values() if isinstance(one, dict) else one


def _compared(value: Any) -> int:
    """Return the work of a comparison with a value in a schema; a string has a hash."""
    work = 0
    for one in _nodes(value):
        if isinstance(one, float):
            work += _FLOAT if one == 0 or 1 / _LARGE < abs(one) < _LARGE else 2 * _ODD_FLOAT
        elif isinstance(one, int):
            work += max(1, (one.bit_length() - LARGE_BITS) // 2)
        else:
            work += not isinstance(one, str)
    return work
