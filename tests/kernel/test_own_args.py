"""Args of the daemon's own ops that fit plainly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.args_schema import ArgsSchema
from supervisor.kernel.operations import INPUTS
from supervisor.kernel.operations.op import plainly_fits

SCHEMAS = {op: ArgsSchema(schema) for op, schema in INPUTS.items()}
ODD: list[Any] = [None, True, -1, 0, 1, 1.0, 0.5, 10**12, "", "a", "ready", [], ["a"], [1], {}]


@st.composite
def args_of_ops(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    op = draw(st.sampled_from(sorted(INPUTS)))
    names = st.sampled_from([*INPUTS[op]["properties"], "other"])
    said = [word for one in INPUTS[op]["properties"].values() for word in one.get("enum", ())]
    values = st.sampled_from([*ODD, *said, said, "x" * 8193]) | st.lists(st.sampled_from(ODD))
    return op, draw(st.dictionaries(names, values))


@given(args_of_ops())
def test_what_fits_plainly_fits_the_schema(asked: tuple[str, dict[str, Any]]) -> None:
    op, args = asked
    if plainly_fits(INPUTS[op], args):
        assert SCHEMAS[op].fault(args) is None


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("status", {"module": "m", "inputs": True}),
        ("wait", {"modules": ["a", "b"], "for": "ready"}),
        ("session.list", {"limit": 5}),
        ("events", {"since": 7, "follow": True, "event": "module:*"}),
    ],
)
def test_usual_args_fit_plainly(op: str, args: dict[str, Any]) -> None:
    assert plainly_fits(INPUTS[op], args)
