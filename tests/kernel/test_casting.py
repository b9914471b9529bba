"""Who is given a session's prompts."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import Failure
from supervisor.kernel.prompts import Able, cast_of
from supervisor.policy.roles import Roles
from tests.kernel.agents import agent
from tests.kernel.conftest import daemon_with
from tests.principals import ADA


async def test_an_agent_that_went_while_others_were_looked_at_is_given_nothing(
    tmp_path: Path,
) -> None:
    """The session was bound to it for good."""
    async with daemon_with(tmp_path, agent(tmp_path, "b")) as daemon:
        fleet = daemon.fleet
        assert isinstance(cast_of("s", Roles(), Able(["a"]), fleet, ADA), Failure)
        assert cast_of("s", Roles(), Able(["a", "b"]), fleet, ADA) == ("b", Roles(agent="b"))
