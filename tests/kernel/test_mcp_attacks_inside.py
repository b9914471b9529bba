"""Of `test_mcp_attacks.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.test_mcp_attacks import attacker
from tests.principals import ADA

AT_ONCE = 50
GONE = Stopped(Reason.CLIENT, "the client cancelled the request")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_of_a_thousand_calls_that_are_cancelled_no_answer_is_taken_for_anothers(
    era: str, tmp_path: Path
) -> None:
    made = attacker(tmp_path, era, concurrency=AT_ONCE + 1)
    async with daemon_with(tmp_path, made) as daemon:
        for _ in range(1000 // AT_ONCE):
            askers = [Asker() for _ in range(AT_ONCE)]
            begun = [
                daemon.requests.invoke(ADA, "server", {"op": "late"}, asker) for asker in askers
            ]
            for invocation, asker in zip(begun, askers, strict=True):
                await asker.heard(1)  # so it has been written
                assert invocation is not None
                invocation.cancel(GONE)
                assert (await asker.document())["error"]["code"] == "cancelled"
            # Of one that nobody cancels the answer is its own, whichever come with it.
            kept = Asker()
            invocation = daemon.requests.invoke(ADA, "server", {"op": "late"}, kept)
            assert invocation is not None
            await kept.heard(1)
            assert (await ask(daemon, "server", "well").document())["ok"]
            assert (await kept.document())["result"] == {"id": invocation.request.request_id}
        module = daemon.fleet.modules["server"]
        assert (module.counters.late_lines, module.restarts) == (1000, 0)
