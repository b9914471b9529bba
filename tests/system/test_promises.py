"""Start, stop, crash, reload, invoke, cancel, disconnect in any order, with real processes.

Each run draws orders of its own, and none is kept for the next. A failure prints the operations, to
be played by hand (`play`), and the line that has pytest draw them again (`reproduce_failure`).
Examples are not shrunk: with real processes a shorter one may fail for another reason, or not at
all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.system.promise_world import OPS, Op, play, script

LISTS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 11), st.integers(0, 35)),
    min_size=5,
    max_size=40,
)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(LISTS)
def test_any_order_of_operations_keeps_the_promises(ops: list[Op]) -> None:
    note(script(ops))
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder:
        trio.run(play, Path(folder), ops)
