"""The ops of a module and the JSON Schema of each one's args, checked and used.

jsonschema is imported when a schema is first compiled, or is too unusual to be recognised as valid
without it: a daemon of modules without `inputs` never pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from protocol.plain_args import Accepts, accepting, nothing
from protocol.plain_schema import is_plain
from protocol.problem import Problem, kind, step

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

MAX_ERRORS = 20  # to choose the most useful from; an array of a million faults has a million


class ArgsValidator:
    """Validate the args of each op before the module is bothered.

    `inputs` maps each op to a schema, and must have passed `ops_problems`.
    """

    def __init__(self, inputs: dict[str, Any]) -> None:
        self._inputs = inputs
        self._compiled: dict[str, Draft202012Validator] = {}
        self._accepting: dict[str, Accepts] = {}

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the ops in the order in which they were declared."""
        return tuple(self._inputs)

    def knows(self, op: str) -> bool:
        """Tell whether the module has this op."""
        return op in self._inputs

    def accepts(self, op: str, args: Any) -> bool:
        """Tell whether the op is known and the args are certainly valid for it.

        Where it is not certain, `problem` has the last word.
        """
        accepts = self._accepting.get(op)
        if accepts is None:
            if op not in self._inputs:
                return False
            accepts = self._accepting_of(op)
        try:
            return accepts(args)
        except RecursionError:
            return False

    def is_cheap(self, op: str) -> bool:
        """Tell whether `problem` looks at each part of the args once.

        What else there is, such as `pattern`, `$ref` and `allOf`, may take exponential time.
        Raises `KeyError` for an op that is not known.
        """
        return self._accepting_of(op) is not nothing

    def problem(self, op: str, args: Any) -> Problem | None:
        """Return what is wrong with the args, the pointer starting from them, or None.

        Raises `KeyError` for an op that is not known.
        """
        schema = self._inputs[op]
        if schema is True or schema == {}:
            return None
        validator = self._compiled.get(op)
        if validator is None:
            validator = self._compiled[op] = _compile(schema)
        try:
            errors = validator.iter_errors(args)
            first = next(errors, None)
            return None if first is None else _most_useful(first, errors)
        except RecursionError:
            return Problem("", "is nested too deeply to be validated")
        except OverflowError:
            # `multipleOf` with a fraction divides as doubles do; an integer may be of any size.
            return Problem("", "holds a number too large to be validated by `multipleOf`")

    def _accepting_of(self, op: str) -> Accepts:
        accepts = self._accepting.get(op)
        if accepts is None:
            schema = self._inputs[op]
            accepts = self._accepting[op] = accepting(schema) if _is_plain(schema) else nothing
        return accepts


def ops_problems(ops: dict[str, Any], at: str) -> list[Problem]:
    """Return what is wrong with the schemas of a map of ops; `at` is the map's JSON pointer.

    Refuse what jsonschema would trip over later: an invalid schema, a reference that leads
    nowhere, and every reference that would have to be fetched.
    """
    found: list[Problem] = []
    for op, schema in ops.items():
        where = step(at, op)
        if not _is_plain(schema):
            # Not at the top: see the module docstring.
            from protocol.schema_check import schema_problems  # noqa: PLC0415

            found += schema_problems(schema, where)
    return found


def op_schemas(inputs: object) -> dict[str, Any] | None:
    """Return the `inputs` a module described, if args can be validated with them."""
    return inputs if isinstance(inputs, dict) and why_unusable(inputs) is None else None


def why_unusable(inputs: object) -> Problem | None:
    """Return why `op_schemas` gives None, for a log.

    Module Protocol v1 does not say what `inputs` looks like, so anything else than a non-empty
    object of ops and schemas is no fault: it only means that args are not validated.
    """
    if not isinstance(inputs, dict):
        return Problem("", f"is {kind(inputs)}, not an object of ops and JSON Schemas")
    if not inputs:
        return Problem("", "is empty, it names no op")
    return min(ops_problems(inputs, ""), default=None)


def _is_plain(schema: Any) -> bool:
    try:
        return is_plain(schema)
    except RecursionError:
        return False


def _compile(schema: Any) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415

    # A `$schema` would make jsonschema change the draft halfway, at a reference to the root.
    if isinstance(schema, dict):
        schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    # A registry of our own, even an empty one, keeps jsonschema from fetching references.
    return Draft202012Validator(schema, registry=EMPTY_REGISTRY)


def _most_useful(first: ValidationError, others: Iterator[ValidationError]) -> Problem:
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    from protocol.schema_words import explained  # noqa: PLC0415

    best = best_match([first, *islice(others, MAX_ERRORS)])
    return explained(best or first)
