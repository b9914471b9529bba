"""Of `test_sampling.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

from supervisor.policy.principals import Principal, Scope
from tests.kernel.conftest import Asker, daemon_with
from tests.kernel.host_calls import allowing, error
from tests.kernel.test_sampling import asking, provider, sample


async def test_who_may_not_use_the_provider_does_not_by_way_of_a_module(tmp_path: Path) -> None:
    eve = Principal("eve", "socket", frozenset({Scope.INVOKE}), ("a",))
    parties = (asking(tmp_path), provider(tmp_path, "p"))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        asker = Asker()
        args = {"calls": [sample()], "lines": []}
        daemon.requests.invoke(eve, "a", {"op": "calls", "args": args}, asker)
        [found] = (await asker.document())["result"]["results"]
        error(found, "invalid_request", "bad_request")
