from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.session import plan_problems
from tests.schemas.local_registry import validator

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["goal", "inputs", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.clause("PV1-5-a")
@given(JSON)
def test_a_plan_is_what_the_schema_says(value: Any) -> None:
    assert (plan_problems(value) == []) == validator("plan.v1").is_valid(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("win", ["is a string, must be an object"]),
        ([], ["is an array, must be an object"]),
        (
            {"inputs": {}},
            ["/goal: is missing, must be a string that says what is to be reached"],
        ),
        (
            {"goal": 5, "inputs": []},
            [
                "/goal: is a number, must be a string that says what is to be reached",
                "/inputs: is an array, must be an object, such as {}",
            ],
        ),
        (
            {"gaol": "x", "inputs": {}},
            [
                (
                    "/goal: is missing, must be a string that says what is to be reached; "
                    'is "gaol" a misspelling of it?'
                )
            ],
        ),
        ({"goal": "", "inputs": {}, "steps": 3}, []),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_with_its_place(value: Any, words: list[str]) -> None:
    assert [str(one) for one in plan_problems(value)] == words


def test_the_place_begins_where_the_plan_stands() -> None:
    (problem,) = plan_problems({"goal": "x"}, "/plan")
    assert problem.pointer == "/plan/inputs"
