"""Plan Schema v1 (`schemas/plan.v1.json`): what a session is for, a `goal` and its `inputs`.

Other fields may stand beside the two and are kept as they are.
"""

from __future__ import annotations

from typing import Any

from protocol.problem import Problem
from protocol.shape import ANY, Fields, Map, text

PLAN = Fields(
    {
        "goal": text("a string that says what is to be reached", empty=True),
        "inputs": Map("an object, such as {}", ANY, ANY),
    },
    required=("goal", "inputs"),
)


def plan_problems(value: Any, at: str = "") -> list[Problem]:
    found: list[Problem] = []
    PLAN(value, at, found)
    return sorted(found)
