"""Start, stop, crash, reload, invoke, cancel in any order: the promises hold after each step.

With fake lives and a virtual clock; `tests/system/test_promises.py` does the same with processes.

New orders are tried in every run: what fails here fails again with the operations that hypothesis
prints (`play` takes them as they are), and pytest-randomly's seed makes a whole run repeatable.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.fleet_orders import OPS, Op, run

LISTS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 3), st.integers(0, 59)), max_size=80
)
STEPS = 1500


def play(ops: list[Op]) -> None:
    with tempfile.TemporaryDirectory() as folder, structlog.testing.capture_logs() as logged:
        run(Path(folder), ops)
    assert "supervision failed" not in [line["event"] for line in logged]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LISTS)
def test_any_order_of_operations_keeps_the_promises(ops: list[Op]) -> None:
    play(ops)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_life_keeps_the_promises(seed: int) -> None:
    draw = random.Random(seed)
    play([(draw.choice(OPS), draw.randrange(4), draw.randrange(60)) for _ in range(STEPS)])
