"""Of `test_gates_and_calls.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.factories import actor
from tests.kernel.conftest import GONE, Asker, ask, daemon_with
from tests.kernel.hooks.parties import denied
from tests.kernel.hooks.test_gates_and_calls import ALONE, consulting
from tests.kernel.host_calls import allowing
from tests.principals import ADA


@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_a_gate_that_could_only_wait_for_what_it_gates_has_failed(
    on_failure: str, tmp_path: Path
) -> None:
    gate = consulting(tmp_path, "a", "hang", on_failure=on_failure)
    parties = actor(tmp_path, name="a", supervision=ALONE), actor(tmp_path, name="b"), gate
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        of_a, of_b = Asker(), Asker()
        holder = daemon.requests.invoke(ADA, "a", {"op": "hang"}, of_a)
        assert holder is not None
        other = ask(daemon, "b")  # its gate waits for a, which the holder has
        while not daemon.fleet.modules["a"].queued:
            await trio.lowlevel.checkpoint()
        daemon.requests.invoke(ADA, "b", {"op": "echo"}, of_b, parent=holder)
        response = await of_b.response()
        if on_failure == "open":
            assert response.ok
            [warning] = response.notices
            assert warning.reason == "hook_failed"
            assert "wait for each other" in warning.message
        else:
            details = denied(of_b)
            assert details["hook"] == "g"
            assert "g -> a -> b -> g wait for each other" in details["problem"]
        holder.cancel(GONE)
        assert not (await of_a.response()).ok
        assert not other.responses  # its gate has a now, and waits on
