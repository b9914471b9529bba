"""What it costs to hold many modules against the longest globs that somebody may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Failure
from supervisor.kernel.casting import cast_of
from supervisor.policy.roles import Roles
from tests import factories
from tests.budget.lines import Lines
from tests.budget.test_largest_args import MOST_LINES, NARROWED
from tests.kernel.conftest import daemon_with

AGENTS = 1000


@pytest.mark.fault(29)
async def test_the_only_agent_of_a_thousand_is_looked_for_in_little_time(tmp_path: Path) -> None:
    made = [
        factories.descriptor(
            tmp_path, ["true"], name=f"m{number}", kind="agent", supervision={"start": "lazy"}
        )
        for number in range(AGENTS)
    ]
    lines = Lines()
    async with daemon_with(tmp_path, *made) as daemon:
        fleet = daemon.requests._fleet
        with lines.counting():
            found = cast_of("s", Roles(), fleet, NARROWED)
    assert isinstance(found, Failure)
    assert lines.run <= MOST_LINES
