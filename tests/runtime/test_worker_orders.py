"""Crash, renew, grow, idle, stop, invoke in any order: no call is lost, no process too many.

What fails here fails again with the operations that hypothesis prints (`play` takes them).
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.worker_orders import HARMLESS, OPS, Op, run

STEPS = 800


def supervisions() -> st.SearchStrategy[dict[str, Any]]:
    instances = st.fixed_dictionaries(
        {"min": st.integers(0, 3), "max": st.integers(3, 4)},
        optional={
            "idle_stop_s": st.sampled_from([1, 30]),
            "max_requests": st.integers(1, 4),
            "max_age_s": st.sampled_from([5, 60]),
        },
    )
    return st.fixed_dictionaries(
        {"instances": instances | instances.map(lambda one: {**one, "min": 0, "max": 1})},
        optional={
            "start": st.just("lazy"),
            "concurrency": st.integers(1, 3),
            "queue": st.sampled_from([0, 3, 1024]),
            "intensity": st.integers(0, 3),
            "restart": st.sampled_from(["transient", "temporary"]),
            "never_on": st.just([78]),
        },
    )


def lists(names: list[str]) -> st.SearchStrategy[list[Op]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 59)), max_size=80)


def play(supervision: dict[str, Any], ops: list[Op]) -> None:
    with tempfile.TemporaryDirectory() as folder, structlog.testing.capture_logs() as logged:
        run(Path(folder), supervision, ops)
    assert "supervision failed" not in [line["event"] for line in logged]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(supervisions(), lists(OPS))
def test_any_order_of_operations_keeps_the_promises(
    supervision: dict[str, Any], ops: list[Op]
) -> None:
    play(supervision, ops)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(supervisions(), lists(HARMLESS))
def test_growth_renewal_and_idleness_fail_no_call(
    supervision: dict[str, Any], ops: list[Op]
) -> None:
    supervision["queue"] = 1024
    play(supervision, ops)


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_keeps_the_promises(seed: int) -> None:
    draw = random.Random(seed)
    instances = {"min": seed % 3, "max": 3, "idle_stop_s": 30, "max_requests": 5, "max_age_s": 60}
    ops = [(draw.choice(OPS), draw.randrange(60)) for _ in range(STEPS)]
    play({"instances": instances, "concurrency": 1 + seed % 2}, ops)


def test_a_stop_in_the_middle_of_a_renewal_begins_no_other_one() -> None:
    instances = {"min": 3, "max": 4, "idle_stop_s": 30, "max_requests": 1}
    ops = [("invoke", 5), ("get_ready", 41), ("pass_time", 59), ("crash", 30), ("crash", 59)]
    play({"instances": instances, "never_on": [78]}, [*ops, ("start", 47)])
