"""The args of the daemon's own ops: their schema has the last word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.args_schema import ArgsSchema
from protocol.errors import Failure
from supervisor.kernel.operations import OPS, inputs

SCHEMAS = {op: ArgsSchema(schema) for op, schema in inputs().items()}
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 1.0, 0.5, 10**12, 2**70, 1e300, "", "a", "ready", "http\n"),
    *([], ["a"], [1], {}, {"agent": None}, {"agent": "a", "tools": ["b"]}, {"x": 1}),
]


@st.composite
def args_of_ops(draw: st.DrawFn) -> tuple[str, Any]:
    op = draw(st.sampled_from(sorted(OPS)))
    schema = inputs()[op]
    said = [word for one in schema["properties"].values() for word in one.get("enum", ())]
    values = st.sampled_from([*ODD, *said, said, "x" * 8193]) | st.lists(st.sampled_from(ODD))
    needed = dict.fromkeys(schema["required"], values)
    free = {name: values for name in [*schema["properties"], "other"] if name not in needed}
    args = draw(st.fixed_dictionaries(needed, optional=free) | st.sampled_from(ODD))
    return op, args


@given(args_of_ops())
def test_args_are_taken_if_their_schema_allows_them(asked: tuple[str, Any]) -> None:
    op, args = asked
    taken = OPS[op].check(args)
    assert isinstance(taken, Failure) == (SCHEMAS[op].fault(args) is not None)


@pytest.mark.parametrize("args", [{"since_ts": 10**400}, {"since_ts": -(10**310)}])
def test_an_integer_that_no_float_can_hold_is_a_wrong_argument(args: dict[str, Any]) -> None:
    refusal = OPS["events"].check(args)
    assert isinstance(refusal, Failure)
    assert "since_ts" in refusal.message


@pytest.mark.parametrize("op", sorted(OPS))
def test_what_may_be_left_out_has_the_default_of_the_schema(op: str) -> None:
    schema = inputs()[op]
    known: dict[str, Any] = {"string": "a", "integer": 0, "object": {}}
    args = {name: known[schema["properties"][name]["type"]] for name in schema["required"]}
    defaults = {
        name: one["default"] for name, one in schema["properties"].items() if "default" in one
    }
    taken = OPS[op].check(args)
    assert not isinstance(taken, Failure)
    assert taken == OPS[op].check(defaults | args)
