"""Explain wrong args, by any JSON Schema that has passed `args_schema.ops_problems`.

Nothing bounds the time that this takes: `pattern` backtracks, `$ref` and `allOf` may check one
value again and again, `uniqueItems` compares each with each. So it belongs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from referencing.jsonschema import EMPTY_REGISTRY

from protocol.problem import Problem
from protocol.schema_words import explained

MAX_ERRORS = 20  # to choose the most useful from; an array of a million faults has a million


class CompiledSchema:
    def __init__(self, schema: Any) -> None:
        # A `$schema` would make jsonschema change the draft halfway, at a reference to the root.
        if isinstance(schema, dict):
            schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        # A registry of our own, even an empty one, keeps jsonschema from fetching references.
        self._validator = Draft202012Validator(schema, registry=EMPTY_REGISTRY)

    def problem(self, args: Any) -> Problem | None:
        """Return what is wrong with the args, the pointer starting from them, or None."""
        try:
            errors = self._validator.iter_errors(args)
            first = next(errors, None)
            return None if first is None else _most_useful(first, errors)
        except RecursionError:
            return Problem("", "is nested too deeply to be validated")
        except OverflowError:
            # `multipleOf` with a fraction divides as doubles do; an integer may be of any size.
            return Problem("", "holds a number too large to be validated by `multipleOf`")


def _most_useful(first: ValidationError, others: Iterator[ValidationError]) -> Problem:
    best = best_match([first, *islice(others, MAX_ERRORS)])
    return explained(best or first)
