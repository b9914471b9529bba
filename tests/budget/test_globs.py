"""What it costs to hold many modules against the longest globs that somebody may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.policy.principals import ALL_SCOPES, GLOB_CHARS, GLOBS, Principal
from tests import factories
from tests.budget.test_largest_args import LONG_GLOBS, asked
from tests.kernel.conftest import daemon_with

AGENTS = 1000

LINES = 50_000
"""Some 2 ms: a fifth of what it takes to hold all agents against all globs."""

LONG_LOOK = "t", "*m*m*m*m0", *LONG_GLOBS[2:]
NOT_SEEN = "t", *(f"m{'0' * GLOB_CHARS}"[: GLOB_CHARS - number] for number in range(GLOBS - 1))


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("op", "args", "globs"),
    [
        ("session.prompt", {"session_id": "s", "content": "x"}, LONG_LOOK),
        ("session.new", {"roles": {"agent": "t"}}, NOT_SEEN),
    ],
    ids=["the only one", "those that could be named"],
)
async def test_no_step_is_long_in_which_agents_are_looked_for(
    op: str,
    args: dict[str, Any],
    globs: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    principal = Principal("ada", "test", ALL_SCOPES, globs)
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    made = [
        factories.descriptor(
            tmp_path, ["true"], name=name, kind=kind, supervision={"start": "lazy"}
        )
        for name, kind in (("t", "tool"), *((f"m{number}", "agent") for number in range(AGENTS)))
    ]
    async with daemon_with(tmp_path, *made) as daemon:
        daemon.sessions.new(principal, "s")
        assert await asked(daemon, principal, op, args) <= LINES
