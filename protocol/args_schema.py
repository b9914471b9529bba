"""The ops of a module with the JSON Schemas of their args: checked, and applied.

jsonschema is imported for a schema that is too unusual to be recognised as valid without it: a
daemon of modules without `inputs` never pays for it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from protocol.plain_args import (
    MOST_VALUES,
    Accepts,
    NotPlainError,
    has_few_parts,
    is_plain,
    nothing,
    plain_acceptance,
)
from protocol.problem import Problem, step


class OpSchema(msgspec.Struct, frozen=True):
    json: bytes
    vouched: bool
    """Whether the schema is known to be usable; if not, that is checked first."""


class ArgsValidator:
    """Accept the args of each op before they reach the module, where the check is fast.

    The schemas in `inputs` (one per op) must have passed `ops_problems`, or `op_schemas` if they
    are not `vouched` for. Args that are not accepted may still be valid, or too large to check here
    (`most_values`): `schema_check` decides, in another process, since nothing bounds its time.
    """

    def __init__(
        self, inputs: dict[str, Any], *, vouched: bool = True, most_values: int = MOST_VALUES
    ) -> None:
        self._inputs = inputs
        self._vouched = vouched
        self._most_values = most_values
        self.accepting: dict[str, Accepts] = {}
        """The `acceptance` of each op asked for before."""
        self._encoded: dict[str, OpSchema] = {}

    @property
    def ops(self) -> Collection[str]:
        """The ops in the order of their declaration."""
        return self._inputs.keys()

    def knows(self, op: str) -> bool:
        return op in self._inputs

    def accepts(self, op: str, args: Any) -> bool:
        """Tell whether the op is known and the args are certainly valid for it."""
        accepts = self.accepting.get(op) or self.acceptance(op)
        try:
            return accepts(args)
        except RecursionError:
            return False

    def acceptance(self, op: str) -> Accepts:
        """Return the function that accepts the args of an op.

        It raises `RecursionError` for args that are nested too deeply, which counts as a no;
        `acceptance` itself raises nothing.
        """
        if op not in self._inputs:
            return nothing
        accepts = self.accepting[op] = self._acceptance(self._inputs[op])
        return accepts

    def schema(self, op: str) -> OpSchema:
        """Return the schema of an op; raises `KeyError` for an unknown one."""
        encoded = self._encoded.get(op)
        if encoded is None:
            encoded = OpSchema(msgspec.json.encode(self._inputs[op]), self._vouched)
            self._encoded[op] = encoded
        return encoded

    def _acceptance(self, schema: Any) -> Accepts:
        if not has_few_parts(schema) or not (self._vouched or _is_plain(schema)):
            return nothing
        try:
            return plain_acceptance(schema, self._most_values)
        except (NotPlainError, RecursionError):
            return nothing


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
    """Return the `inputs` that a module described, if they are an object of what may be schemas.

    Module Protocol v1 does not say what `inputs` looks like, so anything else than a non-empty
    object of ops and schemas is no fault: args are then not validated. Whether the schemas are
    usable takes long to find out, and is checked when args are.
    """
    if not isinstance(inputs, dict) or not inputs:
        return None
    return inputs if all(isinstance(one, dict | bool) for one in inputs.values()) else None


def _is_plain(schema: Any) -> bool:
    try:
        return is_plain(schema)
    except RecursionError:
        return False
