"""A daemon with modules whose processes are fake, and its counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from supervisor.kernel.kernel import Kernel
from tests import factories
from tests.budget.fake_process import FakeProcess, without_processes
from tests.budget.turns import Turns, taking_turns
from tests.kernel.conftest import daemon_with
from tests.system import forked

HOUR_S = 3600
CALM = {"health": {"interval_s": HOUR_S}, "timeouts": {"invoke_s": HOUR_S}, "concurrency": 64}

SLACK = 10
"""What begins and ends a measurement: the test's own task, the first and the last round. Less than
one for each of the fewest rounds."""


def assert_within(counts: Counter[str], rounds: int, each: Mapping[str, int]) -> None:
    """Hold what was counted to a budget that says what each round may cost."""
    bounds = {name: rounds * cost + SLACK for name, cost in each.items()}
    over = {name: counts[name] for name, bound in bounds.items() if counts[name] > bound}
    assert not over, f"{rounds} rounds took {dict(counts)}, and may take {bounds}"


class Bench:
    """A daemon with one module `m`, and who takes turns with it."""

    def __init__(
        self, daemon: Kernel, turns: Turns, module: FakeProcess, patch: pytest.MonkeyPatch
    ) -> None:
        self.daemon = daemon
        self.turns = turns
        self.module = module
        self._patch = patch

    def counting(self) -> AbstractContextManager[Counter[str]]:
        return self.turns.counting(self._patch)


@pytest.fixture(autouse=True)
def _childless() -> None:
    forked.end()  # a look for orphans would be at this child, too


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    # What depends on the clock is not counted: how many commits a thread tells the loop of, and
    # whether a client's requests take so long that its neighbours come in between.
    monkeypatch.setattr("supervisor.kernel.store.writer.Writer._report", lambda *_, **__: None)
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", math.inf)
    monkeypatch.setattr("supervisor.runtime.turns.ALL_S", math.inf)
    with taking_turns() as turns:
        processes = without_processes(turns, monkeypatch)
        made = factories.descriptor(tmp_path, ["true"], supervision=CALM)
        async with daemon_with(tmp_path, made) as daemon:
            yield Bench(daemon, turns, processes["m"], monkeypatch)
