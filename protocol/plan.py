"""Plan Schema v1 (`schemas/plan.v1.json`): what a session is for, a `goal` and its `inputs`.

Other fields may stand beside the two and are kept as they are.
"""

from __future__ import annotations

from typing import Any

from protocol.problem import Problem
from protocol.shape import Fields, Map, Scalar, text

_ANY = Scalar("any JSON value", (str, bool, int, float, list, dict, type(None)))

PLAN = Fields(
    {
        "goal": text("a string that says what is to be reached", empty=True),
        "inputs": Map("an object, such as {}", _ANY, _ANY),
    },
    required=("goal", "inputs"),
)


def plan_problems(value: Any, at: str = "") -> list[Problem]:
    found: list[Problem] = []
    PLAN(value, at, found)
    return sorted(found)
